package demobroker

import (
	"slices"
	"testing"
	"time"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
)

var (
	topic = cluster.TopicID{1}
	start = time.Unix(1000, 0)
)

func at(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

func state(index int32, le, pe int, isr ...cluster.BrokerID) broker.PartitionState {
	return broker.PartitionState{
		Partition:   cluster.PartitionID{Topic: topic, Index: index},
		Leader:      isr[0],
		ISR:         isr,
		Replicas:    []cluster.BrokerID{1, 2, 3},
		LeaderEpoch: cluster.LeaderEpoch(le), PartitionEpoch: cluster.PartitionEpoch(pe),
	}
}

func live(epochs ...cluster.BrokerEpoch) []broker.LiveBroker {
	var out []broker.LiveBroker
	for i, e := range epochs {
		if e != 0 {
			out = append(out, broker.LiveBroker{ID: cluster.BrokerID(i + 1), Epoch: e})
		}
	}
	return out
}

func members(c broker.IsrChange) []broker.IsrMember { return c.NewISR }

func TestFollowerCatchesUp(t *testing.T) {
	l := newLeader(1, time.Second)
	l.setLive(live(10, 20, 0))
	l.apply(state(0, 1, 1, 1))
	if got := l.due(at(0)); len(got) != 0 {
		t.Fatalf("at once: %v", got)
	}
	if got := l.due(at(999)); len(got) != 0 {
		t.Fatalf("too early: %v", got)
	}
	got := l.due(at(1000))
	want := []broker.IsrMember{{Broker: 1, Epoch: 10}, {Broker: 2, Epoch: 20}}
	if len(got) != 1 || !slices.Equal(members(got[0]), want) || got[0].LeaderEpoch != 1 || got[0].PartitionEpoch != 1 {
		t.Fatalf("after a second: %+v", got)
	}
	l.answered(got[0], broker.IsrResult{}, nil)
	if got := l.due(at(5000)); len(got) != 0 {
		t.Fatalf("asked again for what is committed: %v", got)
	}
	l.apply(state(0, 1, 2, 1, 2))
	l.setLive(live(10, 20, 30))
	l.due(at(6000))
	if got := l.due(at(7000)); len(got) != 1 || len(got[0].NewISR) != 3 || got[0].PartitionEpoch != 2 {
		t.Fatalf("the third: %+v", got)
	}
	l.apply(state(0, 1, 3, 1, 2, 3))
	if len(l.led) != 0 {
		t.Error("a full ISR is of no interest")
	}
}

func TestFollowerComesAndGoes(t *testing.T) {
	l := newLeader(1, time.Second)
	l.apply(state(0, 1, 1, 1))
	for _, step := range []struct {
		ms    int
		epoch cluster.BrokerEpoch
		due   int
	}{{0, 20, 0}, {500, 0, 0}, {800, 20, 0}, {1500, 20, 0}, {1700, 21, 0}, {2600, 21, 0}, {2700, 21, 1}} {
		l.setLive(live(10, step.epoch))
		if got := l.due(at(step.ms)); len(got) != step.due {
			t.Errorf("after %d ms: %d changes, want %d", step.ms, len(got), step.due)
		}
	}
}

func TestRefused(t *testing.T) {
	for reason, again := range map[cluster.Reason]bool{
		cluster.InvalidUpdateVersion:  false,
		cluster.FencedLeaderEpoch:     false,
		cluster.IneligibleReplica:     true,
		cluster.OperationNotAttempted: true,
	} {
		t.Run(string(reason), func(t *testing.T) {
			l := newLeader(1, time.Second)
			l.setLive(live(10, 20))
			l.apply(state(0, 1, 1, 1))
			l.due(at(0))
			c := l.due(at(1000))[0]
			l.answered(c, broker.IsrResult{Reason: reason}, nil)
			if got := l.due(at(1001)); len(got) != 0 {
				t.Error("asked again at once")
			}
			if got := l.due(at(2001)); len(got) > 0 != again {
				t.Errorf("asked again after a second: %v", got)
			}
			l.apply(state(0, 1, 2, 1))
			got := append(l.due(at(3000)), l.due(at(4000))...)
			if len(got) != 1 || got[0].PartitionEpoch != 2 {
				t.Errorf("after the next state: %v", got)
			}
			l.answered(c, broker.IsrResult{Reason: reason}, nil) // late
			if p := l.led[c.Partition]; p.settled || !p.asked {
				t.Error("a late answer about an old state was taken for one about the new")
			}
			l.answered(got[0], broker.IsrResult{}, broker.ErrOvertaken)
			if got := append(l.due(at(5000)), l.due(at(6000))...); len(got) != 1 {
				t.Errorf("after a proposal that was not decided: %v", got)
			}
		})
	}
}

// A follower that may not join keeps no other out.
func TestOneJoinsAtATime(t *testing.T) {
	l := newLeader(1, time.Second)
	l.setLive(live(10, 20, 30))
	l.apply(state(0, 1, 1, 1))
	l.due(at(0))
	joiner := func(ms int) (broker.IsrChange, cluster.BrokerID) {
		t.Helper()
		got := l.due(at(ms))
		if len(got) != 1 || len(got[0].NewISR) != 2 {
			t.Fatalf("after %d ms: %+v", ms, got)
		}
		return got[0], got[0].NewISR[1].Broker
	}
	c, first := joiner(1000)
	l.answered(c, broker.IsrResult{Reason: cluster.IneligibleReplica}, nil)
	c, second := joiner(1001)
	if first == second {
		t.Fatalf("%d is tried again, and keeps the other out", first)
	}
	l.answered(c, broker.IsrResult{Reason: cluster.IneligibleReplica}, nil)
	if got := l.due(at(1002)); len(got) != 0 {
		t.Errorf("tried again at once: %+v", got)
	}
	l.due(at(1500))
	if _, id := joiner(2002); id != first {
		t.Errorf("%d is tried again, not %d", id, first)
	}
}

func TestOnlyWhatItLeads(t *testing.T) {
	l := newLeader(1, time.Second)
	l.setLive(live(10, 20, 30))
	for i := int32(9); i >= 0; i-- {
		l.apply(state(i, 1, 1, 1))
	}
	l.apply(state(3, 2, 2, 2))
	l.due(at(0))
	got := l.due(at(1000))
	if len(got) != 9 || !slices.IsSortedFunc(got, func(a, b broker.IsrChange) int { return a.Partition.Compare(b.Partition) }) {
		t.Fatalf("due: %+v", got)
	}
	for _, c := range got {
		if c.Partition.Index == 3 {
			t.Error("asks for a partition that another broker leads")
		}
	}
	l.answered(broker.IsrChange{}, broker.IsrResult{}, nil) // of a partition that it no longer leads
}
