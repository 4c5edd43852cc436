package rpc

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// leavers are the former replicas of reassigned partitions that brokers are to
// delete, and who confirmed that it has. Each stream begins with all of its
// broker's: what was confirmed to an earlier controller nobody else knows.
type leavers struct {
	of        map[cluster.BrokerID]*changeList // the partitions that a broker has left
	confirmed map[cluster.PartitionID]map[cluster.BrokerID]bool
	done      *changeList // of confirmed, in the order in which they came
}

func newLeavers() leavers {
	return leavers{of: map[cluster.BrokerID]*changeList{}, confirmed: map[cluster.PartitionID]map[cluster.BrokerID]bool{}, done: newChangeList()}
}

// begin forgets what was confirmed in an earlier term.
func (l *leavers) begin() {
	clear(l.confirmed)
	l.done = newChangeList()
}

// list are the partitions that a broker has left.
func (l *leavers) list(id cluster.BrokerID) *changeList {
	if have := l.of[id]; have != nil {
		return have
	}
	return emptyList
}

var emptyList = newChangeList()

// leave takes in who has left a partition, and who has not any more. One that
// left again is told again: its leader epoch is another one.
func (p *Pusher) leave(ev cluster.PartitionChanged) {
	var before, now []cluster.BrokerID
	if ev.Old != nil && len(ev.Old.Removing) > 0 {
		before = ev.Old.Leaving()
	}
	if ev.New != nil && len(ev.New.Removing) > 0 {
		now = ev.New.Leaving()
	}
	for _, b := range before {
		if !slices.Contains(now, b) {
			p.left(ev.ID, b)
		}
	}
	for _, b := range now {
		if slices.Contains(before, b) {
			continue
		}
		l := p.leavers.of[b]
		if l == nil {
			l = newChangeList()
			p.leavers.of[b] = l
		}
		l.touch(ev.ID, ev.Rev)
	}
}

// left takes in that a broker is not to delete a replica any more.
func (p *Pusher) left(id cluster.PartitionID, b cluster.BrokerID) {
	if l := p.leavers.of[b]; l != nil {
		if l.remove(id); l.size == 0 && p.targets[b] == nil {
			delete(p.leavers.of, b)
		}
	}
	if t := p.targets[b]; t != nil {
		delete(t.leaving.sent, id)
		delete(t.leaving.failed, id)
	}
	if delete(p.leavers.confirmed[id], b); len(p.leavers.confirmed[id]) == 0 {
		delete(p.leavers.confirmed, id)
		p.leavers.done.remove(id)
	}
}

// FormerReplicas are brokers that have left a partition.
type FormerReplicas struct {
	Partition cluster.PartitionID
	Brokers   []cluster.BrokerID
}

// Left are at most so many partitions that brokers have left and confirmed that
// they hold no replica of any more, or that are not there to do so.
func (p *Pusher) Left(im *cluster.Image, most int) []FormerReplicas {
	var out []FormerReplicas
	at := map[cluster.PartitionID]int{}
	add := func(id cluster.PartitionID, b cluster.BrokerID) bool {
		i, known := at[id]
		if !known {
			if len(out) >= most {
				return false
			}
			i, at[id] = len(out), len(out)
			out = append(out, FormerReplicas{Partition: id})
		}
		out[i].Brokers = append(out[i].Brokers, b)
		return true
	}
	p.leavers.done.after(0, func(c change) bool {
		for _, b := range slices.Sorted(maps.Keys(p.leavers.confirmed[c.id])) {
			if !add(c.id, b) {
				return false
			}
		}
		return true
	})
	for _, b := range slices.Sorted(maps.Keys(p.leavers.of)) {
		if im.Brokers[b] == nil {
			p.leavers.of[b].after(0, func(c change) bool { return add(c.id, b) })
		}
	}
	return out
}

// LeftDue reports whether Left would name any.
func (p *Pusher) LeftDue(im *cluster.Image) bool {
	if len(p.leavers.confirmed) > 0 {
		return true
	}
	for b, l := range p.leavers.of {
		if l.size > 0 && im.Brokers[b] == nil {
			return true
		}
	}
	return false
}

// leaving is what a broker is told of the partitions that it has left, on the
// open stream.
type leaving struct {
	cursor int64 // in the list of those that it has left
	sent   map[cluster.PartitionID]cluster.LeaderEpoch
	failed map[cluster.PartitionID]*retry
	tries  tries
}

