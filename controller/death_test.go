package controller

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

// refuseDials breaks the connection to a broker, and lets its address refuse new ones.
func (b *bench) refuseDials(id cluster.BrokerID) {
	b.t.Helper()
	b.deaf[id] = true
	b.held = func(a Action) bool { // until the test says so
		p, ok := a.(Push)
		if !ok {
			return commits(a)
		}
		_, ok = p.Action.(rpc.Redial)
		return ok
	}
	s := b.streams[id]
	b.step(Pushed{rpc.Closed{Stream: s, Err: errors.New("EOF"), Broken: "10.0.0.1:9092"}})
	b.run()
	b.step(Pushed{rpc.Refused{Stream: s}})
	b.run()
}

// A broker that refuses connections is deleted in one guarded transaction, and
// its partitions are led elsewhere.
func TestRefusingBrokerIsDeleted(t *testing.T) {
	b := newReachBench(t, 3)
	b.pass(11 * time.Second)
	victim := b.l.Image().Brokers[2]
	b.commits = nil
	b.refuseDials(2)
	if len(b.commits) != 1 {
		t.Fatalf("%d transactions, want one that deletes the key", len(b.commits))
	}
	key, claim := keys.Broker(2), b.commits[0].Claim
	for _, want := range append(claim.Guard(keys), store.CreateRevIs(key, store.Rev(victim.Epoch)), store.ModRevIs(key, victim.ModRev)) {
		if txn := b.commits[0].Txn; !slices.Contains(txn.If, want) || !slices.Contains(keysOf(txn.Then), key) {
			t.Errorf("without %+v: %+v", want, txn)
		}
	}
	b.held = nothing
	b.run()
	if b.l.Image().Brokers[2] != nil || len(b.l.Image().Brokers) != 2 {
		t.Errorf("brokers %v", b.l.Image().Brokers)
	}
	for i := range int32(3) {
		if p := b.l.Image().Partition(b.partition("a", i)); p.Leader == 2 || slices.Contains(p.ISR, 2) {
			t.Errorf("partition %d: leader %d, ISR %v", i, p.Leader, p.ISR)
		}
	}
	if got := b.l.View().Counters["brokers_proven_dead"]; got != 1 {
		t.Errorf("counted %d", got)
	}
}

func keysOf(ops []store.Op) (out []string) {
	for _, op := range ops {
		out = append(out, op.Key)
	}
	return out
}

// One that has written anything since keeps its key.
func TestChangedBrokerIsNotDeleted(t *testing.T) {
	b := newReachBench(t, 3)
	b.pass(11 * time.Second)
	b.refuseDials(2)
	record := cluster.Encode(b.l.Image().Brokers[2].Record)
	b.hand(store.PutKeepLease(keys.Broker(2), record)) // not seen yet
	b.do(commits)
	if read, err := b.m.Get(keys.Broker(2)); err != nil || len(read.KVs) != 1 {
		t.Errorf("the key is gone: %v", err)
	}
}
