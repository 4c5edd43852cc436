package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/controllerd/controllerd/store"
)

var watchCases = []Case{
	newCase("watch/order", watchOrder),
	newCase("watch/what a change holds", watchContent),
	newCase("watch/from the past", watchPast),
	newCase("watch/from the future", watchFuture),
	newCase("watch/long backlog", watchBacklog),
	newCase("watch/progress", watchProgress),
	newCase("watch/compaction", watchCompaction),
	newCase("watch/compaction while it runs", watchCompactionRunning),
	newCase("watch/slow callback", watchSlow),
	newCase("watch/ends with its context", watchEnds),
}

// watching is a watch that runs beside a test.
type watching struct {
	env
	batches chan store.Batch
	ended   chan error
	cancel  context.CancelFunc
}

func (e env) watch(w store.Watch) *watching {
	ctx, cancel := context.WithCancel(e.ctx)
	me := &watching{env: e, batches: make(chan store.Batch), ended: make(chan error, 1), cancel: cancel}
	var running sync.WaitGroup
	running.Go(func() {
		me.ended <- e.Store.Watch(ctx, w, func(b store.Batch) {
			select {
			case me.batches <- b:
			case <-ctx.Done():
			}
		})
	})
	e.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return me
}

// any waits for the next batch.
func (w *watching) any() store.Batch {
	w.Helper()
	select {
	case b := <-w.batches:
		return b
	case err := <-w.ended:
		w.Fatalf("watch ended: %v", err)
	case <-w.ctx.Done():
		w.Fatal("no batch came")
	}
	panic("unreachable")
}

// next waits for a batch with changes.
func (w *watching) next() store.Batch {
	w.Helper()
	for {
		if b := w.any(); len(b.Changes) > 0 {
			return b
		}
	}
}

// upTo collects changes, up to a revision, and checks how they are batched.
func (w *watching) upTo(rev store.Rev) (all []store.Change) {
	w.Helper()
	at := store.Rev(0)
	for at < rev {
		b := w.any()
		if n := len(b.Changes); n > 0 && (b.Changes[0].KV.ModRev <= at || b.Changes[n-1].KV.ModRev != b.Rev) {
			w.Errorf("batch at %d after %d holds %v", b.Rev, at, showBatch(b))
		}
		if b.Rev < at || b.Reset {
			w.Errorf("batch at %d after %d, reset %v", b.Rev, at, b.Reset)
		}
		at = b.Rev
		all = append(all, b.Changes...)
	}
	return all
}

// end waits until the watch fails by itself.
func (w *watching) end() error {
	w.Helper()
	select {
	case err := <-w.ended:
		w.ended <- err
		return err
	case b := <-w.batches:
		w.Fatalf("unexpected batch %v", b)
	case <-w.ctx.Done():
		w.Fatal("watch did not end")
	}
	panic("unreachable")
}

func showChange(c store.Change) string {
	if c.Deleted {
		return "-" + c.KV.Key
	}
	return "+" + c.KV.Key + "=" + string(c.KV.Value)
}

func showBatch(b store.Batch) []string { return showChanges(b.Changes) }

func showChanges(changes []store.Change) []string {
	out := make([]string, len(changes))
	for i, c := range changes {
		out[i] = showChange(c)
	}
	return out
}

func watchOrder(e env) {
	watch := e.watch(store.Watch{Prefix: "p/", After: e.rev()})
	e.do(store.Put("q", nil), store.Put("p/b", []byte("1")), store.Put("p/a", []byte("1")))
	e.do(store.Put("q", nil))
	e.do(store.Put("p0", nil), store.Delete("p/b"))
	last := e.do(store.Put("p/b", []byte("2")), store.Put("q", nil), store.Delete("p/a"))
	e.wants("changes", showChanges(watch.upTo(last)), []string{"+p/b=1", "+p/a=1", "-p/b", "+p/b=2", "-p/a"})
}

func watchContent(e env) {
	lease := e.grant(time.Hour)
	watch := e.watch(store.Watch{After: e.rev()})
	created := e.do(store.PutLeased("a", []byte("1"), lease.ID))
	e.wants("created", show(watch.next().Changes[0].KV), fmt.Sprintf("a=1@%d,%d/%d", created, created, lease.ID))
	modified := e.do(store.Put("a", []byte("2")))
	e.wants("modified", show(watch.next().Changes[0].KV), fmt.Sprintf("a=2@%d,%d", created, modified))
	deleted := e.do(store.Delete("a"))
	b := watch.next()
	e.wants("deleted", show(b.Changes[0].KV), fmt.Sprintf("a=@0,%d", deleted))
	e.wants("revision", b.Rev, deleted)
}

