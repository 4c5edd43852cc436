package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/controllerd/controllerd/store"
)

// Compare gives both stores, which must be new, the same n random operations
// and wants the same answers, the same end and the same history.
func Compare(t *testing.T, seed uint64, n int, a, b Harness) {
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	g := &generator{rand: rand.New(rand.NewPCG(seed, 0)), seen: []store.Rev{0}}
	sides := []*side{newSide(t, ctx, a), newSide(t, ctx, b)}
	for i := range n {
		s := g.step()
		first, second := sides[0].run(s), sides[1].run(s)
		if first.text != second.text {
			t.Fatalf("step %d, %s:\n%s\n%s", i, s.name, first.text, second.text)
		}
		g.learn(first)
	}
	for _, prefix := range []string{"", "k/1"} {
		s := step{name: "history", run: func(x *side) outcome { return x.history(prefix, g.compacted) }}
		if first, second := sides[0].run(s), sides[1].run(s); first.text != second.text {
			t.Fatalf("history of %q after %d:\n%s\n%s", prefix, g.compacted, first.text, second.text)
		}
	}
	if first, second := sides[0].watched(), sides[1].watched(); first != second {
		t.Fatalf("watched:\n%s\n%s", first, second)
	}
}

// step is one operation, on either store.
type step struct {
	name string
	run  func(*side) outcome
}

// outcome is an answer as a text, and what the generator makes use of.
type outcome struct {
	text string
	kvs  []store.KV
	rev  store.Rev
}

// generator makes steps that are likely to hit: it knows the revisions that
// were answered.
type generator struct {
	rand      *rand.Rand
	keys      map[string]store.KV // as last listed
	seen      []store.Rev
	leases    int
	compacted store.Rev
}

func (g *generator) learn(o outcome) {
	if o.kvs != nil {
		g.keys = map[string]store.KV{}
		for _, kv := range o.kvs {
			g.keys[kv.Key] = kv
		}
	}
	if o.rev > 0 {
		g.seen = append(g.seen, o.rev)
	}
}

func (g *generator) key() string { return fmt.Sprintf("k/%02d", g.rand.IntN(14)) }

// lease is the number of a lease that was granted, 0 for none, or one more than
// there are.
func (g *generator) lease() int { return g.rand.IntN(g.leases + 2) }

func (g *generator) step() step {
	switch p := g.rand.IntN(100); {
	case p < 60:
		return g.txn()
	case p < 70:
		return step{"list", func(x *side) outcome { return x.list("k/") }}
	case p < 75:
		keys := []string{g.key(), g.key(), g.key()}
		return step{fmt.Sprint("get ", keys), func(x *side) outcome { return x.get(keys) }}
	case p < 81:
		g.leases++
		return step{"grant", (*side).grant}
	case p < 90:
		n := g.lease()
		return step{fmt.Sprint("renew ", n), func(x *side) outcome { return x.renew(n) }}
	case p < 97:
		n := g.lease()
		return step{fmt.Sprint("revoke ", n), func(x *side) outcome { return x.revoke(n) }}
	default:
		rev := g.seen[g.rand.IntN(len(g.seen))]
		g.compacted = max(g.compacted, rev)
		return step{fmt.Sprint("compact ", rev), func(x *side) outcome { return x.compact(max(rev, 1)) }}
	}
}

func (g *generator) txn() step {
	txn := store.Txn{If: []store.Cond{g.cond()}}
	for g.rand.IntN(3) == 0 {
		txn.If = append(txn.If, g.cond())
	}
	var leases []int
	for range g.rand.IntN(5) {
		op := store.Op{Key: g.key(), Value: []byte(fmt.Sprint(g.rand.IntN(1000)))}
		lease := 0
		switch g.rand.IntN(7) {
		case 0, 1:
			op.Kind, op.Value = store.OpDelete, nil
		case 6:
			op = store.DeletePrefix(op.Key[:len(op.Key)-g.rand.IntN(2)])
		case 2:
			op.KeepLease = true
		case 3, 4:
			lease = g.lease()
		}
		txn.Then, leases = append(txn.Then, op), append(leases, lease)
	}
	return step{fmt.Sprintf("commit %+v leases %v", txn, leases), func(x *side) outcome { return x.commit(txn, leases) }}
}

// cond holds more often than not.
func (g *generator) cond() store.Cond {
	key := g.key()
	kv := g.keys[key]
	switch g.rand.IntN(8) {
	case 0:
		return store.ModRevIs(key, g.seen[g.rand.IntN(len(g.seen))])
	case 1:
		return store.CreateRevIs(key, kv.ModRev)
	case 2, 3, 4:
		return store.CreateRevIs(key, kv.CreateRev)
	default:
		return store.ModRevIs(key, kv.ModRev)
	}
}

