package controller

import (
	"fmt"
	"maps"
	"slices"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/statemachine"
	"github.com/controllerd/controllerd/store"
)

// createTopics decides a request for new topics, each by itself.
func (d *draft) createTopics(owner int64, r rpc.CreateTopics) bool {
	times := map[string]int{}
	for _, t := range r.GetTopics() {
		name := statemachine.MetricName(t.GetName())
		if d.topics[name] {
			return false
		}
		times[name]++
	}
	resp := &pb.CreateTopicsResponse{}
	for _, t := range r.GetTopics() {
		result := &pb.CreateTopicResult{Name: t.GetName()}
		if times[statemachine.MetricName(t.GetName())] > 1 {
			result.Error = string(cluster.InvalidRequest)
			result.Message = fmt.Sprintf("the request names topic %q, or one that collides with it, more than once", t.GetName())
		} else {
			d.createTopic(owner, r.GetRequestId(), t, result)
		}
		resp.Results = append(resp.Results, result)
	}
	for name := range times {
		d.topics[name] = true
	}
	d.answers[owner] = rpc.Answer{Response: resp}
	return true
}

func (d *draft) createTopic(owner int64, requestID string, t *pb.NewTopic, result *pb.CreateTopicResult) {
	im := d.l.im
	if have := im.Topics[t.GetName()]; have != nil && requestID != "" && have.Record.GetRequestId() == requestID {
		result.TopicId, result.Partitions, result.ReplicationFactor = have.ID[:], have.Made(), have.Record.GetReplicationFactor()
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
	d.addTopic(owner, t.GetName(), record, parts)
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
