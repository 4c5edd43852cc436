package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

// set changes settings, by name and value.
func (b *bench) set(pairs ...string) {
	b.t.Helper()
	r := &pb.AlterSettingsRequest{Set: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		r.Set[pairs[i]] = pairs[i+1]
	}
	b.alterSettings(r)
}

func (b *bench) freeze(on bool) {
	b.t.Helper()
	b.alterSettings(&pb.AlterSettingsRequest{Freeze: &on, Reason: "test"})
}

func (b *bench) alterSettings(r *pb.AlterSettingsRequest) {
	b.t.Helper()
	id := b.ask(rpc.AlterSettings{AlterSettingsRequest: r})[0]
	b.run()
	if a := b.answerOf(id); a.Err != nil {
		b.t.Fatal(a.Err)
	}
}

// imbalance is how many partitions are not led by their first replica.
func (b *bench) imbalance() int32 { return b.l.im.HealthOfAll().NotPreferred }

// Leaders are looked at 5 s after the begin of a term, then 300 s after each
// run, and moved if more than 10 % of a broker's are elsewhere; all of this can be
// set, and is not done while automation stands still.
func TestBalance(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 60, 1)
	wants := func(what string, n int32) {
		t.Helper()
		if got := b.imbalance(); got != n {
			t.Fatalf("%s: %d partitions are not led by their first replica, want %d", what, got, n)
		}
	}
	b.second("a", 0)
	b.pass(4 * time.Second)
	wants("before the first run", 60)
	b.pass(2 * time.Second)
	wants("after it", 0)
	p := b.l.im.Partition(b.partition("a", 0))
	if p.Cause != pb.ChangeCause_CHANGE_CAUSE_PREFERRED_ELECTION || b.l.Stats.Balances != 1 || b.l.Stats.Balanced != 60 {
		t.Errorf("cause %v, %d runs, %d partitions", p.Cause, b.l.Stats.Balances, b.l.Stats.Balanced)
	}
	b.second("a", 0)
	b.pass(297 * time.Second)
	wants("within the interval", 60)
	b.pass(10 * time.Second)
	wants("after the interval", 0)

	b.second("a", 0)
	b.set(cluster.ImbalanceInterval, "20")
	b.pass(25 * time.Second)
	wants("with a shorter interval", 0)

	b.second("a", 0)
	b.freeze(true)
	b.pass(60 * time.Second)
	wants("while automation stands still", 60)
	b.freeze(false)
	b.pass(time.Second)
	wants("when it goes on", 0)

	b.second("a", 0)
	b.set(cluster.AutoRebalance, "false")
	b.pass(60 * time.Second)
	wants("switched off", 60)
	b.set(cluster.AutoRebalance, "true")
	b.pass(25 * time.Second)
	wants("switched on", 0)
}

// Strictly more than so many percent of a broker's leaderships.
func TestBalanceThreshold(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 60, 1)
	var mine []int32
	for i := range int32(60) {
		if b.l.im.Partition(b.partition("a", i)).Replicas[0] == 1 {
			mine = append(mine, i)
		}
	}
	if len(mine) != 20 {
		t.Fatalf("broker 1 has the first replica of %d partitions", len(mine))
	}
	away := func(n int) {
		for _, i := range mine[:n] {
			b.edit("a", i, func(p *cluster.Partition) {
				p.Leader = p.Replicas[1]
				p.LeaderEpoch++
				p.PartitionEpoch++
			})
		}
		b.run()
	}
	b.pass(6 * time.Second)
	away(2)
	b.pass(301 * time.Second)
	if got := b.imbalance(); got != 2 || b.l.Stats.Balances != 0 {
		t.Errorf("at 10 %%: %d, %d runs", got, b.l.Stats.Balances)
	}
	b.set(cluster.ImbalancePercentage, "9")
	b.pass(301 * time.Second)
	if got := b.imbalance(); got != 0 || b.l.Stats.Balances != 1 {
		t.Errorf("above: %d, %d runs", got, b.l.Stats.Balances)
	}
}

// A first replica that is away, is shutting down or is outside the ISR is left as
// it is, and so is a topic that is to be deleted.
func TestBalanceSkips(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 30, 1)
	b.second("a", 0)
	b.edit("a", 0, func(p *cluster.Partition) { p.ISR = p.ISR[1:] })
	out := b.partition("a", 0)
	gone := b.l.im.Partition(b.partition("a", 1)).Replicas[0]
	b.hand(store.Delete(keys.Broker(gone)))
	b.run()
	b.pass(6 * time.Second)
	for i := range int32(30) {
		p := b.l.im.Partition(b.partition("a", i))
		if should := p.Replicas[0] != gone && i != out.Index; (p.Leader == p.Replicas[0]) != should {
			t.Errorf("partition %d of %v is led by %d, ISR %v; broker %d is away", i, p.Replicas, p.Leader, p.ISR, gone)
		}
	}
}

// A run is cut into plans, and requests do not wait for its end.
func TestBalanceInSlices(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 3000, 1)
	b.second("a", 0)
	b.l.cfg.Slice = 50
	b.commits = nil
	b.pass(6 * time.Second)
	for b.l.balance.brokers != nil {
		b.pass(time.Millisecond)
	}
	if got := b.imbalance(); got != 0 || len(b.commits) < 20 {
		t.Errorf("%d are left after %d transactions", got, len(b.commits))
	}
}

func ExampleLoop_balanceAt() {
	l := NewLoop(LoopConfig{Keys: keys})
	fmt.Println(l.balanceAt())
	l.balance.ran = true
	fmt.Println(l.balanceAt())
	// Output:
	// 5s
	// 5m0s
}