// side is one of the stores. Leases are numbered, from 1, because their ids
// differ.
type side struct {
	t      *testing.T
	ctx    context.Context
	h      Harness
	leases []store.LeaseID
	watch  *watching // all changes from the beginning
}

func newSide(t *testing.T, ctx context.Context, h Harness) *side {
	e := env{T: t, Harness: h, ctx: ctx}
	batches := make(chan store.Batch, 1<<16) // so that nothing waits for the end
	w := &watching{env: e, batches: batches, ended: make(chan error, 1)}
	watchCtx, cancel := context.WithCancel(ctx)
	go func() {
		w.ended <- h.Store.Watch(watchCtx, store.Watch{Progress: 5 * time.Millisecond}, func(b store.Batch) { batches <- b })
	}()
	t.Cleanup(func() {
		cancel()
		<-w.ended
	})
	w.any() // it runs: from here on a compaction does not hurt it
	return &side{t: t, ctx: ctx, h: h, watch: w}
}

func (x *side) run(s step) outcome { return s.run(x) }

// id of a lease's number; of one that was never granted, one that is not there.
func (x *side) id(n int) store.LeaseID {
	switch {
	case n == 0:
		return 0
	case n > len(x.leases):
		return 1 << 40
	}
	return x.leases[n-1]
}

func (x *side) commit(txn store.Txn, leases []int) outcome {
	txn.Then = slices.Clone(txn.Then)
	for i, n := range leases {
		txn.Then[i].Lease = x.id(n)
	}
	res, err := x.h.Store.Commit(x.ctx, txn)
	return outcome{
		text: fmt.Sprint(res.Succeeded, res.Rev, x.show(res.Found), class(err)),
		rev:  res.Rev,
	}
}

func (x *side) list(prefix string) outcome {
	snap, err := x.h.Store.List(x.ctx, prefix, false)
	keys, keysErr := x.h.Store.List(x.ctx, prefix, true)
	return outcome{
		text: fmt.Sprint(snap.Rev, x.show(snap.KVs), class(err), keys.Rev, x.show(keys.KVs), class(keysErr)),
		kvs:  append([]store.KV{}, snap.KVs...),
		rev:  snap.Rev,
	}
}

func (x *side) get(keys []string) outcome {
	snap, err := x.h.Store.Get(x.ctx, keys...)
	return outcome{text: fmt.Sprint(snap.Rev, x.show(snap.KVs), class(err))}
}

func (x *side) grant() outcome {
	l, err := x.h.Store.Grant(x.ctx, time.Hour)
	x.leases = append(x.leases, l.ID)
	return outcome{text: fmt.Sprint(l.TTL, class(err))}
}

func (x *side) renew(n int) outcome {
	ttl, err := x.h.Store.Renew(x.ctx, x.id(n))
	return outcome{text: fmt.Sprint(ttl, class(err))}
}

func (x *side) revoke(n int) outcome {
	return outcome{text: fmt.Sprint(class(x.h.Store.Revoke(x.ctx, x.id(n))))}
}

func (x *side) compact(rev store.Rev) outcome {
	return outcome{text: fmt.Sprint(x.h.Compact(rev) == nil)}
}

// history watches a prefix anew from a revision to the present.
func (x *side) history(prefix string, after store.Rev) outcome {
	w := x.watch.env.watch(store.Watch{Prefix: prefix, After: after, Progress: 5 * time.Millisecond})
	return outcome{text: x.showHistory(w.upTo(w.rev()))}
}

// watched is all that the first watch brought.
func (x *side) watched() string { return x.showHistory(x.watch.upTo(x.watch.rev())) }

func (x *side) showHistory(changes []store.Change) string {
	var out strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&out, "%s %s\n", showChange(c), x.show([]store.KV{c.KV}))
	}
	return out.String()
}

// show numbers the leases and hides that an empty value may be nil.
func (x *side) show(kvs []store.KV) []string {
	kvs = slices.Clone(kvs)
	for i, kv := range kvs {
		kvs[i].Lease = store.LeaseID(slices.Index(x.leases, kv.Lease) + 1)
	}
	return showAll(kvs)
}

// class is which of the store's errors an error is.
func class(err error) string {
	if err == nil {
		return "ok"
	}
	var names []string
	for _, e := range []error{
		store.ErrUnknown, store.ErrUnguarded, store.ErrLimit, store.ErrNoSpace, store.ErrBusy,
		store.ErrLeaseNotFound, store.ErrKeyNotFound, store.ErrCompacted, store.ErrSilent,
	} {
		if errors.Is(err, e) {
			names = append(names, e.Error())
		}
	}
	return strings.Join(names, ", ")
}
