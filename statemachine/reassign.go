package statemachine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Assignment is who has replicas of a partition, and which of them are being
// added or are to go: Kafka's ReplicaAssignment (KIP-455).
type Assignment struct{ Replicas, Adding, Removing []cluster.BrokerID }

// AssignmentOf is that of a partition, without brokers that are no replicas any
// more.
func AssignmentOf(p *cluster.Partition) Assignment {
	return Assignment{p.Replicas, p.Adding, keep(p.Removing, in(p.Replicas))}
}

// Origin are the replicas before the reassignment, Target those after it.
func (a Assignment) Origin() []cluster.BrokerID { return without(a.Replicas, a.Adding) }

// Target are the replicas after the reassignment.
func (a Assignment) Target() []cluster.BrokerID { return without(a.Replicas, a.Removing) }

// ReassignTo is the assignment on the way to other replicas. It begins from the
// origin: an earlier target is forgotten. To go to the origin is to cancel.
func (a Assignment) ReassignTo(target []cluster.BrokerID) Assignment {
	origin := a.Origin()
	full := slices.Concat(target, without(origin, target))
	return Assignment{Replicas: full, Adding: without(full, origin), Removing: without(full, target)}
}

// Active reports whether replicas are being added or are to go.
func (a Assignment) Active() bool { return len(a.Adding)+len(a.Removing) > 0 }

// CompleteWith reports whether every target replica is in the ISR.
func (a Assignment) CompleteWith(isr []cluster.BrokerID) bool {
	target := a.Target()
	return len(target) > 0 && within(target, isr)
}

func in(ids []cluster.BrokerID) func(cluster.BrokerID) bool {
	return func(id cluster.BrokerID) bool { return slices.Contains(ids, id) }
}

func without(ids, gone []cluster.BrokerID) []cluster.BrokerID {
	return keep(ids, func(id cluster.BrokerID) bool { return !slices.Contains(gone, id) })
}

// union are the members of both, each once.
func union(ids, more []cluster.BrokerID) []cluster.BrokerID {
	return slices.Concat(ids, without(more, ids))
}

// completed is Next of a partition to which nothing else is owed: a reassignment
// whose target is in sync ends, in one write. The leader stays if it is one of the
// target; if none of the target can lead, it goes on.
func (v View) completed(p *cluster.Partition) (next cluster.Partition, changed bool) {
	if !p.Moving() {
		return cluster.Partition{}, false
	}
	a := AssignmentOf(p)
	if !a.CompleteWith(p.ISR) {
		return cluster.Partition{}, false
	}
	next, changed = v.assign(p, Assignment{Replicas: a.Target()})
	next.Target = p.Target
	return next, changed
}

// assign gives a partition an assignment: who is no replica any more leaves the
// ISR, and is to delete its replica. It reports false if no in-sync replica would
// be left, or if somebody leads and nobody of the new replicas could.
func (v View) assign(p *cluster.Partition, a Assignment) (next cluster.Partition, ok bool) {
	isr := keep(p.ISR, in(a.Replicas))
	if len(isr) == 0 {
		return cluster.Partition{}, false
	}
	leader := p.Leader
	if leader != cluster.NoLeader && !slices.Contains(a.Replicas, leader) {
		o, can := ElectReassign(a.Replicas, isr, v.Online)
		if !can {
			return cluster.Partition{}, false
		}
		leader = o.Leader
	}
	left := without(union(p.Leaving(), without(p.Replicas, a.Replicas)), a.Replicas)
	next = succeed(p, v, Outcome{Leader: leader, ISR: isr}, pb.ChangeCause_CHANGE_CAUSE_REASSIGNMENT)
	next.Replicas, next.Adding, next.Removing, next.Target = a.Replicas, some(a.Adding), some(union(a.Removing, left)), nil
	return next, true
}

// some is nil for none, as records have it.
func some(ids []cluster.BrokerID) []cluster.BrokerID {
	if len(ids) == 0 {
		return nil
	}
	return ids
}

// Move is what somebody wants of the replicas of a partition.
type Move struct {
	Target []cluster.BrokerID
	Cancel bool // a reassignment that is under way or waits; without Target
}

