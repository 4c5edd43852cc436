package controller

import (
	"testing"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/store"
)

// TestRequestsDoNotWaitForAll: while very many partitions change, a leader's
// request waits for the plan under way, and then for a small share of the rest.
func TestRequestsDoNotWaitForAll(t *testing.T) {
	const partitions = 40_000
	const full, share = maxWrites / 16, maxWrites / 16 / askedShare // blocks
	b := newBench(t, 3)
	b.created("a", 64, 1)
	b.created("big", partitions, 16)
	b.held = commits
	b.hand(store.Delete(keys.Broker(3)))
	b.run()
	blocks := 0 // written since the last answer
	commit := func() {
		c := b.next(commits).(Commit)
		blocks += len(c.Txn.Then)
		b.step(b.perform(c))
		b.run()
	}
	most := full + share // the first one meets a plan that was made before
	requests := 0
	for i := int32(0); b.l.machine.Agenda() > 0; i = (i + 1) % 64 {
		p := b.l.Image().Partition(b.partition("a", i))
		if b.l.Image().Brokers[p.Leader] == nil {
			continue
		}
		isr := []cluster.BrokerID{p.Leader}
		if len(p.ISR) == 1 {
			isr = append(isr, 3-p.Leader)
		}
		id := b.ask(b.alter("a", i, p, isr))[0]
		for blocks = 0; !b.answered(id); {
			commit()
		}
		if requests++; blocks > most+2 {
			t.Fatalf("request %d waited for %d blocks of others", requests, blocks)
		}
		most = 2 * share
	}
	if requests < (partitions/16-full)/most {
		t.Errorf("only %d requests", requests)
	}
	b.held = nothing
	b.run()
	if !b.l.Idle() || b.l.Sweep() != 0 {
		t.Error("not at rest")
	}
}
