package controller

import (
	"testing"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

// TestTakesInInSlices: a list of much is taken in over many steps, of which none
// decides or sends anything before the image is whole again; the lease does not
// wait.
func TestTakesInInSlices(t *testing.T) {
	b := newBench(t, 3)
	b.listening(9) // so that there is something to push
	b.created("a", 200, 16)
	b.created("b", 40, 1)
	b.hand(store.Delete(keys.Broker(2)))
	for n := range int32(10) {
		b.edit("b", n, func(p *cluster.Partition) { p.PartitionEpoch += 5 })
	}
	b.l.cfg.Slice = 10
	list := store.Batch{Rev: b.m.Rev(), Reset: true}
	for _, kv := range b.m.List(keys.Prefix(), false).KVs {
		list.Changes = append(list.Changes, store.Change{KV: kv})
	}
	leaves := func(a Action) bool { _, push := a.(Push); return push || commits(a) }
	before := b.count(leaves)
	b.step(Watched{list})
	slices := 0
	for ; !b.l.Whole(); slices++ {
		if !b.l.Unfinished() || !b.l.Backlog() {
			t.Fatal("it does not ask for another step")
		}
		lease := b.l.candidate.Lease()
		b.step(Elected{election.Renewed{Lease: lease, Sent: b.now, TTL: 5e9}}, Pushed{rpc.Closed{}})
		for _, ev := range b.l.intake.events {
			if _, ok := ev.(Elected); ok {
				t.Fatal("the answer about the lease waits")
			}
		}
		if n := b.count(leaves) - before; n > 0 && !b.l.Whole() {
			t.Fatalf("%d transactions and commands while the image is not whole", n)
		}
	}
	if slices < 10 {
		t.Errorf("taken in with %d steps", slices)
	}
	b.run()
	if got := b.l.Image().HealthOfAll(); got.Offline != 0 || b.l.Sweep() != 0 || !b.l.Idle() && b.l.Pusher().Pending() == 0 {
		t.Errorf("health %+v", got)
	}
}

// TestReviewsInSlices: the loss of a broker is looked at in slices, and what is
// found first is written first.
func TestReviewsInSlices(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 400, 16)
	b.l.cfg.Slice = 20
	b.hand(store.Delete(keys.Broker(2)))
	b.see()
	steps := 0
	for ; b.l.machine.Reviewing(); steps++ {
		if n := b.l.machine.Agenda(); n > (steps+1)*40 {
			t.Fatalf("%d partitions after %d steps", n, steps+1)
		}
		b.step()
	}
	if steps < 10 {
		t.Errorf("reviewed in %d steps", steps)
	}
	b.run()
	if b.l.Sweep() != 0 || !b.l.Idle() {
		t.Error("not at rest")
	}
}

// TestChecksInSlices: what the agenda had wrong at the begin of a term is
// counted and put right.
func TestChecksInSlices(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 400, 16)
	b.hand(store.Delete(keys.Broker(2)))
	batch, err := b.m.ChangesSince(keys.Prefix(), b.l.Image().Rev)
	if err != nil {
		t.Fatal(err)
	}
	b.l.im.Apply(batch) // not observed
	b.l.sweep, b.l.sweepAt, b.l.cfg.Slice = true, 0, 20
	b.step()
	if n := b.l.Stats.Swept; n == 0 || n > 20 || !b.l.Unfinished() {
		t.Errorf("%d were put right in the first step", n)
	}
	b.run()
	if b.l.Stats.Swept != 400 || b.l.Image().HealthOfAll().Offline != 0 || !b.l.Idle() {
		t.Errorf("%d were put right", b.l.Stats.Swept)
	}
}

// TestOfflineInSlices: the storage of very many replicas fails, and comes back
// with the broker's end, in slices.
func TestOfflineInSlices(t *testing.T) {
	b := newBench(t, 0)
	for id := range cluster.BrokerID(3) {
		b.listening(id + 1)
	}
	b.run()
	b.created("a", 400, 16)
	var offline []fencing.HeldReplica
	for i := range int32(400) {
		offline = append(offline, fencing.HeldReplica{Topic: "a", Partition: b.partition("a", i)})
	}
	report := &pb.ReplicaReport{Offline: fencing.WireReplicas(offline)}
	b.l.cfg.Slice = 20
	b.held = commits
	b.step(
		Pushed{rpc.Received{Stream: b.streams[2], Response: &pb.CommandsResponse{Response: &pb.CommandsResponse_Report{Report: report}}}},
		Watched{store.Batch{Rev: b.m.Rev()}},
	)
	if !b.l.Backlog() {
		t.Error("what comes after a long report is taken in with it")
	}
	reviewed := func() {
		t.Helper()
		steps := 0
		for ; b.l.Backlog() || b.l.machine.Reviewing(); steps++ {
			if n := b.l.machine.Agenda(); n > 20*(steps+1) && n < 400-20*(steps+1) {
				t.Fatalf("%d partitions on the agenda after %d steps", n, steps)
			}
			b.step()
		}
		if steps < 15 {
			t.Errorf("reviewed in %d steps", steps)
		}
	}
	reviewed()
	if got := b.l.machine.Agenda(); got != 400 {
		t.Errorf("%d partitions on the agenda", got)
	}
	b.step(Requested{1 << 40, rpc.Resign{ResignControllerRequest: &pb.ResignControllerRequest{}}}) // what was soft is forgotten
	reviewed()
	if got := b.l.machine.Agenda(); got != 0 {
		t.Errorf("%d partitions on the agenda of a standby", got)
	}
}
