package broker

import (
	"errors"
	"slices"
	"testing"

	"github.com/controllerd/controllerd/cluster"
)

// propose adds a proposal of a partition at leader epoch 1, partition epoch pe.
func (ps *proposals) proposeOne(index int32, pe cluster.PartitionEpoch, members ...cluster.BrokerID) *proposal {
	c := IsrChange{Partition: pid(index), LeaderEpoch: 1, PartitionEpoch: pe}
	for _, id := range members {
		c.NewISR = append(c.NewISR, IsrMember{Broker: id})
	}
	p := &proposal{change: c}
	ps.add(p)
	return p
}

func stateAt(le cluster.LeaderEpoch, pe cluster.PartitionEpoch, isr ...cluster.BrokerID) *PartitionState {
	return &PartitionState{Partition: pid(0), Leader: 1, LeaderEpoch: le, PartitionEpoch: pe, ISR: isr}
}

func ids(of ...cluster.BrokerID) []cluster.BrokerID { return of }

// TestMaximalISR is Kafka's rule for the high watermark, step by step.
func TestMaximalISR(t *testing.T) {
	ps := &proposals{}
	s := stateAt(1, 1, 1, 3)
	check := func(what string, s *PartitionState, want ...cluster.BrokerID) {
		t.Helper()
		if v := ps.view(s); !slices.Equal(v.Maximal, want) || !slices.Equal(v.Committed, s.ISR) || v.PartitionEpoch != s.PartitionEpoch || v.LeaderEpoch != s.LeaderEpoch {
			t.Errorf("%s: %+v, want maximal %v", what, v, want)
		}
	}
	check("nothing proposed", s, 1, 3)
	ps.proposeOne(0, 1, 1)
	check("a shrink counts when it is committed", s, 1, 3)
	ps.proposeOne(0, 1, 1, 2, 3)
	check("an expansion counts at once", s, 1, 3, 2)
	check("not in a newer state", stateAt(1, 2, 1), 1)
	check("nor in a newer leader epoch", stateAt(2, 1, 1), 1)
	batch, _ := ps.take()
	check("also while it is sent", s, 1, 3, 2)
	ps.proposeOne(0, 1, 1, 4)
	check("with the next one that waits", s, 1, 3, 2, 4)
	ps.again(batch)
	check("and after an attempt without an answer", s, 1, 3, 2, 4)
	batch, _ = ps.take()
	ps.decided(batch[0], IsrResult{Reason: cluster.IneligibleReplica}, nil)
	check("not when it was refused for the state as it is", s, 1, 3, 4)
	batch, _ = ps.take()
	ps.decided(batch[0], IsrResult{Reason: cluster.InvalidUpdateVersion}, nil)
	check("but when the refusal leaves the state open", s, 1, 3, 4)
	ps.proposeOne(0, 1, 1, 5)
	batch, _ = ps.take()
	ps.decided(batch[0], IsrResult{}, errors.New("refused as a whole"))
	check("of several proposals", s, 1, 3, 4, 5)
	ps.proposeOne(0, 2, 1, 6)
	batch, _ = ps.take()
	ps.decided(batch[0], IsrResult{}, nil)
	check("and when it is committed, until the state is here", stateAt(1, 2, 1), 1, 6)
	ps.forget(pid(0), stateAt(1, 2, 1))
	check("which is not here yet", stateAt(1, 2, 1), 1, 6)
	ps.forget(pid(0), stateAt(1, 3, 1, 6))
	if len(ps.at) != 0 {
		t.Errorf("kept %v", ps.at)
	}
	ps.forget(pid(0), s) // of a partition without any
}

func TestProposalsInLine(t *testing.T) {
	ps := &proposals{}
	a := ps.proposeOne(0, 1, 1, 2)
	b := ps.proposeOne(1, 1, 1, 2)
	a2 := ps.proposeOne(0, 1, 1, 2, 3)
	batch, answers := ps.take()
	if !slices.Equal(batch, []*proposal{a2, b}) {
		t.Fatalf("first batch %v", batch)
	}
	if len(answers) != 1 || answers[0].to != a || !errors.Is(answers[0].err, ErrOvertaken) || answers[0].result.Partition != pid(0) {
		t.Errorf("answers %+v", answers)
	}
	a3, c := ps.proposeOne(0, 1, 1), ps.proposeOne(2, 1, 1)
	ps.again(batch)
	if batch, _ = ps.take(); !slices.Equal(batch, []*proposal{a2, b, c}) {
		t.Errorf("the same is sent again, with what is new elsewhere: %v", batch)
	}
	ps.decided(a2, IsrResult{}, nil)
	ps.decided(c, IsrResult{}, nil)
	ps.again([]*proposal{b})
	batch, answers = ps.take()
	if !slices.Equal(batch, []*proposal{b, a3}) || len(answers) != 2 || answers[0].to != a2 || answers[0].err != nil {
		t.Errorf("batch %v, answers %v", batch, answers)
	}
	ps.decided(b, IsrResult{}, nil)
	ps.again([]*proposal{a3})
	d := ps.proposeOne(3, 1, 1)
	left := ps.close(ErrClosed)
	if len(left) != 3 || left[0].to != b || left[0].err != nil || left[1].to != a3 || left[1].err != ErrClosed || left[2].to != d || !ps.closed {
		t.Errorf("left %+v", left)
	}
}

func TestProposalsFitARequest(t *testing.T) {
	ps := &proposals{}
	for i := range int32(maxProposals + 1) {
		ps.proposeOne(i, 1, 1)
	}
	if batch, _ := ps.take(); len(batch) != maxProposals {
		t.Errorf("%d proposals in a batch", len(batch))
	}
	if batch, _ := ps.take(); len(batch) != 1 {
		t.Errorf("%d in the next one", len(batch))
	}
	ps = &proposals{}
	many := make([]cluster.BrokerID, maxMembers)
	ps.proposeOne(0, 1, many...) // by itself more than enough
	ps.proposeOne(1, 1, 1)
	if batch, _ := ps.take(); len(batch) != 1 {
		t.Errorf("%d proposals in a batch of a big one", len(batch))
	}
	if batch, answers := ps.take(); len(batch) != 1 || len(answers) != 0 || !ps.running {
		t.Errorf("then %d", len(batch))
	}
	if batch, answers := ps.take(); len(batch)+len(answers) != 0 || ps.running {
		t.Error("still running")
	}
}