// Reassign judges a reassignment of one partition (KIP-455) and returns the
// write, nil if all is so already, and the state that the partition is in then. A
// reassignment that is under way is superseded.
//
// room is whether one more partition may be adding replicas; if not, and the
// reassignment would, the target is queued.
//
// Rejections are UNKNOWN_TOPIC_OR_PARTITION, also for a topic that is being
// deleted; INVALID_REPLICA_ASSIGNMENT for replicas that do not do, replicas to be
// added on brokers that are not live among them; NO_REASSIGNMENT_IN_PROGRESS; and
// ELIGIBLE_LEADERS_NOT_AVAILABLE if what remains could not take over. The partition
// must not be Due.
func (m *Machine) Reassign(t Term, id cluster.PartitionID, mv Move, room bool) (w *Write, state pb.ReassignmentState, rej *Rejection) {
	p, rej := m.movable(id)
	if rej != nil {
		return nil, 0, rej
	}
	v := m.At(id)
	a := AssignmentOf(p)
	next, state := cluster.Partition{}, pb.ReassignmentState_REASSIGNMENT_STATE_CANCELLED
	switch {
	case mv.Cancel && !a.Active() && !p.Queued():
		return nil, 0, reject(cluster.NoReassignmentInProgress, "no reassignment is under way or waits")
	case mv.Cancel && !a.Active():
		next = v.retarget(p, nil)
	case mv.Cancel:
		next, rej = v.reassign(p, a.ReassignTo(a.Origin()))
	default:
		if rej := v.checkTarget(a, mv.Target); rej != nil {
			return nil, 0, rej
		}
		if next, state, rej = v.move(p, a, mv.Target, room); next.Replicas == nil && rej == nil {
			return nil, state, nil
		}
	}
	if rej != nil {
		return nil, 0, rej
	}
	t.stamp(&next)
	return &Write{ID: id, Old: p, New: next}, state, nil
}

// movable is the partition of that id, if it may be reassigned.
func (m *Machine) movable(id cluster.PartitionID) (*cluster.Partition, *Rejection) {
	switch topic := m.im.TopicByID(id.Topic); {
	case topic == nil || id.Index < 0 || id.Index >= topic.Made():
		return nil, reject(cluster.UnknownTopicOrPartition, "The partition does not exist.")
	case topic.Deleting():
		return nil, reject(cluster.UnknownTopicOrPartition, "The topic is being deleted.")
	}
	p := m.im.Partition(id)
	if p == nil {
		return nil, reject(cluster.KafkaStorageError, "the record of the partition is missing or unreadable")
	}
	return p, nil
}

// move is what becomes of a partition that is to have other replicas, the zero
// value if nothing does.
func (v View) move(p *cluster.Partition, a Assignment, target []cluster.BrokerID, room bool) (cluster.Partition, pb.ReassignmentState, *Rejection) {
	to := a.ReassignTo(target)
	switch {
	case slices.Equal(to.Replicas, p.Replicas) && slices.Equal(to.Adding, p.Adding) && slices.Equal(to.Removing, a.Removing) && !p.Queued():
		if to.Active() {
			return cluster.Partition{}, pb.ReassignmentState_REASSIGNMENT_STATE_MOVING, nil
		}
		return cluster.Partition{}, pb.ReassignmentState_REASSIGNMENT_STATE_DONE, nil
	case len(to.Adding) > 0 && len(p.Adding) == 0 && !room && slices.Equal(target, p.Target):
		return cluster.Partition{}, pb.ReassignmentState_REASSIGNMENT_STATE_QUEUED, nil
	case len(to.Adding) > 0 && len(p.Adding) == 0 && !room && a.Active():
		// What is to go may be wanted now.
		next, ok := v.assign(p, Assignment{Replicas: a.Origin()})
		if !ok {
			return next, 0, reject(cluster.EligibleLeadersNotAvailable, "none of the replicas %v is in sync and can lead", a.Origin())
		}
		next.Target = target
		return next, pb.ReassignmentState_REASSIGNMENT_STATE_QUEUED, nil
	case len(to.Adding) > 0 && len(p.Adding) == 0 && !room:
		return v.retarget(p, target), pb.ReassignmentState_REASSIGNMENT_STATE_QUEUED, nil
	}
	next, rej := v.reassign(p, to)
	if next.Moving() {
		return next, pb.ReassignmentState_REASSIGNMENT_STATE_MOVING, rej
	}
	return next, pb.ReassignmentState_REASSIGNMENT_STATE_DONE, rej
}

// reassign gives a partition an assignment, and completes it at once if it can
// be.
func (v View) reassign(p *cluster.Partition, a Assignment) (cluster.Partition, *Rejection) {
	if a.CompleteWith(keep(p.ISR, in(a.Replicas))) {
		if next, ok := v.assign(p, Assignment{Replicas: a.Target()}); ok {
			return next, nil
		}
	}
	next, ok := v.assign(p, a)
	if !ok {
		return next, reject(cluster.EligibleLeadersNotAvailable, "none of the replicas %v that would remain is in sync and can lead", a.Replicas)
	}
	return next, nil
}

// retarget is a partition with another queued target, and nothing else changed.
func (v View) retarget(p *cluster.Partition, target []cluster.BrokerID) cluster.Partition {
	next := *p
	next.Target, next.Cause, next.Decided = target, pb.ChangeCause_CHANGE_CAUSE_REASSIGNMENT, v.Rev
	next.PartitionEpoch++
	return next
}

