package controller

import (
	"strings"
	"testing"

	"github.com/controllerd/controllerd/store"
)

// TestCreatesOverPlans: a topic that is too big for one plan is made over many.
// Others are answered in between, nothing of it shows before its end, its name
// is kept, and what it has made so far is not swept.
func TestCreatesOverPlans(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 3, 16)
	b.l.cfg.Slice = 40
	b.held = commits
	big := b.ask(create("", newTopic("big", 400, 16)))[0]
	b.run()
	same := b.ask(create("other", newTopic("big", 1, 1)))[0]
	for plans := 1; !b.answered(big); plans++ {
		if b.l.Image().Topics["big"] != nil || plans > 12 || b.answered(same) {
			t.Fatalf("after %d plans: visible, not at its end, or the name is given away", plans)
		}
		blocks := 0
		for b.count(commits) > 0 {
			for _, op := range b.waiting[0].(Commit).Txn.Then {
				if strings.HasPrefix(op.Key, keys.Prefix()+"partitions/") {
					blocks++
				}
			}
			b.do(commits)
			b.run()
			if b.l.plan == nil || b.l.plan.all[0].phase == committing {
				break
			}
		}
		if blocks > 4 {
			t.Fatalf("%d blocks in one plan", blocks)
		}
		b.step(Listed{b.m.List(keys.Prefix(), true)}) // twice: what is old and hidden would go
		if plans == 4 {
			id := b.ask(b.shrink("a", 0))[0]
			for n := 0; !b.answered(id); n++ {
				if b.answered(big) || n > 8 {
					t.Fatal("a leader waits for the whole topic")
				}
				b.do(commits)
				b.run()
			}
		}
	}
	b.held = nothing
	b.run()
	if got := b.topicResult(big) + ", " + b.topicResult(same); got != "ok, TOPIC_ALREADY_EXISTS" {
		t.Error(got)
	}
	if h := b.l.Image().Health(b.l.Image().Topics["big"]); h.Partitions != 400 || h.Unknown != 0 || b.l.Stats.Hidden != 0 {
		t.Errorf("%+v, %d blocks were swept", h, b.l.Stats.Hidden)
	}
}

// TestCreateStartsAnew: a slice that cannot be written leaves nothing visible,
// and topics of the request that stand are known as its own.
func TestCreateStartsAnew(t *testing.T) {
	b := newBench(t, 3)
	b.l.cfg.Slice = 40
	b.held = commits
	id := b.ask(create("", newTopic("first", 20, 16), newTopic("big", 200, 16)))[0]
	b.run()
	for b.l.Image().Topics["first"] == nil || b.count(commits) == 0 {
		b.do(commits)
		b.run()
	}
	c := b.next(commits).(Commit)
	b.hand(store.Put(c.Txn.If[len(c.Txn.If)-1].Key, []byte("taken"))) // the block exists
	b.step(b.perform(c))
	b.held = nothing
	b.run()
	if got := b.topicResult(id); got != "ok ok" {
		t.Fatal(got)
	}
	for name, want := range map[string]int32{"first": 20, "big": 200} {
		if h := b.l.Image().Health(b.l.Image().Topics[name]); h.Partitions != want || h.Unknown != 0 {
			t.Errorf("topic %s: %+v", name, h)
		}
	}
}
