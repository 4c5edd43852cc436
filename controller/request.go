package controller

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/statemachine"
	"github.com/controllerd/controllerd/store"
)

// asked is a request that waits for a decision, or for its plan to settle.
type asked struct {
	id      int64
	request rpc.Request
	// deletes are, of a DeleteTopics that was looked at before, its results and
	// what its names stood for.
	deletes []*pb.DeleteTopicResult
	// creation is how far a CreateTopics has come.
	creation *creation
	// elections is how far an ElectLeaders has come.
	elections *elections
	// moves is how far an AlterPartitionReassignments has come.
	moves *moves
	// draining is how far a drain has come.
	draining *draining
	// refusal is decided already: the answer, once it is proven that the claim
	// stands.
	refusal error
}

// draft collects what one plan will write.
type draft struct {
	l        *Loop
	term     statemachine.Term
	blocks   map[cluster.BlockID]*blockDraft
	topics   map[string]bool           // names that requests are making, as metrics show them
	making   map[cluster.TopicID]bool  // topics that earlier plans have begun to make
	created  []unit                    // whole topics, or blocks of big ones
	records  []unit                    // topic records that must come after their blocks
	deleted  map[cluster.TopicID]*unit // topics that are marked or deleted
	altered  map[cluster.TopicID]bool  // topics whose record is written otherwise
	keyed    map[cluster.BrokerID]bool // brokers whose keys are written
	settings bool                      // the settings are written
	adding   int                       // partitions that begin to add replicas
	chores   []*unit                   // deleted, and what else no request has asked for, in order
	answers  map[int64]rpc.Answer
	writes   int // and what else has taken about as long as a write
	limit    int // of writes
	promised int // partitions of topics that are being made
}

type blockDraft struct {
	changes map[int32]*cluster.Partition
	reasons map[int32]string
	owners  []int64
}

// makePlan decides what to write from the image as it is: what the rules want,
// then what was asked. It reports whether there is anything to do.
func (l *Loop) makePlan(now time.Duration) bool {
	if now < l.pause || l.machine.Reviewing() && l.machine.Agenda() < maxWrites && len(l.requests) == 0 {
		return false
	}
	if l.machine.Agenda() == 0 && len(l.requests) == 0 && !l.choresDue() && !l.mayRetry() {
		l.unanswered = 0
		return false
	}
	d := &draft{
		l:       l,
		term:    statemachine.Term{Epoch: l.claim.Epoch, NowMs: l.wallMs, MemberEpoch: l.cfg.TakenOut.MemberEpoch},
		blocks:  map[cluster.BlockID]*blockDraft{},
		topics:  map[string]bool{},
		making:  map[cluster.TopicID]bool{},
		deleted: map[cluster.TopicID]*unit{},
		altered: map[cluster.TopicID]bool{},
		keyed:   map[cluster.BrokerID]bool{},
		answers: map[int64]rpc.Answer{},
	}
	d.resumeCreations()
	share := 1
	if len(l.requests) > 0 || l.asked { // who was answered by the last plan comes again
		share = askedShare
	}
	d.limit = maxWrites / share
	for _, w := range l.machine.Step(d.term, d.limit, maxBlocks/share) { // the rest stays due
		d.put(w, 0)
	}
	d.doChores()
	d.limit = d.writes + maxWrites/2
	var taken, later []asked
	for i, a := range l.requests {
		if len(taken) == maxRequests || d.writes >= d.limit {
			later = append(later, l.requests[i:]...)
			break
		}
		if d.decide(&a) {
			taken = append(taken, a)
		} else {
			later = append(later, a)
		}
	}
	l.requests, l.asked = later, len(taken) > 0
	units := d.units()
	if len(units) == 0 { // all blocks stand, only their records are missing
		units, d.records = d.records, nil
	}
	if len(units) == 0 && len(taken) == 0 && !l.mayRetry() { // nothing that was wanted is legal
		return false
	}
	l.plan = &plan{asked: taken, answers: d.answers, failed: map[int64]error{}}
	if len(units) == 0 {
		units = []unit{l.proof()}
	}
	l.plan.first = l.pack(units)
	l.plan.then = l.pack(d.records)
	if l.cfg.TakenOut.RecordLast.IsOpen() {
		l.plan.first, l.plan.then = slices.Concat(l.plan.first, l.plan.then), nil
	}
	l.plan.all = slices.Concat(l.plan.first, l.plan.then)
	return true
}