func newLeaving() leaving {
	return leaving{sent: map[cluster.PartitionID]cluster.LeaderEpoch{}, failed: map[cluster.PartitionID]*retry{}}
}

// sendLeft sends one StopReplica for former replicas, what failed first, and
// returns what that took to build.
func (p *Pusher) sendLeft(now time.Duration, im *cluster.Image, t *target, out []PushAction) ([]PushAction, int) {
	list := p.leavers.list(t.id)
	if t.crowded() || len(t.leaving.tries) == 0 && t.leaving.cursor == list.last {
		return out, 0
	}
	var ids []cluster.PartitionID
	for line := &t.leaving.tries; len(*line) > 0 && (*line)[0].at <= now && len(ids) < maxStates; {
		first := line.pop()
		if r := t.leaving.failed[first.id]; r != nil && r.at == first.at {
			ids = append(ids, first.id)
		}
	}
	looked, end := 0, list.last
	list.after(t.leaving.cursor, func(c change) bool {
		if len(ids) >= maxStates || looked >= maxStates {
			end = c.seq - 1
			return false
		}
		looked++
		if !p.leavers.confirmed[c.id][t.id] {
			ids = append(ids, c.id)
		}
		return true
	})
	t.leaving.cursor = end
	if stops := t.stops(im, ids); len(stops) > 0 {
		out = p.send(im, t, &pb.Command{Body: &pb.Command_StopReplica{StopReplica: &pb.StopReplica{Topics: stops}}}, out)
	}
	return out, max(len(ids), looked)
}

// stops are the replicas to delete, under their topics, noted as sent.
func (t *target) stops(im *cluster.Image, ids []cluster.PartitionID) []*pb.TopicStops {
	slices.SortFunc(ids, cluster.PartitionID.Compare)
	var out []*pb.TopicStops
	for _, id := range slices.Compact(ids) {
		part := im.Partition(id)
		if part == nil || !part.Left(t.id) {
			delete(t.leaving.failed, id)
			continue
		}
		if n := len(out); n == 0 || cluster.TopicID(out[n-1].GetTopicId()) != id.Topic {
			topic := im.TopicByID(id.Topic)
			out = append(out, &pb.TopicStops{TopicId: topic.ID[:], Topic: topic.Name})
		}
		last := out[len(out)-1]
		last.Partitions = append(last.Partitions, &pb.PartitionStop{Partition: id.Index, LeaderEpoch: int32(part.LeaderEpoch), Delete: true})
		t.leaving.sent[id] = part.LeaderEpoch
	}
	return out
}

// deleted takes in what became of a former replica, and reports whether it is
// one. What is still there is tried again.
func (p *Pusher) deleted(now time.Duration, t *target, id cluster.PartitionID, o *pb.PartitionOutcome, failed bool) bool {
	le, ours := t.leaving.sent[id]
	if !ours || cluster.LeaderEpoch(o.GetLeaderEpoch()) != le {
		return ours
	}
	delete(t.leaving.sent, id)
	if !failed {
		delete(t.leaving.failed, id)
		if p.leavers.confirmed[id] == nil {
			p.leavers.confirmed[id] = map[cluster.BrokerID]bool{}
			p.leavers.done.touch(id, 0)
		}
		p.leavers.confirmed[id][t.id] = true
		return true
	}
	r := t.leaving.failed[id]
	if r == nil {
		r = &retry{}
		t.leaving.failed[id] = r
	}
	r.wait, r.message = min(max(2*r.wait, MinRetry), MaxRetry), o.GetMessage()
	t.leaving.tries.set(id, r, now+r.wait)
	return true
}

// undeleted reports whether the broker has yet to confirm that it has deleted
// former replicas.
func (p *Pusher) undeleted(t *target) bool {
	return len(t.leaving.sent)+len(t.leaving.failed) > 0 || t.leaving.cursor != p.leavers.list(t.id).last
}

// stuckLeavers are the former replicas that a broker failed to delete.
func (t *target) stuckLeavers(im *cluster.Image) []string {
	var out []string
	for id, r := range t.leaving.failed {
		if topic := im.TopicByID(id.Topic); topic != nil && r.message != "" {
			out = append(out, fmt.Sprintf("deletion of the former replica of %s/%d: %s", topic.Name, id.Index, r.message))
		}
	}
	slices.Sort(out)
	return out
}
