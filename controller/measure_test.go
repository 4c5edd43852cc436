package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/epoch"
	"github.com/controllerd/controllerd/internal/durations"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

// phases are those of take-overs that were measured, how often and for how long
// in all.
func (b *bench) phases() (out string) {
	for i, name := range TakeoverPhases {
		if h := &b.l.Stats.Takeover[i]; h.Count() > 0 {
			out += fmt.Sprintf("%s %d %v ", name, h.Count(), h.Sum)
		}
	}
	return out
}

func (b *bench) wantsPhases(want string) {
	b.t.Helper()
	if got := b.phases(); got != want {
		b.t.Fatalf("measured %q, want %q", got, want)
	}
}

func sends(a Action) bool {
	p, ok := a.(Push)
	_, send := p.Action.(rpc.Send)
	return ok && send
}

func dials(a Action) bool {
	p, ok := a.(Push)
	_, dial := p.Action.(rpc.Dial)
	return ok && dial
}

// A take-over goes through its phases one after the other, each as long as it
// takes, and another term through all of them again.
func TestTakeoverPhases(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 6, 1)
	b.wantsPhases("elect 1 0s decide 1 0s commit 1 0s push 1 0s ack 1 0s ")
	b.l.Stats.Takeover = [takeoverPhases]durations.Histogram{}
	b.listening(4)
	b.run()

	const ms = time.Millisecond
	waits := func(d time.Duration, held ...func(Action) bool) {
		t.Helper()
		b.now += d
		b.held = func(a Action) bool {
			for _, h := range held {
				if h(a) {
					return true
				}
			}
			return false
		}
		b.run()
	}
	b.hand(store.Delete(keys.Controller()), store.Delete(keys.Broker(3)))
	claims := func(a Action) bool {
		e, ok := a.(Elect)
		c, commit := e.Action.(election.Commit)
		return ok && commit && c.Purpose == election.Claim
	}
	waits(0, claims)
	b.wantsPhases("")
	waits(20*ms, commits, dials)
	b.wantsPhases("elect 1 20ms decide 1 0s ")
	waits(30*ms, dials)
	b.wantsPhases("elect 1 20ms decide 1 0s commit 1 30ms ")
	waits(40*ms, sends)
	b.wantsPhases("elect 1 20ms decide 1 0s commit 1 30ms push 1 40ms ")
	waits(50*ms, nothing)
	b.wantsPhases("elect 1 20ms decide 1 0s commit 1 30ms push 1 40ms ack 1 50ms ")
	if h := b.l.Stats.ElectionTime; h.Count() != 1 || h.Sum != 30*ms {
		t.Errorf("%d elections of %v in all", h.Count(), h.Sum)
	}

	b.hand(store.Delete(keys.Controller()))
	b.run()
	b.wantsPhases("elect 2 20ms decide 2 0s commit 2 30ms push 2 40ms ack 2 50ms ")
	if got := b.l.Stats.Ended; got != [endCauses]int64{1: 2} {
		t.Errorf("ends of terms: %v", got)
	}
}

// What the active one decides is counted when it is seen, and only by the one
// who has decided it.
func TestChangesAreCounted(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 6, 1)
	standby := newIdleBench(t, "c2")
	standby.m = b.m
	standby.run()
	led := int64(0)
	for i := range int32(6) {
		if b.l.Image().Partition(b.partition("a", i)).Leader == 3 {
			led++
		}
	}
	counted := func(when string, elections, shrinks, expands int64) {
		t.Helper()
		m := b.l.Stats.Measured
		if m.LeaderElections != elections || m.IsrShrinks != shrinks || m.IsrExpands != expands {
			t.Errorf("%s: %d elections, %d shrinks, %d expands", when, m.LeaderElections, m.IsrShrinks, m.IsrExpands)
		}
	}
	counted("new topics", 0, 0, 0)
	b.hand(store.Delete(keys.Broker(3)))
	b.run()
	counted("broker 3 is gone", led, 6, 0)
	b.broker(3)
	b.run()
	counted("it is back", led, 6, 0)
	p := b.l.Image().Partition(b.partition("a", 0))
	joins := b.ask(b.alter("a", 0, p, p.Replicas))[0]
	b.run()
	if got := b.alterResult(joins); !strings.HasPrefix(got, "ok ") {
		t.Fatal(got)
	}
	counted("it is in an ISR", led, 6, 1)
	b.edit("a", 1, func(p *cluster.Partition) { p.ControllerEpoch, p.ISR = 0, p.ISR[:1] })
	b.run()
	counted("a record written by hand", led, 6, 1)
	standby.run()
	if m := standby.l.Stats.Measured; m.LeaderElections+m.IsrShrinks+m.IsrExpands != 0 || led == 0 {
		t.Errorf("broker 3 led %d; a standby counts %+v", led, m)
	}
}