// proof is what proves that the claim stands, for answers without a write. If
// the store refused the last write it shows too whether it takes writes again:
// it puts the candidate key as it is.
func (l *Loop) proof() unit {
	if !l.mayRetry() {
		return unit{}
	}
	lease := l.candidate.Lease()
	key := l.im.Keys.Candidate(lease)
	return unit{
		conds: []store.Cond{store.ModRevIs(key, l.im.ModRev(key))},
		ops:   []store.Op{store.PutKeepLease(key, cluster.Encode(l.im.Candidates[lease].Record))},
	}
}

// mayRetry reports whether the store refused the last write, and there is a
// key to try it with.
func (l *Loop) mayRetry() bool {
	return l.refused != nil && l.im.Candidates[l.candidate.Lease()] != nil
}

// put adds the write of one partition. It reports whether the write is legal.
func (d *draft) put(w statemachine.Write, owner int64) bool {
	if err := statemachine.CheckEdge(w.Old, &w.New); err != nil {
		d.l.illegal(w.ID, err)
		return false
	}
	topic := d.l.im.TopicByID(w.ID.Topic)
	id := cluster.BlockOf(w.ID, topic.BlockSize())
	b := d.blocks[id]
	if b == nil {
		b = &blockDraft{changes: map[int32]*cluster.Partition{}, reasons: map[int32]string{}}
		d.blocks[id] = b
	}
	p := w.New
	b.changes[w.ID.Index] = &p
	if w.Reason != "" {
		b.reasons[w.ID.Index] = w.Reason
	}
	if owner != 0 {
		b.owners = append(b.owners, owner)
	}
	d.writes++
	return true
}

// illegal notes a write that no rule may make: a bug, or a record written by
// hand that has no room to rise. Nothing is written.
func (l *Loop) illegal(id cluster.PartitionID, err error) {
	if l.cfg.Strict {
		panic(fmt.Sprintf("illegal write of partition %s: %v", id, err))
	}
	l.Stats.Illegal++
	l.stuck = fmt.Sprintf("partition %s: %v", id, err)
}

// taken reports whether this plan writes the partition already: it is decided
// again when that has settled.
func (d *draft) taken(id cluster.PartitionID) bool {
	topic := d.l.im.TopicByID(id.Topic)
	if topic == nil {
		return false
	}
	b := d.blocks[cluster.BlockOf(id, topic.BlockSize())]
	return b != nil && b.changes[id.Index] != nil
}

// units are the transactions' parts, in order of key.
func (d *draft) units() []unit {
	var units []unit
	order := slices.SortedFunc(maps.Keys(d.blocks), func(a, b cluster.BlockID) int {
		return cmp.Or(slices.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Index, b.Index))
	})
	for _, id := range order {
		key := d.l.im.Keys.Block(id)
		u := unit{
			ops:    []store.Op{store.Put(key, d.l.im.Block(id).With(d.blocks[id].changes, d.blocks[id].reasons).Encode())},
			owners: d.blocks[id].owners,
		}
		if !d.l.cfg.TakenOut.BlockGuard.IsOpen() {
			u.conds = []store.Cond{store.ModRevIs(key, d.l.im.ModRev(key))}
		}
		units = append(units, u)
	}
	for _, u := range d.chores {
		units = append(units, *u)
	}
	return append(units, d.created...)
}

