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
	topics    map[cluster.TopicID]*pb.RemovedTopic
	order     []cluster.TopicID                // of topics, the oldest first
	holders   map[cluster.BrokerID]*changeList // the tombstones that name a broker
	confirmed map[cluster.TopicID]map[cluster.BrokerID]bool
	done      *changeList // of confirmed, in the order in which they came
}

func newRemovals() removals {
	return removals{
		topics: map[cluster.TopicID]*pb.RemovedTopic{}, holders: map[cluster.BrokerID]*changeList{},
		confirmed: map[cluster.TopicID]map[cluster.BrokerID]bool{}, done: newChangeList(),
	}
}

// confirm notes that a broker holds nothing of a topic any more.
func (r *removals) confirm(id cluster.TopicID, b cluster.BrokerID) {
	if r.confirmed[id] == nil {
		r.confirmed[id] = map[cluster.BrokerID]bool{}
		r.done.touch(cluster.PartitionID{Topic: id, Index: wholeTopic}, 0)
	}
	r.confirmed[id][b] = true
}

// forget takes that back.
func (r *removals) forget(id cluster.TopicID, b cluster.BrokerID) {
	if delete(r.confirmed[id], b); len(r.confirmed[id]) == 0 {
		delete(r.confirmed, id)
		r.done.remove(cluster.PartitionID{Topic: id, Index: wholeTopic})
	}
}

// of are the tombstones that name a broker.
func (r *removals) of(id cluster.BrokerID) *changeList {
	l := r.holders[id]
	if l == nil {
		l = newChangeList()
		r.holders[id] = l
	}
	return l
}

