package controller

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/statemachine"
	"github.com/controllerd/controllerd/store"
)

// moves is a request for other replicas that is being decided, slice by slice,
// over as many plans as it takes.
type moves struct {
	began  store.Rev
	items  []moveItem
	item   int   // that is to be looked at next
	index  int32 // of it, if it is a topic
	waited int   // plans, for that partition
	sites  []statemachine.Site
	placed map[cluster.BrokerID]int32 // replicas that the request has added
	set    bool                       // max.moves is written
	answer *pb.AlterPartitionReassignmentsResponse
	before *moves // as they were before the plan that is under way
}

// moveItem is one thing that a request asks for.
type moveItem struct {
	topic     string
	partition int32
	move      statemachine.Move
	rf        int32 // not 0: of all partitions of the topic
	cancelled cluster.PartitionID
	byID      bool // cancelled is meant
}

func (l *Loop) newMoves(r rpc.AlterPartitionReassignments) *moves {
	m := &moves{began: l.im.Rev, answer: &pb.AlterPartitionReassignmentsResponse{}, placed: map[cluster.BrokerID]int32{}, sites: statemachine.SitesOf(l.im)}
	for _, p := range r.GetPartitions() {
		mv := statemachine.Move{Target: cluster.BrokerIDs(p.GetTarget().GetReplicas()), Cancel: p.Target == nil}
		m.items = append(m.items, moveItem{topic: p.GetTopic(), partition: p.GetPartition(), move: mv})
	}
	for _, t := range r.GetTopics() {
		m.items = append(m.items, moveItem{topic: t.GetTopic(), rf: cmp.Or(t.GetReplicationFactor(), -1)})
	}
	if r.GetCancelAll() {
		for _, id := range l.machine.Moving(cluster.PartitionID{}, math.MaxInt) {
			if p := l.im.Partition(id); p.Moving() || p.Queued() {
				m.items = append(m.items, moveItem{topic: l.im.TopicByID(id.Topic).Name, partition: id.Index, move: statemachine.Move{Cancel: true}, cancelled: id, byID: true})
			}
		}
	}
	slices.SortStableFunc(m.items, func(a, b moveItem) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	return m
}

// again is a copy for the next plan, which is dropped if that fails.
func (m *moves) again() *moves {
	m.before = nil
	next := *m
	next.before = m
	next.placed = map[cluster.BrokerID]int32{}
	for id, n := range m.placed {
		next.placed[id] = n
	}
	answer := proto.CloneOf(m.answer)
	answer.Results = slices.Clip(m.answer.Results)
	next.answer = answer
	return &next
}

// reassign goes on with a request for other replicas. Without an answer it is
// gone on with by the next plan.
func (d *draft) reassign(a *asked, r rpc.AlterPartitionReassignments) bool {
	if a.moves == nil {
		a.moves = d.l.newMoves(r)
	}
	m := a.moves.again()
	if !d.setMaxMoves(a.id, r, m) {
		return false
	}
	a.moves = m
	for limit := d.l.cfg.Slice; m.item < len(m.items); limit-- {
		if limit <= 0 || d.writes >= d.limit || !d.moveNext(a.id, r, m) {
			return true
		}
	}
	d.answers[a.id] = rpc.Answer{Response: m.answer}
	return true
}

// setMaxMoves writes the setting that the request brings, with the plan that
// begins it. It waits for another write of the settings.
func (d *draft) setMaxMoves(owner int64, r rpc.AlterPartitionReassignments, m *moves) bool {
	if r.MaxMoves == nil || r.GetValidateOnly() || m.set {
		return true
	}
	set := &pb.AlterSettingsRequest{Set: map[string]string{cluster.MaxMoves: strconv.Itoa(int(r.GetMaxMoves()))}, Reason: r.GetReason()}
	record, rej := statemachine.AlterSettings(d.l.im, d.term, set)
	switch {
	case rej != nil:
		m.item = len(m.items)
		for _, it := range m.items {
			m.say(&pb.ReassignmentResult{Topic: it.topic, Partition: it.partition, Error: string(rej.Reason), Message: rej.Message})
		}
		return true
	case d.settings:
		return false
	}
	m.set = true
	if record != d.l.im.Settings.Record {
		d.settings = true
		key := d.l.im.Keys.Settings()
		d.add(&unit{
			conds:  []store.Cond{store.ModRevIs(key, d.l.im.Settings.ModRev)},
			ops:    []store.Op{store.Put(key, cluster.Encode(record))},
			owners: []int64{owner},
		})
	}
	return true
}

// moveNext decides about the next partition, or says that something else comes
// first.
func (d *draft) moveNext(owner int64, r rpc.AlterPartitionReassignments, m *moves) bool {
	it := &m.items[m.item]
	t := d.l.im.Topics[it.topic]
	result := &pb.ReassignmentResult{Topic: it.topic, Partition: it.partition}
	done := func() bool {
		m.item, m.index, m.waited = m.item+1, 0, 0
		return true
	}
	if t == nil || it.byID && t.ID != it.cancelled.Topic {
		if !it.byID {
			result.Error, result.Message = string(cluster.UnknownTopicOrPartition), "The topic does not exist."
			m.say(result)
		}
		return done()
	}
	mv := it.move
	if it.rf != 0 {
		if m.index == 0 && m.waited == 0 {
			rej, later := d.resize(owner, r, t, it.rf, m)
			if later {
				return false
			}
			if rej != nil {
				result.Error, result.Message = string(rej.Reason), rej.Message
				m.say(result)
				return done()
			}
		}
		result.Partition = m.index
	}
	id := cluster.PartitionID{Topic: t.ID, Index: result.Partition}
	if d.taken(id) || d.l.machine.Due(id) {
		if m.waited++; m.waited < maxElectionWait {
			return false
		}
		result.Error, result.Message = string(cluster.OperationNotAttempted), "another change of the partition is due, try again"
		m.say(result)
	} else {
		if p := d.l.im.Partition(id); it.rf > 0 && p != nil {
			mv.Target = statemachine.Resize(p, int(it.rf), m.sites, func(b cluster.BrokerID) int32 { return d.l.im.Load(b).Replicas + m.placed[b] })
		}
		d.moveOne(owner, r, m, id, mv, result)
	}
	m.waited = 0
	if m.index++; it.rf == 0 || m.index >= t.Made() {
		return done()
	}
	return true
}

// resize writes the replication factor into a topic's record. later says that it
// is written otherwise first.
func (d *draft) resize(owner int64, r rpc.AlterPartitionReassignments, t *cluster.Topic, rf int32, m *moves) (rej *statemachine.Rejection, later bool) {
	switch {
	case t.Deleting():
		return &statemachine.Rejection{Reason: cluster.UnknownTopicOrPartition, Message: "The topic is being deleted."}, false
	case t.Made() < t.Wanted():
		return &statemachine.Rejection{Reason: cluster.OperationNotAttempted, Message: "partitions of the topic are being made, try again"}, false
	}
	if rej := statemachine.CheckFactor(t, rf, m.sites); rej != nil {
		return rej, false
	}
	if r.GetValidateOnly() || t.Record.GetReplicationFactor() == rf {
		return nil, false
	}
	if d.recorded(t.ID) {
		return nil, true
	}
	record := proto.CloneOf(t.Record)
	record.ReplicationFactor = rf
	d.altered[t.ID] = true
	key := d.l.im.Keys.Topic(t.Name)
	d.add(&unit{
		conds:  []store.Cond{store.ModRevIs(key, t.ModRev)},
		ops:    []store.Op{store.Put(key, cluster.Encode(record))},
		owners: []int64{owner},
	})
	return nil, false
}

func (d *draft) moveOne(owner int64, r rpc.AlterPartitionReassignments, m *moves, id cluster.PartitionID, mv statemachine.Move, result *pb.ReassignmentResult) {
	w, state, rej := d.l.machine.Reassign(d.term, id, mv, d.room(r.MaxMoves))
	p := d.l.im.Partition(id)
	if rej != nil && rej.Reason == cluster.NoReassignmentInProgress && d.cancelled(p, m) {
		rej, state = nil, pb.ReassignmentState_REASSIGNMENT_STATE_CANCELLED
	}
	if rej != nil {
		result.Error, result.Message = string(rej.Reason), rej.Message
		m.say(result)
		return
	}
	if w != nil {
		w.Reason = r.GetReason()
		p = &w.New
		if !r.GetValidateOnly() && !d.put(*w, owner) {
			result.Error, result.Message = string(cluster.InvalidRequest), "no rule makes this change"
			m.say(result)
			return
		}
		if len(w.New.Adding) > 0 && len(w.Old.Adding) == 0 {
			d.adding++
		}
		for _, b := range mv.Target {
			if !slices.Contains(w.Old.Replicas, b) {
				m.placed[b]++
			}
		}
	}
	result.State, result.Target = state, wire(goal(p))
	m.say(result)
}

// cancelled reports whether the request has done its work already, by a plan of
// which another part failed.
func (d *draft) cancelled(p *cluster.Partition, m *moves) bool {
	return p.Decided >= m.began && p.ControllerEpoch == d.term.Epoch && p.Cause == pb.ChangeCause_CHANGE_CAUSE_REASSIGNMENT
}

// goal are the replicas that a partition is to have.
func goal(p *cluster.Partition) []cluster.BrokerID {
	if p.Queued() {
		return p.Target
	}
	return statemachine.AssignmentOf(p).Target()
}

func wire(ids []cluster.BrokerID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

// say counts a result, and keeps it if there is room.
func (m *moves) say(result *pb.ReassignmentResult) {
	a := m.answer
	switch result.GetState() {
	case pb.ReassignmentState_REASSIGNMENT_STATE_MOVING:
		a.Moving++
	case pb.ReassignmentState_REASSIGNMENT_STATE_QUEUED:
		a.Queued++
	case pb.ReassignmentState_REASSIGNMENT_STATE_DONE:
		a.Done++
	case pb.ReassignmentState_REASSIGNMENT_STATE_CANCELLED:
		a.Cancelled++
	default:
		a.Failed++
	}
	if len(a.Results) < maxElectionResults {
		a.Results = append(a.Results, result)
	}
}

// room reports whether this plan may let one more partition add replicas. max is
// what the request sets it to; nil: it sets nothing.
func (d *draft) room(max *int32) bool {
	most := d.l.im.Settings.Number(cluster.MaxMoves)
	if max != nil {
		most = int(*max)
	}
	return most == 0 || int(d.l.im.MovesOfAll().Adding)+d.adding < most
}

// queue is how far the active has come with what waits for its turn.
type queue struct {
	next cluster.PartitionID // that is to be looked at
	left int                 // partitions that are to be looked at
}

// lookAtQueue has the queue looked through once: something has changed that may
// let a reassignment begin.
func (l *Loop) lookAtQueue() { l.queue.left = l.machine.MovingCount() }

// moving reports whether the look at the queue can go on with no event.
func (l *Loop) moving() bool { return l.plan == nil && l.now >= l.pause && l.queueDue() }

// queueDue reports whether queued reassignments are to be looked at.
func (l *Loop) queueDue() bool {
	return l.queue.left > 0 && l.im.MovesOfAll().Queued > 0 && !l.im.Settings.Frozen()
}

// moveQueued begins queued reassignments as far as there is room. If there is
// none, those that cannot go on make room.
func (d *draft) moveQueued() {
	l := d.l
	if !l.queueDue() {
		return
	}
	ids := l.machine.Moving(l.queue.next, min(l.cfg.Slice, l.queue.left))
	if len(ids) == 0 && l.queue.next != (cluster.PartitionID{}) {
		l.queue.next = cluster.PartitionID{}
		ids = l.machine.Moving(l.queue.next, min(l.cfg.Slice, l.queue.left))
	}
	full := !d.room(nil) // at the begin: what is parked now makes room for the next plan
	for _, id := range ids {
		if d.writes >= d.limit {
			return
		}
		l.queue.left--
		l.queue.next = cluster.PartitionID{Topic: id.Topic, Index: id.Index + 1}
		if d.taken(id) {
			continue
		}
		if w := l.machine.Park(d.term, id); full && w != nil {
			w.Reason = l.im.Reason(id)
			d.put(*w, 0)
			continue
		}
		w := l.machine.Begin(d.term, id)
		if w == nil || len(w.New.Adding) > 0 && !d.room(nil) {
			continue
		}
		w.Reason = l.im.Reason(id)
		if d.put(*w, 0) && len(w.New.Adding) > 0 {
			d.adding++
		}
	}
	if len(ids) == 0 {
		l.queue.left = 0
	}
}

// noteMoves takes in what may let a queued reassignment begin.
func (l *Loop) noteMoves(events []cluster.Event) {
	if !l.active || l.queue.left == l.machine.MovingCount() {
		return
	}
	for _, ev := range events {
		switch ev := ev.(type) {
		case cluster.BrokerUp, cluster.BrokerDown, cluster.BrokerRestarted, cluster.BrokerChanged, cluster.SettingsChanged:
			l.lookAtQueue()
			return
		case cluster.PartitionChanged:
			if ev.Old != nil && (len(ev.Old.Adding) > 0 || ev.Old.Queued()) || ev.New != nil && ev.New.Queued() {
				l.lookAtQueue()
				return
			}
		}
	}
}

// clearLeft takes brokers out of partitions that they have left, once they have
// confirmed that they hold nothing of them any more, or are not there to do so.
func (d *draft) clearLeft() {
	for _, left := range d.l.pusher.Left(d.l.im, min(maxLeft, d.limit-d.writes)) {
		if d.taken(left.Partition) {
			continue
		}
		w := d.l.machine.Deleted(d.term, left.Partition, func(b cluster.BrokerID) bool { return slices.Contains(left.Brokers, b) })
		if w != nil {
			w.Reason = d.l.im.Reason(left.Partition)
			d.put(*w, 0)
		}
	}
}

// maxLeft bounds the partitions that one plan clears of brokers that have left.
const maxLeft = 4096
