package controller

import (
	"errors"
	"fmt"

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

// creation is a request for new topics that is being decided, topic by topic and
// slice by slice, over as many plans as it takes.
type creation struct {
	results []*pb.CreateTopicResult
	times   map[string]int // the names asked for, as metrics show them
	asked   int            // partitions of all topics
	making  *statemachine.NewTopic
	made    int32 // of its partitions, in plans that have settled or in this one
}

func newCreation(r rpc.CreateTopics) *creation {
	c := &creation{times: map[string]int{}}
	for _, t := range r.GetTopics() {
		c.times[cluster.MetricName(t.GetName())]++
		n, _ := statemachine.Shape(t)
		c.asked += int(max(n, 0))
	}
	return c
}

// resumeCreations keeps the names and the partitions of topics that are being
// made from requests that come later.
func (d *draft) resumeCreations() {
	for _, a := range d.l.requests {
		r, ok := a.request.(rpc.CreateTopics)
		if !ok || a.creation == nil || r.GetValidateOnly() {
			continue
		}
		for name := range a.creation.times {
			d.topics[name] = true
		}
		if m := a.creation.making; m != nil {
			d.promised += int(m.Record.GetPartitionsWanted())
			d.making[cluster.TopicID(m.Record.GetTopicId())] = true
		}
	}
}

// createTopics goes on with a request for new topics, each of which is decided
// by itself. Without an answer it is gone on with by the next plan.
func (d *draft) createTopics(a *asked, r rpc.CreateTopics) bool {
	if a.creation == nil {
		c := newCreation(r)
		for name := range c.times {
			if d.topics[name] {
				return false
			}
		}
		a.creation = c
		for name := range c.times {
			d.topics[name] = !r.GetValidateOnly()
		}
	}
	c := a.creation
	for limit := min(d.l.cfg.Slice, d.limit-d.writes); len(c.results) < len(r.GetTopics()) && limit > 0; {
		limit -= d.createTopic(a, r, r.GetTopics()[len(c.results)], limit)
	}
	if len(c.results) == len(r.GetTopics()) {
		d.answers[a.id] = rpc.Answer{Response: &pb.CreateTopicsResponse{Results: c.results}}
	}
	return true
}

// createTopic goes on with the next topic, for about limit partitions, and
// returns how much that has taken.
func (d *draft) createTopic(a *asked, r rpc.CreateTopics, t *pb.NewTopic, limit int) int {
	c := a.creation
	result := &pb.CreateTopicResult{Name: t.GetName()}
	if c.making == nil {
		if d.begin(r, t, c, result); c.making == nil {
			c.results = append(c.results, result)
			return eventCost
		}
	}
	m := c.making
	block, all := m.Record.GetBlockSize(), m.Record.GetPartitionsMade()
	until := min(int64(all), (int64(c.made)+int64(limit)+int64(block)-1)/int64(block)*int64(block))
	parts := m.Partitions(d.l.im, d.term, c.made, int32(until))
	whole := c.made == 0 && int32(until) == all
	c.made = int32(until)
	units := d.blocksOf(a.id, m, parts)
	if c.made == all {
		d.addRecord(a.id, t.GetName(), m, units, whole)
		result.TopicId, result.Partitions, result.ReplicationFactor = m.Record.GetTopicId(), all, m.Record.GetReplicationFactor()
		c.results, c.making, c.made = append(c.results, result), nil, 0
	} else {
		d.created = append(d.created, units...)
	}
	return eventCost + len(parts)
}

// begin begins to make a topic, or says in the result why there is nothing to
// make.
func (d *draft) begin(r rpc.CreateTopics, t *pb.NewTopic, c *creation, result *pb.CreateTopicResult) {
	im, requestID := d.l.im, r.GetRequestId()
	if c.times[cluster.MetricName(t.GetName())] > 1 {
		result.Error = string(cluster.InvalidRequest)
		result.Message = fmt.Sprintf("the request names topic %q, or one that collides with it, more than once", t.GetName())
		return
	}
	if have := im.Topics[t.GetName()]; have != nil && requestID != "" && have.Record.GetRequestId() == requestID {
		result.TopicId, result.Partitions, result.ReplicationFactor = have.ID[:], have.Made(), have.Record.GetReplicationFactor()
		return
	}
	var id cluster.TopicID
	for i := range id {
		id[i] = byte(d.l.cfg.Rand.Uint32())
	}
	m, rej := statemachine.BeginTopic(im, d.term, t, id, requestID, d.l.cfg.Rand.Uint64())
	if rej != nil {
		result.Error, result.Message = string(rej.Reason), rej.Message
		return
	}
	partitions, _ := statemachine.Shape(t)
	if what := d.exceeds(int(partitions), int(partitions), c.asked); what != "" {
		result.Error, result.Message = string(cluster.PolicyViolation), what
		return
	}
	if r.GetValidateOnly() {
		result.Partitions, result.ReplicationFactor = m.Record.GetPartitionsMade(), m.Record.GetReplicationFactor()
		return
	}
	m.Record.CreateReason = r.GetReason()
	d.promised += int(m.Record.GetPartitionsMade())
	c.making, c.made = m, 0
}

// exceeds says which limit of partitions would be exceeded by a topic of so many
// partitions, so many of which are new, in a request that asks for so many;
// empty: none.
func (d *draft) exceeds(topic, more, asked int) string {
	limits := d.l.cfg.Limits
	if most := limits.PerTopic; most > 0 && topic > most {
		return fmt.Sprintf("%d partitions, the limit of a topic is %d", topic, most)
	}
	if most := limits.PerRequest; most > 0 && asked > most {
		return fmt.Sprintf("the request asks for %d partitions, the limit is %d", asked, most)
	}
	if limits.PerCluster == 0 {
		return ""
	}
	there := d.promised + int(d.l.im.Wanted())
	if there+more > limits.PerCluster {
		return fmt.Sprintf("the cluster has %d partitions, with %d more it would exceed its limit of %d", there, more, limits.PerCluster)
	}
	return ""
}

// blocksOf are the units of new partitions, a block each.
func (d *draft) blocksOf(owner int64, m *statemachine.NewTopic, parts []statemachine.Write) []unit {
	topic, size := cluster.TopicID(m.Record.GetTopicId()), m.Record.GetBlockSize()
	var units []unit
	for len(parts) > 0 {
		n := parts[0].ID.Index / size
		records := map[int32]*cluster.Partition{}
		for len(parts) > 0 && parts[0].ID.Index/size == n {
			records[parts[0].ID.Index] = &parts[0].New
			parts = parts[1:]
		}
		d.writes += len(records)
		key := d.l.im.Keys.Block(cluster.BlockID{Topic: topic, Index: n})
		units = append(units, unit{
			conds:  []store.Cond{store.Missing(key)},
			ops:    []store.Op{store.Put(key, (*cluster.Block)(nil).With(records, nil).Encode())},
			owners: []int64{owner},
		})
	}
	return units
}

// addRecord writes the record of a topic after its last blocks: until it
// stands, nothing of the topic does. A topic that fits into one transaction is
// one.
func (d *draft) addRecord(owner int64, name string, m *statemachine.NewTopic, blocks []unit, whole bool) {
	key := d.l.im.Keys.Topic(name)
	record := unit{
		conds:  []store.Cond{store.Missing(key)},
		ops:    []store.Op{store.Put(key, cluster.Encode(m.Record))},
		owners: []int64{owner},
	}
	one := unit{owners: []int64{owner}}
	for _, u := range append(blocks, record) {
		one.conds, one.ops = append(one.conds, u.conds...), append(one.ops, u.ops...)
	}
	if whole && len(one.conds) <= store.MaxConds-2 && one.size() <= maxChunkBytes {
		d.created = append(d.created, one)
		return
	}
	d.created = append(d.created, blocks...)
	d.records = append(d.records, record)
}