// checkTarget refuses replicas that a partition cannot get. Those that it has may
// be on brokers that are away.
func (v View) checkTarget(a Assignment, target []cluster.BrokerID) *Rejection {
	switch {
	case len(target) == 0:
		return reject(cluster.InvalidReplicaAssignment, "no replicas")
	case len(target) > len(v.Brokers)+len(a.Replicas): // before what takes long
		return reject(cluster.InvalidReplicaAssignment, "%d replicas, there are %d live brokers", len(target), len(v.Brokers))
	case hasDuplicates(target):
		return reject(cluster.InvalidReplicaAssignment, "replicas %v name a broker twice", target)
	case slices.Min(target) < 0:
		return reject(cluster.InvalidReplicaAssignment, "replicas %v name a negative broker", target)
	}
	origin := a.Origin()
	for _, id := range target {
		b := v.Brokers[id]
		switch {
		case slices.Contains(origin, id):
		case b == nil:
			return reject(cluster.InvalidReplicaAssignment, "broker %d, to which a replica is to be added, is not live", id)
		case b.Draining():
			return reject(cluster.InvalidReplicaAssignment, "broker %d, to which a replica is to be added, is shutting down, drained or cannot be reached", id)
		}
	}
	return nil
}

// Begin begins the queued reassignment of a partition, if a replica can be added
// on each broker that is to get one now. It is nil if not, or if the rules want
// something else of the partition first.
func (m *Machine) Begin(t Term, id cluster.PartitionID) *Write {
	p, rej := m.movable(id)
	if rej != nil || !p.Queued() || m.Due(id) {
		return nil
	}
	v, a := m.At(id), AssignmentOf(p)
	to := a.ReassignTo(p.Target)
	if slices.ContainsFunc(to.Adding, func(b cluster.BrokerID) bool { return !v.Online(b) }) {
		return nil
	}
	next, rej := v.reassign(p, to)
	if rej != nil {
		return nil
	}
	t.stamp(&next)
	return &Write{ID: id, Old: p, New: next}
}

// Park takes a reassignment back that cannot go on, because a broker that is to
// get a replica is not live, and queues it again. It is nil if it can go on.
func (m *Machine) Park(t Term, id cluster.PartitionID) *Write {
	p, rej := m.movable(id)
	if rej != nil || len(p.Adding) == 0 || m.Due(id) {
		return nil
	}
	v, a := m.At(id), AssignmentOf(p)
	if !slices.ContainsFunc(p.Adding, func(b cluster.BrokerID) bool { return v.Brokers[b] == nil }) {
		return nil
	}
	next, ok := v.assign(p, Assignment{Replicas: a.Origin()})
	if !ok {
		return nil
	}
	next.Target = a.Target()
	t.stamp(&next)
	return &Write{ID: id, Old: p, New: next}
}

// Deleted takes brokers out of those that have yet to confirm that they have
// deleted their former replicas. It is nil if none of them is one.
func (m *Machine) Deleted(t Term, id cluster.PartitionID, done func(cluster.BrokerID) bool) *Write {
	p, rej := m.movable(id)
	if rej != nil || m.Due(id) {
		return nil
	}
	removing := keep(p.Removing, func(b cluster.BrokerID) bool { return !p.Left(b) || !done(b) })
	if len(removing) == len(p.Removing) {
		return nil
	}
	next := m.At(id).retarget(p, p.Target)
	next.Removing = some(removing)
	t.stamp(&next)
	return &Write{ID: id, Old: p, New: next}
}

// WaitsFor says what the reassignment of a partition waits for, for people, and
// in which state it is; empty: there is none.
func (m *Machine) WaitsFor(id cluster.PartitionID) (state pb.ReassignmentState, words string) {
	p := m.im.Partition(id)
	if p == nil {
		return 0, ""
	}
	v, a := m.At(id), AssignmentOf(p)
	if !a.Active() && !p.Queued() {
		return pb.ReassignmentState_REASSIGNMENT_STATE_DONE, m.deleting(p)
	}
	state, adding := pb.ReassignmentState_REASSIGNMENT_STATE_MOVING, p.Adding
	if !a.Active() {
		state, adding = pb.ReassignmentState_REASSIGNMENT_STATE_QUEUED, a.ReassignTo(p.Target).Adding
	}
	for _, b := range adding {
		if v.Brokers[b] == nil || v.Brokers[b].Draining() || v.failed(v.Brokers[b]) {
			return state, fmt.Sprintf("broker %d, which %s", b, v.unfit(p, b))
		}
	}
	if state == pb.ReassignmentState_REASSIGNMENT_STATE_QUEUED {
		return state, cmp.Or(m.inQueue(), "its turn")
	}
	for _, b := range a.Target() {
		if !slices.Contains(p.ISR, b) {
			return state, fmt.Sprintf("broker %d to join the ISR", b)
		}
	}
	return state, "a broker of the target that can lead"
}

// inQueue says why no queued reassignment begins.
func (m *Machine) inQueue() string {
	most, adding := m.im.Settings.Number(cluster.MaxMoves), m.im.MovesOfAll().Adding
	switch {
	case m.im.Settings.Frozen():
		return "automation to go on: it stands still"
	case most > 0 && int(adding) >= most:
		return fmt.Sprintf("its turn: %d partitions are adding replicas, %d may at once", adding, most)
	}
	return ""
}

// deleting says which former replicas have yet to be deleted.
func (m *Machine) deleting(p *cluster.Partition) string {
	left := p.Leaving()
	if len(left) == 0 {
		return ""
	}
	return fmt.Sprintf("brokers %v to delete their former replicas", left)
}
