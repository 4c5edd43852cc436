package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

// newReachBench is a loop that has won the first term of a cluster with brokers
// 1 to n, each on a lease and with a control listener, and of a topic that has
// a replica on each.
func newReachBench(t *testing.T, n int) *bench {
	t.Helper()
	b := newIdleBench(t, "c1")
	b.l.pusher.DeathProbe = true
	b.run()
	for id := range n {
		lease, err := b.m.Grant(b.now, 10*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		record := &pb.BrokerRecord{NodeUuid: "n", Nonce: "x", ControlAddress: fmt.Sprintf("b%d:1", id+1), DeathProbe: true}
		b.hand(store.PutLeased(keys.Broker(cluster.BrokerID(id+1)), cluster.Encode(record), lease.ID))
	}
	b.run()
	topic := newTopic("a", int32(n), 16)
	topic.ReplicationFactor = int32(n)
	id := b.ask(create("", topic))[0]
	b.run()
	if got := b.topicResult(id); !strings.HasPrefix(got, "ok") {
		t.Fatal(got)
	}
	return b
}

// rival makes it look as if another daemon would take the seat. It never does.
func (b *bench) rival() {
	b.t.Helper()
	b.hand(store.Put(keys.Candidate(77), cluster.Encode(&pb.CandidateRecord{Id: "c2", Nonce: "c2-nonce"})))
	b.run()
}

// deafen breaks the streams of brokers, and refuses them from now on.
func (b *bench) deafen(ids ...cluster.BrokerID) {
	b.t.Helper()
	for _, id := range ids {
		b.deaf[id] = true
		b.step(Pushed{rpc.Closed{Stream: b.streams[id], Err: errors.New("broken")}})
	}
	b.run()
}

// unreachable are the brokers that are marked.
func (b *bench) unreachable() []cluster.BrokerID {
	var out []cluster.BrokerID
	for _, x := range b.l.Image().SortedBrokers() {
		if x.Unreachable() {
			out = append(out, x.ID)
		}
	}
	return out
}

func (b *bench) wantsUnreachable(ids ...cluster.BrokerID) {
	b.t.Helper()
	if got := b.unreachable(); !slices.Equal(got, ids) {
		b.t.Fatalf("marked %v, want %v", got, ids)
	}
}

// ends are the causes of the terms so far that have ended.
func (b *bench) ends() []pb.EndCause {
	var out []pb.EndCause
	for e := cluster.Epoch(1); e <= b.l.Image().MaxEpoch(); e++ {
		if cause := b.l.Image().Terms[e].Record.GetEndCause(); cause != 0 {
			out = append(out, cause)
		}
	}
	return out
}

// A broker that answers on no stream for long is marked in its key, which stays
// on its lease; its partitions are led elsewhere. When it answers again the
// mark is taken back.
func TestUnreachable(t *testing.T) {
	b := newReachBench(t, 3)
	before := b.l.Image().Brokers[2]
	b.deafen(2)
	b.pass(rpc.UnreachableAfter - 5*time.Second)
	b.wantsUnreachable()
	b.pass(10 * time.Second)
	b.wantsUnreachable(2)
	after := b.l.Image().Brokers[2]
	if after.Epoch != before.Epoch || after.Lease != before.Lease || after.Record.GetControlAddress() != "b2:1" {
		t.Errorf("marked as %+v, was %+v", after, before)
	}
	for i := range int32(3) {
		p := b.l.Image().Partition(b.partition("a", i))
		if p.Leader == 2 || slices.Contains(p.ISR, 2) || len(p.ISR) != 2 || p.Cause != pb.ChangeCause_CHANGE_CAUSE_BROKER_UNREACHABLE {
			t.Errorf("partition %d: leader %d, ISR %v, cause %v", i, p.Leader, p.ISR, p.Cause)
		}
	}
	problems := b.l.View().Problems()
	if !slices.ContainsFunc(problems, func(p string) bool { return strings.HasPrefix(p, "broker 2 is unreachable") }) || b.l.Stats.Unreachable != 1 {
		t.Errorf("problems %q, stats %+v", problems, b.l.Stats)
	}
	b.commits = nil
	b.pass(time.Minute)
	if len(b.commits) != 0 {
		t.Errorf("it writes %v", b.commits)
	}
	b.deaf[2] = false
	b.pass(5 * time.Second)
	b.wantsUnreachable()
	if got := b.l.Image().Brokers[2]; got.Lease != before.Lease || len(b.ends()) != 0 {
		t.Errorf("found again as %+v, terms ended by %v", got, b.ends())
	}
}

// A mark is not written over what somebody else has written meanwhile.
func TestMarkIsGuarded(t *testing.T) {
	b := newReachBench(t, 3)
	b.held = commits
	b.deafen(2)
	b.pass(rpc.UnreachableAfter + 2*time.Second)
	b.hand(store.PutKeepLease(keys.Broker(2), cluster.Encode(&pb.BrokerRecord{NodeUuid: "n", Nonce: "x", ControlAddress: "new:1"})))
	b.do(commits)
	if got := b.l.Stats.GuardFailed; got != 1 {
		t.Fatalf("%d guards failed", got)
	}
	b.held = nothing
	b.run()
	b.pass(5 * time.Second)
	b.wantsUnreachable(2)
	if got := b.l.Image().Brokers[2].Record.GetControlAddress(); got != "new:1" {
		t.Errorf("address %s", got)
	}
}

// More than half do not answer: nobody is marked, the term is given up, which
// the history shows. Whoever follows does not do so again for a while: it marks
// them.
func TestCutOff(t *testing.T) {
	b := newReachBench(t, 5)
	b.rival()
	b.deafen(1, 2, 3)
	b.held = func(a Action) bool { c, ok := a.(Commit); return ok && len(c.Txn.Then) > 0 } // a mark would be seen
	b.pass(rpc.UnreachableAfter + 2*time.Second)
	if got := b.ends(); !slices.Equal(got, []pb.EndCause{pb.EndCause_END_CAUSE_CUT_OFF}) || b.count(commits) != 0 {
		t.Fatalf("terms ended by %v, writes %d", got, b.count(commits))
	}
	if got := b.l.Image().Terms[1].Record.GetEndReason(); got != "3 of 5 live brokers have answered on no stream of commands for 30s" {
		t.Errorf("reason %q", got)
	}
	b.held = nothing
	b.wantsUnreachable()
	b.pass(10 * time.Second) // nobody else takes the seat
	if claim, ok := b.l.Active(); !ok || claim.Epoch != 2 {
		t.Fatalf("active %v under %+v", ok, claim)
	}
	b.pass(rpc.UnreachableAfter + 5*time.Second)
	b.wantsUnreachable(1, 2, 3)
	b.pass(4 * time.Minute)
	if got := b.ends(); len(got) != 1 {
		t.Fatalf("terms ended by %v", got)
	}
	b.pass(2 * time.Minute)
	if got := b.ends(); len(got) != 2 || b.l.Stats.CutOff != 2 {
		t.Errorf("five minutes later: terms ended by %v", got)
	}
}

// What another daemon did keeps this one from doing the same, also if it has
// only read of it.
func TestCutOffByAnother(t *testing.T) {
	b := newReachBench(t, 3)
	b.rival()
	cause := &pb.TermRecord{Epoch: 1, EndCause: pb.EndCause_END_CAUSE_CUT_OFF}
	b.hand(store.Put(keys.Term(1), cluster.Encode(cause)), store.Delete(keys.Controller()))
	b.pass(10 * time.Second)
	b.deafen(1, 2)
	b.pass(rpc.UnreachableAfter + 2*time.Second)
	b.wantsUnreachable(1, 2)
	if got := b.ends(); len(got) != 1 {
		t.Errorf("terms ended by %v", got)
	}
}

// To give up the seat does not help if nobody would take it.
func TestCutOffWithoutAnother(t *testing.T) {
	b := newReachBench(t, 3)
	b.deafen(1, 2)
	b.pass(rpc.UnreachableAfter + 2*time.Second)
	b.wantsUnreachable(1, 2)
	if got := b.ends(); len(got) != 0 {
		t.Errorf("terms ended by %v", got)
	}
}

// While more than half do not answer, but not for long yet, it may be that the
// fault is the daemon's own: nobody is marked.
func TestMarksWait(t *testing.T) {
	b := newReachBench(t, 5)
	b.rival()
	b.deafen(1)
	b.pass(rpc.UnreachableAfter - 5*time.Second)
	b.deafen(2, 3)
	b.pass(10 * time.Second)
	b.wantsUnreachable()
	b.deaf[3] = false
	b.pass(5 * time.Second)
	b.wantsUnreachable(1)
	if got := b.ends(); len(got) != 0 {
		t.Errorf("terms ended by %v", got)
	}
}

// Somebody else answers at a broker's address, because the watch has missed
// that it moved: its registration is read, and the right one is dialed.
func TestStrangerAtTheAddress(t *testing.T) {
	b := newReachBench(t, 1)
	b.blind = true
	b.hand(store.PutKeepLease(keys.Broker(1), cluster.Encode(&pb.BrokerRecord{NodeUuid: "n", Nonce: "x", ControlAddress: "new:1"})))
	b.miss()
	b.held = func(a Action) bool { p, ok := a.(Push); _, dial := p.Action.(rpc.Dial); return ok && dial }
	b.deafen(1)
	b.pass(rpc.MinRetry)
	b.step()
	stream := b.next(b.held).(Push).Action.(rpc.Dial).Stream
	b.step(Pushed{rpc.Opened{Stream: stream, Hello: &pb.Hello{BrokerId: 2}}})
	if n := b.count(fetches); n != 1 {
		t.Fatalf("%d reads", n)
	}
	b.run()
	b.miss()
	if got := b.l.Image().Brokers[1].Record.GetControlAddress(); got != "new:1" || b.l.Stats.Healed != 1 {
		t.Errorf("address %s, %d healed", got, b.l.Stats.Healed)
	}
	b.pass(rpc.MinRetry)
	b.step()
	if got := b.next(b.held).(Push).Action.(rpc.Dial).Address; got != "new:1" {
		t.Errorf("dials %s", got)
	}
}