// buried takes in the tombstone of a topic that has just been deleted.
func (p *Pusher) buried(t *cluster.Tombstone, rev store.Rev) {
	p.entombed(nil, t, rev)
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

// entombed takes in that a tombstone names other brokers than before; nil: there
// is none.
func (p *Pusher) entombed(old, now *cluster.Tombstone, rev store.Rev) {
	holds := map[cluster.BrokerID]bool{}
	if now != nil {
		for _, h := range now.Record.GetHolders() {
			b, whole := cluster.BrokerID(h.GetBrokerId()), cluster.PartitionID{Topic: now.ID, Index: wholeTopic}
			if holds[b] = true; p.removals.of(b).revOf(whole) == 0 {
				p.removals.of(b).touch(whole, rev)
			}
		}
	}
	if old == nil {
		return
	}
	for _, h := range old.Record.GetHolders() {
		if b := cluster.BrokerID(h.GetBrokerId()); !holds[b] {
			p.released(old.ID, b)
		}
	}
}

// released takes in that a tombstone does not name a broker any more.
func (p *Pusher) released(id cluster.TopicID, b cluster.BrokerID) {
	l := p.removals.of(b)
	if l.remove(cluster.PartitionID{Topic: id, Index: wholeTopic}); l.size == 0 && p.targets[b] == nil {
		delete(p.removals.holders, b)
	}
	if t := p.targets[b]; t != nil {
		t.unbury(id)
	}
	p.removals.forget(id, b)
}

// Confirmed are the brokers that hold nothing of a deleted topic any more,
// though its tombstone still names them, by topic.
func (p *Pusher) Confirmed() map[cluster.TopicID]map[cluster.BrokerID]bool {
	return p.removals.confirmed
}

// FirstConfirmed are the topics of Confirmed, at most so many, in the order in
// which they came.
func (p *Pusher) FirstConfirmed(most int) []cluster.TopicID {
	var out []cluster.TopicID
	p.removals.done.after(0, func(c change) bool {
		if len(out) == most {
			return false
		}
		out = append(out, c.id.Topic)
		return true
	})
	return out
}

// burials are the deleted topics that a broker is being told of. Those that it
// was not told of yet are behind the cursor in the list of those that name it.
type burials struct {
	cursor int64
	under  map[cluster.TopicID]*burial
	unsent []*burial // of under, with partitions to be sent, and some that are over
	left   int       // replicas of under
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

func newBurials() burials { return burials{under: map[cluster.TopicID]*burial{}} }

// unbury forgets a topic.
func (b *burials) unbury(id cluster.TopicID) {
	if x := b.under[id]; x != nil {
		b.left -= len(x.due) + len(x.sent)
		x.due = nil
		delete(b.under, id)
	}
}

// sendStops sends one StopReplica for what the broker may hold of deleted
// topics, what failed first, and returns what that took to build.
func (p *Pusher) sendStops(now time.Duration, im *cluster.Image, t *target, out []PushAction) ([]PushAction, int) {
	list := p.removals.of(t.id)
	if t.crowded() || len(t.unsent) == 0 && t.burials.cursor == list.last {
		return out, 0
	}
	var topics []*pb.TopicStops
	n := 0
	t.unsent = slices.DeleteFunc(t.unsent, func(b *burial) bool {
		if n < maxStates && now >= b.at {
			topics = b.stop(im, maxStates-n, topics, &n)
		}
		return len(b.due) == 0
	})
	looked, end := 0, list.last
	list.after(t.burials.cursor, func(c change) bool {
		if n >= maxStates || looked >= maxStates {
			end = c.seq - 1
			return false
		}
		looked++
		if p.removals.confirmed[c.id.Topic][t.id] || t.under[c.id.Topic] != nil {
			return true
		}
		b := &burial{topic: c.id.Topic, due: im.Tombstones[c.id.Topic].Partitions(t.id), sent: map[int32]struct{}{}}
		t.under[b.topic] = b
		t.left += len(b.due)
		if topics = b.stop(im, maxStates-n, topics, &n); len(b.due) > 0 {
			t.unsent = append(t.unsent, b)
		}
		return true
	})
	t.burials.cursor = end
	if n > 0 {
		out = p.send(im, t, &pb.Command{Body: &pb.Command_StopReplica{StopReplica: &pb.StopReplica{Topics: topics}}}, out)
	}
	return out, max(n, looked)
}

// stop adds what is to be stopped, at most room partitions, and counts it.
func (b *burial) stop(im *cluster.Image, room int, topics []*pb.TopicStops, n *int) []*pb.TopicStops {
	ts, take := im.Tombstones[b.topic], b.due[:min(len(b.due), room)]
	if len(take) == 0 {
		return topics
	}
	stops := &pb.TopicStops{TopicId: ts.ID[:], Topic: ts.Record.GetTopic()}
	for _, i := range take {
		stops.Partitions = append(stops.Partitions, &pb.PartitionStop{Partition: i, LeaderEpoch: int32(ts.LeaderEpoch()), Delete: true})
		b.sent[i] = struct{}{}
	}
	b.due = b.due[len(take):]
	*n += len(take)
	return append(topics, stops)
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
	if p.deleted(now, t, id, o, failed) {
		return
	}
	b := t.under[id.Topic]
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
		if len(b.due) == 0 {
			t.unsent = append(t.unsent, b)
		}
		b.due, b.message = append(b.due, id.Index), o.GetMessage()
		return
	}
	t.left--
	if len(b.due)+len(b.sent) > 0 {
		return
	}
	delete(t.under, id.Topic)
	p.removals.confirm(id.Topic, t.id)
}

// unstopped reports whether the broker has yet to confirm that it holds nothing
// of deleted topics.
func (p *Pusher) unstopped(t *target) bool {
	return t.left > 0 || t.burials.cursor != p.removals.of(t.id).last
}

// stopAt is when the next StopReplica is due, if any.
func (b *burials) stopAt(now, next time.Duration) time.Duration {
	for _, x := range b.unsent {
		if len(x.due) > 0 {
			next = min(next, max(x.at, now))
		}
	}
	return next
}

// stuckBurials are the deleted topics that a broker failed to delete.
func (t *target) stuckBurials(im *cluster.Image) []string {
	var out []string
	for _, b := range t.unsent {
		if ts := im.Tombstones[b.topic]; ts != nil && len(b.due) > 0 && b.message != "" {
			out = append(out, fmt.Sprintf("deletion of topic %s: %s", ts.Record.GetTopic(), b.message))
		}
	}
	return out
}
