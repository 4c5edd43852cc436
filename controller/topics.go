package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/statemachine"
	"github.com/controllerd/controllerd/store"
)

// Limits are how many partitions may be created; 0: as many as can be. They
// guard against accidents: what stands above them stays, and is completed.
type Limits struct {
	PerTopic, PerRequest, PerCluster int
}

// DefaultLimits are those of a daemon that is not told otherwise.
var DefaultLimits = Limits{PerTopic: 100_000, PerRequest: 200_000, PerCluster: 2_000_000}

// Validate reports every limit that is negative.
func (l Limits) Validate() error {
	var faults []error
	check := func(what string, n int) {
		if n < 0 {
			faults = append(faults, fmt.Errorf("limit of partitions of a %s is %d, want 0 or more", what, n))
		}
	}
	check("topic", l.PerTopic)
	check("request", l.PerRequest)
	check("cluster", l.PerCluster)
	return errors.Join(faults...)
}

// createTopics decides a request for new topics, each by itself.
func (d *draft) createTopics(owner int64, r rpc.CreateTopics) bool {
	times := map[string]int{}
	for _, t := range r.GetTopics() {
		name := cluster.MetricName(t.GetName())
		if d.topics[name] {
			return false
		}
		times[name]++
	}
	resp := &pb.CreateTopicsResponse{}
	asked := 0
	for _, t := range r.GetTopics() {
		n, _ := statemachine.Shape(t)
		asked += int(max(n, 0))
	}
	for _, t := range r.GetTopics() {
		result := &pb.CreateTopicResult{Name: t.GetName()}
		if times[cluster.MetricName(t.GetName())] > 1 {
			result.Error = string(cluster.InvalidRequest)
			result.Message = fmt.Sprintf("the request names topic %q, or one that collides with it, more than once", t.GetName())
		} else {
			d.createTopic(owner, r, t, asked, result)
		}
		resp.Results = append(resp.Results, result)
	}
	for name := range times {
		d.topics[name] = d.topics[name] || !r.GetValidateOnly()
	}
	d.answers[owner] = rpc.Answer{Response: resp}
	return true
}

func (d *draft) createTopic(owner int64, r rpc.CreateTopics, t *pb.NewTopic, asked int, result *pb.CreateTopicResult) {
	im, requestID := d.l.im, r.GetRequestId()
	if have := im.Topics[t.GetName()]; have != nil && requestID != "" && have.Record.GetRequestId() == requestID {
		result.TopicId, result.Partitions, result.ReplicationFactor = have.ID[:], have.Made(), have.Record.GetReplicationFactor()
		return
	}
	if rej := statemachine.ValidateNewTopic(im, t); rej != nil {
		result.Error, result.Message = string(rej.Reason), rej.Message
		return
	}
	if what := d.tooMany(t, asked); what != "" {
		result.Error, result.Message = string(cluster.PolicyViolation), what
		return
	}
	var id cluster.TopicID
	for i := range id {
		id[i] = byte(d.l.cfg.Rand.Uint32())
	}
	record, parts, rej := statemachine.CreateTopic(im, d.term, t, id, requestID, d.l.cfg.Rand.Uint64())
	if rej != nil {
		result.Error, result.Message = string(rej.Reason), rej.Message
		return
	}
	result.TopicId, result.Partitions, result.ReplicationFactor = id[:], record.GetPartitionsMade(), record.GetReplicationFactor()
	if r.GetValidateOnly() {
		result.TopicId = nil
		return
	}
	d.promised += len(parts)
	d.addTopic(owner, t.GetName(), record, parts)
}

// tooMany says which limit of partitions a new topic would exceed, in a request
// that asks for so many; empty: none.
func (d *draft) tooMany(t *pb.NewTopic, asked int) string {
	limits := d.l.cfg.Limits
	partitions, _ := statemachine.Shape(t)
	if most := limits.PerTopic; most > 0 && int(partitions) > most {
		return fmt.Sprintf("%d partitions, the limit of a topic is %d", partitions, most)
	}
	if most := limits.PerRequest; most > 0 && asked > most {
		return fmt.Sprintf("the request asks for %d partitions, the limit is %d", asked, most)
	}
	if limits.PerCluster == 0 {
		return ""
	}
	there := d.promised + int(d.l.im.Wanted())
	if there+int(partitions) > limits.PerCluster {
		return fmt.Sprintf("the cluster has %d partitions, with %d more it would exceed its limit of %d", there, partitions, limits.PerCluster)
	}
	return ""
}

// addTopic writes the blocks first and the record last: until the record
// stands, nothing of the topic does. What fits into one transaction is one.
func (d *draft) addTopic(owner int64, name string, record *pb.TopicRecord, parts []statemachine.Write) {
	k := d.l.im.Keys
	blocks := map[int32]map[int32]*cluster.Partition{}
	for i := range parts {
		n := parts[i].ID.Index / record.GetBlockSize()
		if blocks[n] == nil {
			blocks[n] = map[int32]*cluster.Partition{}
		}
		blocks[n][parts[i].ID.Index] = &parts[i].New
	}
	recordUnit := unit{
		conds:  []store.Cond{store.Missing(k.Topic(name))},
		ops:    []store.Op{store.Put(k.Topic(name), cluster.Encode(record))},
		owners: []int64{owner},
	}
	whole := unit{owners: []int64{owner}}
	var each []unit
	for _, n := range slices.Sorted(maps.Keys(blocks)) {
		key := k.Block(cluster.BlockID{Topic: cluster.TopicID(record.GetTopicId()), Index: n})
		u := unit{
			conds:  []store.Cond{store.Missing(key)},
			ops:    []store.Op{store.Put(key, (*cluster.Block)(nil).With(blocks[n]).Encode())},
			owners: []int64{owner},
		}
		each = append(each, u)
		whole.conds, whole.ops = append(whole.conds, u.conds...), append(whole.ops, u.ops...)
	}
	whole.conds, whole.ops = append(whole.conds, recordUnit.conds...), append(whole.ops, recordUnit.ops...)
	d.writes += len(parts)
	if len(whole.conds) <= store.MaxConds-2 && whole.size() <= maxChunkBytes {
		d.created = append(d.created, whole)
		return
	}
	d.created = append(d.created, each...)
	d.records = append(d.records, recordUnit)
}
