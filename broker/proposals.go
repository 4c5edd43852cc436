package broker

import (
	"slices"

	"github.com/controllerd/controllerd/cluster"
)

// A request stays well below gRPC's limit of 4 MiB, and so does its answer,
// which repeats each ISR and the replicas.
const (
	maxProposals = 5000
	maxMembers   = 50_000
)

// IsrView is the ISR of a partition that this broker leads, as it may be at
// the controller by now.
type IsrView struct {
	LeaderEpoch    cluster.LeaderEpoch
	PartitionEpoch cluster.PartitionEpoch
	// Committed is the ISR that the controller has told of last.
	Committed []cluster.BrokerID
	// Maximal is Committed and, after it, every replica that a proposal of this
	// leader may have brought into the ISR, or still may.
	Maximal []cluster.BrokerID
}

// proposal is one call of ProposeISR.
type proposal struct {
	change IsrChange
	done   func(IsrResult, error)
}

// partitionProposals are those of one partition: the newest, the one that was
// sent, and what others may have left behind. One that was sent is sent until
// it is decided, because an attempt without an answer may have been obeyed.
type partitionProposals struct {
	waiting, sent *proposal
	residue       residue
}

// residue are the members of proposals that were decided, if the answer leaves
// it open that they are in the next state.
type residue struct {
	leaderEpoch    cluster.LeaderEpoch
	partitionEpoch cluster.PartitionEpoch
	members        []cluster.BrokerID
}

// proposals are the ISR changes that are not decided: at most one request is
// with a daemon, and at most one proposal of each partition waits for the next.
type proposals struct {
	running bool // somebody sends them
	closed  bool
	open    int // that are neither decided nor overtaken
	at      map[cluster.PartitionID]*partitionProposals
	order   []cluster.PartitionID // those with one that waits
	retry   []*proposal           // were sent, and are to be sent again
	answers []answer
}

// answer is a call of done that is due.
type answer struct {
	to     *proposal
	result IsrResult
	err    error
}

// add takes in a proposal. A waiting one of the same partition is overtaken.
// It reports whether somebody has to start sending.
func (ps *proposals) add(p *proposal) (start bool) {
	id := p.change.Partition
	if ps.at == nil {
		ps.at = map[cluster.PartitionID]*partitionProposals{}
	}
	pp := ps.at[id]
	if pp == nil {
		pp = &partitionProposals{}
		ps.at[id] = pp
	}
	if old := pp.waiting; old != nil {
		ps.answers = append(ps.answers, answer{to: old, result: IsrResult{Partition: id}, err: ErrOvertaken})
	} else {
		ps.order = append(ps.order, id)
		ps.open++
	}
	pp.waiting = p
	start = !ps.running
	ps.running = true
	return start
}

// take is what to do next: a batch to send, and answers to give, both perhaps
// empty. Without either, nobody sends any more.
func (ps *proposals) take() (batch []*proposal, answers []answer) {
	batch, ps.retry = ps.retry, nil
	answers, ps.answers = ps.answers, nil
	members := 0
	for _, p := range batch {
		members += len(p.change.NewISR)
	}
	ps.order = slices.DeleteFunc(ps.order, func(id cluster.PartitionID) bool {
		pp := ps.at[id]
		n := len(pp.waiting.change.NewISR)
		if pp.sent != nil || len(batch) == maxProposals || len(batch) > 0 && members+n > maxMembers {
			return false
		}
		members += n
		pp.sent, pp.waiting = pp.waiting, nil
		batch = append(batch, pp.sent)
		return true
	})
	ps.running = len(batch)+len(answers) > 0
	return batch, answers
}

// again has proposals sent once more with the next batch.
func (ps *proposals) again(batch []*proposal) { ps.retry = append(ps.retry, batch...) }

// decided takes in the result of one proposal that was sent.
func (ps *proposals) decided(p *proposal, r IsrResult, err error) {
	pp := ps.at[p.change.Partition]
	pp.sent = nil
	ps.open--
	if !dropped(r.Reason) {
		pp.residue.add(&p.change)
	}
	ps.answers = append(ps.answers, answer{to: p, result: r, err: err})
}

