package rpc

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// Sizes of what is sent and built at once.
const (
	// maxChunk bounds the encoded size of a command in bytes: below 1 MiB with
	// room for what the estimate does not count.
	maxChunk = 900 << 10
	// maxStates bounds the states of a command, so that a broker's gate admits
	// it in about a millisecond.
	maxStates = 1000
	// maxSynced bounds the topics that one command says are covered.
	maxSynced = 50_000
	// maxSlice bounds the states of one Step.
	maxSlice = 4000
)

// state is one partition as a command will carry it.
type state struct {
	topic *cluster.Topic
	id    cluster.PartitionID
	p     *cluster.Partition
	rev   store.Rev // of the change; 0: tried again
	wire  *pb.PartitionState
	fresh *pb.PartitionState // the same for brokers that may create the replica; nil: there is none
}

// to is the state as a broker that hosts the partition hears it.
func (s *state) to(id cluster.BrokerID) *pb.PartitionState {
	if s.fresh != nil && slices.Contains(s.p.Adding, id) && !slices.Contains(s.p.ISR, id) {
		return s.fresh
	}
	return s.wire
}

// chunk is a piece of the change list in its newest state. It is built once
// for all brokers that are at the same place.
type chunk struct {
	end     int64 // the cursor behind it
	states  []state
	removed []*pb.RemovedTopic
	configs []*pb.TopicConfig
	hosts   map[cluster.BrokerID][]state // those with a replica on it; nil: not sorted out yet
	all     *broadcast                   // of all states; nil: not made yet
}

// chunks are those that were built from one image in one term.
type chunks struct {
	rev   store.Rev
	last  int64
	epoch cluster.Epoch
	after map[int64]*chunk // by the cursor before it
}

// chunkAfter is what changed after a cursor, up to the size of one command.
func (p *Pusher) chunkAfter(im *cluster.Image, cursor int64) *chunk {
	b := &p.built
	if b.after == nil || b.rev != im.Rev || b.last != p.changes.last || b.epoch != p.claim.Epoch {
		*b = chunks{rev: im.Rev, last: p.changes.last, epoch: p.claim.Epoch, after: map[int64]*chunk{}}
	}
	c := b.after[cursor]
	if c == nil {
		piece := p.take(im, cursor)
		c = p.build(piece.states)
		c.end, c.removed, c.configs = piece.end, piece.removed, piece.configs
		b.after[cursor] = c
	}
	return c
}

// topicConfig is, in the change list, what a topic has set of its own.
const topicConfig = -2

func configOf(t *cluster.Topic) cluster.PartitionID {
	return cluster.PartitionID{Topic: t.ID, Index: topicConfig}
}

// empty reports whether there is nothing in it that anybody is to hear.
func (c *chunk) empty() bool { return len(c.states)+len(c.removed)+len(c.configs) == 0 }

// take reads the change list after a cursor.
func (p *Pusher) take(im *cluster.Image, cursor int64) *chunk {
	out, size := &chunk{end: p.changes.last}, 0
	p.changes.after(cursor, func(c change) bool {
		full := func(more, have int) bool { // what is larger goes alone
			if size += more; (size > maxChunk || have == maxStates) && !out.empty() {
				out.end = c.seq - 1
				return true
			}
			return false
		}
		topic, part := im.TopicByID(c.id.Topic), im.Partition(c.id)
		switch {
		case c.id.Index == wholeTopic:
			gone := p.removals.topics[c.id.Topic]
			if full(64+len(gone.GetTopic()), len(out.removed)) {
				return false
			}
			out.removed = append(out.removed, gone)
		case topic == nil:
		case c.id.Index == topicConfig:
			config := &pb.TopicConfig{TopicId: topic.ID[:], Topic: topic.Name, Config: topic.Record.GetConfig()}
			if full(16+proto.Size(config), len(out.configs)) {
				return false
			}
			out.configs = append(out.configs, config)
		case part != nil:
			if full(estimate(topic, part), len(out.states)) {
				return false
			}
			out.states = append(out.states, state{topic: topic, id: c.id, p: part, rev: c.rev})
		}
		return true
	})
	return out
}

// build makes the messages of states.
func (p *Pusher) build(states []state) *chunk {
	slices.SortFunc(states, byTopic)
	for i := range states {
		s := &states[i]
		s.wire = s.p.State(s.id.Index, p.isNew(s.p))
		if len(s.p.Adding) > 0 {
			s.fresh = s.p.State(s.id.Index, true)
		}
	}
	return &chunk{states: states}
}

// isNew allows all brokers to create the replica, even one that has lost a disk
// which may hold it: the partition has just been made, in this term. A replica
// that is being added and not in the ISR may be created in any term.
func (p *Pusher) isNew(part *cluster.Partition) bool {
	return part.LeaderEpoch == 0 && part.PartitionEpoch == 0 && part.ControllerEpoch == p.claim.Epoch
}

// hosted are the states that have a replica on the broker.
func (c *chunk) hosted(id cluster.BrokerID) []state {
	if c.hosts == nil {
		c.hosts = map[cluster.BrokerID][]state{}
		for _, s := range c.states {
			for _, b := range s.p.Replicas {
				theirs := s
				theirs.wire = s.to(b)
				c.hosts[b] = append(c.hosts[b], theirs)
			}
		}
	}
	return c.hosts[id]
}

// grouped are sorted states under their topics: half the bytes of naming it
// with each.
func grouped(states []state) []*pb.TopicStates {
	var out []*pb.TopicStates
	wires := make([]*pb.PartitionState, len(states))
	for i, s := range states {
		wires[i] = s.wire
		if n := len(out); n == 0 || out[n-1].GetTopic() != s.topic.Name {
			out = append(out, &pb.TopicStates{TopicId: s.topic.ID[:], Topic: s.topic.Name, Partitions: wires[i:i]})
		}
		last := out[len(out)-1]
		last.Partitions = last.Partitions[:len(last.Partitions)+1]
	}
	return out
}

// estimate is an upper bound of the encoded size of one state in bytes, with
// its topic's header.
func estimate(topic *cluster.Topic, p *cluster.Partition) int {
	return 96 + len(topic.Name) + 6*(len(p.Replicas)+len(p.ISR)+len(p.Adding)+len(p.Removing))
}

func byTopic(a, b state) int {
	return cmp.Or(cmp.Compare(a.topic.Name, b.topic.Name), cmp.Compare(a.id.Index, b.id.Index))
}