func TestEndCauses(t *testing.T) {
	for want, err := range map[string]error{
		"resigned": election.ErrResigned, "claim_lost": epoch.ErrClaimLost, "lease_lost": election.ErrLeaseLost,
		"outbid": election.ErrOutbid, "cluster_key": election.ErrCluster, "other": errors.New("else"),
	} {
		if got := EndCauses[endOf(fmt.Errorf("end: %w", err), epoch.End{})]; got != want {
			t.Errorf("%v counts as %s", err, got)
		}
	}
	if got := EndCauses[endOf(election.ErrResigned, epoch.End{Cause: pb.EndCause_END_CAUSE_CUT_OFF})]; got != "cut_off" {
		t.Errorf("a term that was cut off counts as %s", got)
	}
}

// A snapshot tells of the cluster and of brokers on the active one.
func TestSnapshot(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 6, 1)
	b.listening(4)
	b.run()
	b.hand(store.Put("/controllerd/test/brokers/6", []byte("x")), store.Delete(keys.Broker(3)))
	b.held = commits
	b.run()
	s := b.l.Snapshot()
	if s.Claim != 1 || s.Epoch != 1 || s.Revision != b.l.Image().Rev || len(s.Unfit) > 0 || s.Blind || s.Refused {
		t.Errorf("%+v", s)
	}
	if s.Topics != 1 || s.Partitions.Partitions != 6 || s.Agenda != 6 || s.SkippedKeys != 1 || s.Candidates != 1 || s.Running != 3 {
		t.Errorf("%d topics, %+v, agenda %d, %d keys skipped, %d candidates, %d brokers", s.Topics, s.Partitions, s.Agenda, s.SkippedKeys, s.Candidates, s.Running)
	}
	if want := []rpc.Backlog{{Broker: 4, Connected: true}}; !slices.Equal(s.Backlogs, want) { // the others have no control address
		t.Errorf("backlogs %+v, want %+v", s.Backlogs, want)
	}
	b.hand(store.Delete(keys.Cluster()))
	b.held = nothing
	b.run()
	if s := b.l.Snapshot(); s.Claim != 0 || s.Agenda != 0 || s.Running != 0 || s.Backlogs != nil || len(s.Unfit) != 1 {
		t.Errorf("deposed: %+v", s)
	}
}

// An election of a leader that is not in the ISR counts as such.
func TestUncleanElectionsAreCounted(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 2, 1)
	last := b.l.Image().Partition(b.partition("a", 0)).Leader
	b.edit("a", 0, func(p *cluster.Partition) { p.ISR, p.PartitionEpoch = []cluster.BrokerID{last}, p.PartitionEpoch+1 })
	b.hand(store.Delete(keys.Broker(last)))
	b.run()
	before := b.l.Stats.Measured
	if leader := b.l.Image().Partition(b.partition("a", 0)).Leader; leader != cluster.NoLeader || before.UncleanElections != 0 {
		t.Fatalf("leader %d, %d unclean elections", leader, before.UncleanElections)
	}
	b.ask(elect(pb.ElectionType_ELECTION_TYPE_UNCLEAN))
	b.run()
	if m := b.l.Stats.Measured; m.UncleanElections != 1 || m.LeaderElections != before.LeaderElections+1 {
		t.Errorf("%d elections, %d of them unclean, were %d", m.LeaderElections, m.UncleanElections, before.LeaderElections)
	}
}

// A snapshot of many partitions is no more work than one of few.
func TestSnapshotOfMany(t *testing.T) {
	var allocs [2]float64
	for i, partitions := range []int32{30, 3000} {
		b := newBench(t, 3)
		b.created("a", partitions, 16)
		b.listening(4)
		b.run()
		allocs[i] = testing.AllocsPerRun(10, func() { b.l.Snapshot() })
	}
	if allocs[0] != allocs[1] {
		t.Errorf("%v allocations for 30 partitions, %v for 3000", allocs[0], allocs[1])
	}
}