// decide decides one request, or says that it has to wait for the next plan.
// One that is taken without an answer is decided again after the plan.
func (d *draft) decide(a *asked) bool {
	if a.refusal != nil {
		d.answers[a.id] = rpc.Answer{Err: a.refusal}
		return true
	}
	switch r := a.request.(type) {
	case rpc.Alter:
		return d.alter(a.id, r)
	case rpc.CreateTopics:
		return d.createTopics(a, r)
	case rpc.DeleteTopics:
		d.deleteTopics(a, r)
	case rpc.ElectLeaders:
		return d.electLeaders(a, r)
	case rpc.AlterSettings:
		return d.alterSettings(a.id, r)
	case rpc.CreatePartitions:
		return d.createPartitions(a.id, r)
	case rpc.AlterPartitionReassignments:
		return d.reassign(a, r)
	case rpc.ControlledShutdown:
		return d.controlledShutdown(a, r)
	case rpc.DrainBroker:
		return d.drainBroker(a, r)
	case rpc.AlterTopics:
		return d.alterTopics(a.id, r)
	}
	return true
}

// alter decides an AlterPartition.
func (d *draft) alter(owner int64, r rpc.Alter) bool {
	im := d.l.im
	sender, epoch := cluster.BrokerID(r.GetBrokerId()), cluster.BrokerEpoch(r.GetBrokerEpoch())
	if rej := statemachine.CheckSender(im, sender, epoch); rej != nil {
		d.answers[owner] = rpc.Answer{Err: rpc.Error(rej.Reason, nil, "%s", rej.Message)}
		return true
	}
	for _, t := range r.GetTopics() {
		id, err := cluster.TopicIDFrom(t.GetTopicId())
		for _, e := range t.GetPartitions() {
			if err == nil && d.taken(cluster.PartitionID{Topic: id, Index: e.GetPartition()}) {
				return false
			}
		}
	}
	resp := &pb.AlterPartitionResponse{}
	for _, t := range r.GetTopics() {
		result := &pb.AlterPartitionTopicResult{TopicId: t.GetTopicId()}
		for _, e := range t.GetPartitions() {
			result.Partitions = append(result.Partitions, d.alterOne(owner, sender, epoch, t.GetTopicId(), e))
		}
		resp.Topics = append(resp.Topics, result)
	}
	d.answers[owner] = rpc.Answer{Response: resp}
	return true
}

func (d *draft) alterOne(owner int64, sender cluster.BrokerID, epoch cluster.BrokerEpoch, topic []byte, e *pb.AlterPartitionEntry) *pb.AlterPartitionResult {
	out := &pb.AlterPartitionResult{Partition: e.GetPartition()}
	tid, err := cluster.TopicIDFrom(topic)
	if err != nil {
		out.Error, out.Message = string(cluster.UnknownTopicID), err.Error()
		return out
	}
	id := cluster.PartitionID{Topic: tid, Index: e.GetPartition()}
	if d.taken(id) {
		out.Error, out.Message = string(cluster.InvalidRequest), "the request names the partition twice"
		return out
	}
	w, rej := d.l.machine.Alter(d.term, sender, epoch, id, e)
	switch {
	case rej != nil:
		out.Error, out.Message = string(rej.Reason), rej.Message
	case w == nil:
		out.State = d.l.im.Partition(id).Record(id.Index)
	case !d.put(*w, owner):
		out.Error, out.Message = string(cluster.InvalidRequest), "no rule makes this change"
	default:
		out.State = w.New.Record(id.Index)
	}
	return out
}

// refusedError is what a caller hears when the store takes no writes.
func refusedError(err error) error {
	switch {
	case errors.Is(err, store.ErrNoSpace): // which is known to apply one that crosses the quota
		return rpc.ErrorWithCode(codes.ResourceExhausted, cluster.ThrottlingQuotaExceeded, "etcd takes no writes, look before you try again: %s", rpc.Words(err))
	case errors.Is(err, store.ErrBusy):
		return rpc.ErrorWithCode(codes.ResourceExhausted, cluster.ThrottlingQuotaExceeded, "etcd takes no writes for now, nothing was changed: %s", rpc.Words(err))
	}
	return rpc.ErrorWithCode(codes.Internal, "", "etcd refused the write: %s", rpc.Words(err))
}
