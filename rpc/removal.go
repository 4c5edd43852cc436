package rpc

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// DefaultRemovals is how many deleted topics are remembered, to tell brokers that
// have not heard of it yet. In the change list they stand under wholeTopic.
const DefaultRemovals = 100_000

// removals are the topics that were deleted, and who confirmed that it holds
// nothing of them any more.
type removals struct {
	version   int64 // rises with each change of a tombstone
	topics    map[cluster.TopicID]*pb.RemovedTopic
	order     []cluster.TopicID // of topics, the oldest first
	confirmed map[cluster.TopicID]map[cluster.BrokerID]bool
}

func newRemovals() removals {
	return removals{topics: map[cluster.TopicID]*pb.RemovedTopic{}, confirmed: map[cluster.TopicID]map[cluster.BrokerID]bool{}}
}

// buried takes in the tombstone of a topic that has just been deleted.
func (p *Pusher) buried(t *cluster.Tombstone, rev store.Rev) {
	p.removals.version++
	if p.removals.topics[t.ID] == nil {
		p.removals.order = append(p.removals.order, t.ID)
	}
	p.removals.topics[t.ID] = &pb.RemovedTopic{TopicId: t.ID[:], Topic: t.Record.GetTopic(), Partitions: t.Record.GetPartitions()}
	p.changes.touch(cluster.PartitionID{Topic: t.ID, Index: wholeTopic}, rev)
	for len(p.removals.order) > cmp.Or(p.MaxRemovals, DefaultRemovals) {
		oldest := p.removals.order[0]
		p.removals.order = p.removals.order[1:]
		delete(p.removals.topics, oldest)
		p.forgotten = max(p.forgotten, p.changes.revOf(cluster.PartitionID{Topic: oldest, Index: wholeTopic}))
		p.changes.remove(cluster.PartitionID{Topic: oldest, Index: wholeTopic})
	}
}

// unburied takes in that a tombstone names fewer brokers, or, with nil, none.
func (p *Pusher) unburied(id cluster.TopicID, now *cluster.Tombstone) {
	p.removals.version++
	for b := range p.removals.confirmed[id] {
		if now == nil || !now.Holds(b) {
			delete(p.removals.confirmed[id], b)
		}
	}
	if len(p.removals.confirmed[id]) == 0 {
		delete(p.removals.confirmed, id)
	}
}

// Confirmed are the brokers that hold nothing of a deleted topic any more,
// though its tombstone still names them, by topic.
func (p *Pusher) Confirmed() map[cluster.TopicID]map[cluster.BrokerID]bool {
	return p.removals.confirmed
}

// burial is a deleted topic of which a broker may hold replicas.
type burial struct {
	topic   cluster.TopicID
	due     []int32            // partitions to be sent
	sent    map[int32]struct{} // the result is not known
	at      time.Duration      // not sent before
	wait    time.Duration
	message string // of the last failure
}

// followTombstones keeps one burial for each tombstone that names the broker.
func (p *Pusher) followTombstones(im *cluster.Image, t *target) {
	if t.removals == p.removals.version {
		return
	}
	t.removals = p.removals.version
	t.burials = slices.DeleteFunc(t.burials, func(b *burial) bool {
		ts := im.Tombstones[b.topic]
		return ts == nil || !ts.Holds(t.id)
	})
	for _, ts := range im.SortedTombstones() {
		if t.burial(ts.ID) == nil && !p.removals.confirmed[ts.ID][t.id] && ts.Holds(t.id) {
			t.burials = append(t.burials, &burial{topic: ts.ID, due: ts.Partitions(t.id), sent: map[int32]struct{}{}})
		}
	}
}

func (t *target) burial(id cluster.TopicID) *burial {
	i := slices.IndexFunc(t.burials, func(b *burial) bool { return b.topic == id })
	if i < 0 {
		return nil
	}
	return t.burials[i]
}

// sendStops sends one StopReplica for what the broker may hold of deleted
// topics, and returns of how many partitions.
func (p *Pusher) sendStops(now time.Duration, im *cluster.Image, t *target, out []PushAction) ([]PushAction, int) {
	p.followTombstones(im, t)
	if t.unacked >= window {
		return out, 0
	}
	var topics []*pb.TopicStops
	n := 0
	for _, b := range t.burials {
		if len(b.due) == 0 || now < b.at || n == maxStates {
			continue
		}
		ts := im.Tombstones[b.topic]
		stops := &pb.TopicStops{TopicId: ts.ID[:], Topic: ts.Record.GetTopic()}
		take := b.due[:min(len(b.due), maxStates-n)]
		for _, i := range take {
			stops.Partitions = append(stops.Partitions, &pb.PartitionStop{
				Partition: i, LeaderEpoch: int32(ts.LeaderEpoch()), Delete: true,
			})
			b.sent[i] = struct{}{}
		}
		b.due = b.due[len(take):]
		n += len(take)
		topics = append(topics, stops)
	}
	if n > 0 {
		out = p.send(im, t, &pb.Command{Body: &pb.Command_StopReplica{StopReplica: &pb.StopReplica{Topics: topics}}}, out)
	}
	return out, n
}

// stopped takes in what became of a replica of a deleted topic. One that is
// still there is tried again.
func (p *Pusher) stopped(now time.Duration, t *target, id cluster.PartitionID, o *pb.PartitionOutcome) {
	failed := false
	switch o.GetResult() {
	case pb.PartitionResult_PARTITION_RESULT_APPLIED:
		p.Stats.Applied++
	case pb.PartitionResult_PARTITION_RESULT_ALREADY:
		p.Stats.Already++
	default:
		failed = true
		p.Stats.Failed++
		t.failures++
	}
	b := t.burial(id.Topic)
	if b == nil {
		return
	}
	if _, sent := b.sent[id.Index]; !sent {
		return
	}
	delete(b.sent, id.Index)
	if failed {
		if now >= b.at { // the first failure of this attempt
			b.wait = min(max(2*b.wait, MinRetry), MaxRetry)
			b.at = now + b.wait
		}
		b.due, b.message = append(b.due, id.Index), o.GetMessage()
		return
	}
	if len(b.due)+len(b.sent) > 0 {
		return
	}
	t.burials = slices.DeleteFunc(t.burials, func(x *burial) bool { return x == b })
	if p.removals.confirmed[id.Topic] == nil {
		p.removals.confirmed[id.Topic] = map[cluster.BrokerID]bool{}
	}
	p.removals.confirmed[id.Topic][t.id] = true
}

// unstopped counts the replicas of deleted topics that the broker has yet to
// confirm.
func (t *target) unstopped() int {
	n := 0
	for _, b := range t.burials {
		n += len(b.due) + len(b.sent)
	}
	return n
}

// stopAt is when the next StopReplica is due, if any.
func (t *target) stopAt(now, next time.Duration) time.Duration {
	for _, b := range t.burials {
		if len(b.due) > 0 {
			next = min(next, max(b.at, now))
		}
	}
	return next
}

// stuckBurials are the deleted topics that a broker failed to delete.
func (t *target) stuckBurials(im *cluster.Image) []string {
	var out []string
	for _, b := range t.burials {
		if ts := im.Tombstones[b.topic]; ts != nil && b.message != "" {
			out = append(out, fmt.Sprintf("broker %d deletion of topic %s: %s", t.id, ts.Record.GetTopic(), b.message))
		}
	}
	return out
}