// forget drops what a partition does not need in the state that it is in by
// now: a newer state than that of a proposal says what became of it.
func (ps *proposals) forget(id cluster.PartitionID, s *PartitionState) {
	pp := ps.at[id]
	if pp == nil {
		return
	}
	if of := pp.residue.state(); s.Compare(&of) > 0 {
		pp.residue = residue{}
	}
	if pp.waiting == nil && pp.sent == nil && pp.residue.members == nil {
		delete(ps.at, id)
	}
}

// close answers everything with the error. What comes later is not taken in.
func (ps *proposals) close(err error) []answer {
	ps.closed, ps.running, ps.open = true, false, 0
	out, left := ps.answers, ps.retry
	for _, id := range ps.order {
		left = append(left, ps.at[id].waiting)
	}
	for _, p := range left {
		out = append(out, answer{to: p, result: IsrResult{Partition: p.change.Partition}, err: err})
	}
	ps.answers, ps.order, ps.retry, ps.at = nil, nil, nil, nil
	return out
}

// view is the ISR of a partition in the state that the broker holds.
func (ps *proposals) view(s *PartitionState) IsrView {
	v := IsrView{
		LeaderEpoch: s.LeaderEpoch, PartitionEpoch: s.PartitionEpoch,
		Committed: slices.Clone(s.ISR), Maximal: slices.Clone(s.ISR),
	}
	pp := ps.at[s.Partition]
	if pp == nil {
		return v
	}
	for _, p := range []*proposal{pp.sent, pp.waiting} {
		if p != nil && p.change.LeaderEpoch == s.LeaderEpoch && p.change.PartitionEpoch == s.PartitionEpoch {
			v.expand(p.change.members())
		}
	}
	if of := pp.residue.state(); s.Compare(&of) == 0 {
		v.expand(pp.residue.members)
	}
	return v
}

func (v *IsrView) expand(members []cluster.BrokerID) {
	for _, id := range members {
		if !slices.Contains(v.Maximal, id) {
			v.Maximal = append(v.Maximal, id)
		}
	}
}

// add remembers the members of a change, and forgets those of changes of an
// older state.
func (r *residue) add(c *IsrChange) {
	old := r.state()
	of := PartitionState{LeaderEpoch: c.LeaderEpoch, PartitionEpoch: c.PartitionEpoch}
	switch d := of.Compare(&old); {
	case r.members == nil || d > 0:
		*r = residue{leaderEpoch: c.LeaderEpoch, partitionEpoch: c.PartitionEpoch, members: c.members()}
	case d == 0:
		for _, id := range c.members() {
			if !slices.Contains(r.members, id) {
				r.members = append(r.members, id)
			}
		}
	}
}

// state has the epochs of the state that the proposals were decided from.
func (r *residue) state() PartitionState {
	return PartitionState{LeaderEpoch: r.leaderEpoch, PartitionEpoch: r.partitionEpoch}
}

func (c *IsrChange) members() []cluster.BrokerID {
	ids := make([]cluster.BrokerID, len(c.NewISR))
	for i, m := range c.NewISR {
		ids[i] = m.Broker
	}
	return ids
}

// dropped reports whether a refusal says that the state is still the one that
// the change was decided from, so that nothing of it is in the ISR. An earlier
// attempt that is still on its way cannot change that: a broker epoch that is
// gone never comes back. After any other refusal the leader does not know the
// state, and is about to be told.
func dropped(r cluster.Reason) bool {
	return r == cluster.IneligibleReplica || r == cluster.OperationNotAttempted
}

// final reports whether a result of one partition decides it. After any other
// one the change is sent again, as Kafka's leader does.
func final(r cluster.Reason) bool {
	switch r {
	case "", cluster.FencedLeaderEpoch, cluster.InvalidUpdateVersion, cluster.NewLeaderElected,
		cluster.UnknownTopicOrPartition, cluster.UnknownTopicID, cluster.InvalidRequest,
		cluster.IneligibleReplica, cluster.OperationNotAttempted:
		return true
	}
	return false
}