func watchPast(e env) {
	first := e.do(store.Put("a", []byte("1")))
	last := e.do(store.Put("a", []byte("2")), store.Put("b", nil))
	e.wants("all", showChanges(e.watch(store.Watch{}).upTo(last)), []string{"+a=1", "+a=2", "+b="})
	e.wants("later", showChanges(e.watch(store.Watch{After: first}).upTo(last)), []string{"+a=2", "+b="})
	now := e.watch(store.Watch{After: last})
	e.do(store.Delete("a"))
	e.wants("now", showBatch(now.next()), "[-a]")
}

func watchFuture(e env) {
	watch := e.watch(store.Watch{After: e.rev() + 2, Progress: time.Millisecond})
	e.do(store.Put("a", []byte("1")))
	e.do(store.Put("a", []byte("2")))
	third := e.do(store.Put("a", []byte("3")))
	e.wants("changes", showChanges(watch.upTo(third)), "[+a=3]")
}

// etcd cuts a backlog every 1,000 revisions.
func watchBacklog(e env) {
	const revisions, writers = 1200, 8
	begin := e.rev()
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for range revisions / writers {
				txn := store.Txn{If: always, Then: []store.Op{store.Put(fmt.Sprintf("a/%d", w), nil), store.Put(fmt.Sprintf("b/%d", w), nil)}}
				if _, err := e.Store.Commit(e.ctx, txn); err != nil {
					e.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
	changes := e.watch(store.Watch{After: begin, Progress: time.Millisecond}).upTo(begin + revisions)
	e.wants("changes", len(changes), 2*revisions)
	for i, c := range changes {
		if c.KV.ModRev != begin+1+store.Rev(i/2) {
			e.Fatalf("change %d is of revision %d", i, c.KV.ModRev)
		}
	}
}

// Progress comes on a store where nothing happens, and covers what happens
// outside the prefix.
func watchProgress(e env) {
	now := e.rev()
	watch := e.watch(store.Watch{Prefix: "p/", After: now, Progress: 10 * time.Millisecond, Silence: 10 * time.Second})
	for range 3 {
		if b := watch.any(); b.Rev != now || len(b.Changes) > 0 {
			e.Errorf("batch %v, want progress at %d", b, now)
		}
	}
	last := e.do(store.Put("q", nil))
	e.wants("changes", len(watch.upTo(last)), 0)
	last = e.do(store.Put("p/a", nil))
	e.wants("changes", showChanges(watch.upTo(last)), "[+p/a=]")
}

func watchCompaction(e env) {
	first := e.do(store.Put("a", []byte("1")))
	second := e.do(store.Put("a", []byte("2")), store.Put("b", nil))
	third := e.do(store.Delete("b"))
	e.compact(second)
	if err := e.Compact(second); err == nil {
		e.Error("compacted twice")
	}
	if err := e.Compact(third + 1); err == nil {
		e.Error("compacted the future")
	}
	for _, after := range []store.Rev{0, first} {
		if err := e.watch(store.Watch{After: after}).end(); !errors.Is(err, store.ErrCompacted) {
			e.Errorf("watch after %d: %v", after, err)
		}
	}
	e.wants("kept", showChanges(e.watch(store.Watch{After: second}).upTo(third)), "[-b]")
	e.wants("list", showAll(e.list("", false).KVs), []string{fmt.Sprintf("a=2@%d,%d", first, second)})
}

// A watch that keeps up does not mind that history goes, also if nothing of
// its own prefix happened for long.
func watchCompactionRunning(e env) {
	watch := e.watch(store.Watch{Prefix: "p/", After: e.rev(), Progress: 10 * time.Millisecond})
	watch.any()
	for range 3 {
		e.do(store.Put("p/a", nil))
		e.compact(e.do(store.Put("q", nil)))
	}
	last := e.do(store.Put("p/b", nil))
	e.wants("changes", showChanges(watch.upTo(last)), []string{"+p/a=", "+p/a=", "+p/a=", "+p/b="})
}

// A callback that takes longer than the watch may be silent loses nothing and
// ends nothing.
func watchSlow(e env) {
	watch := e.watch(store.Watch{After: e.rev(), Progress: 20 * time.Millisecond, Silence: 300 * time.Millisecond})
	watch.any()
	pause := time.NewTimer(900 * time.Millisecond)
	defer pause.Stop()
	var last store.Rev
	for range 20 {
		last = e.do(store.Put("a", nil))
	}
	<-pause.C
	e.wants("changes", len(watch.upTo(last)), 20)
}

func watchEnds(e env) {
	watch := e.watch(store.Watch{Progress: time.Millisecond})
	watch.any()
	watch.cancel()
	select {
	case err := <-watch.ended:
		if !errors.Is(err, context.Canceled) {
			e.Errorf("watch ended with %v", err)
		}
	case <-e.ctx.Done():
		e.Error("watch did not end")
	}
}
