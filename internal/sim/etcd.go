package sim

import (
	"slices"
	"time"

	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/memstore"
)

// maxExpiryLag is how late etcd may be to revoke a lease.
const maxExpiryLag = 500 * time.Millisecond

// simEtcd is etcd: one model, and the watches on it.
type simEtcd struct {
	w        *World
	model    *memstore.Model
	told     store.Rev // what the checker was told
	watches  []*watch
	expiring time.Duration // the deadline for which a look at the leases is due; 0: none is
	frozen   bool
	parked   []func()
	queued   map[string][]func() // wait for the deletion of a key
	expired  map[store.LeaseID]bool
	losing   int // 1 + the daemon whose watch loses an event, 0: none
}

func newEtcd(w *World) *simEtcd {
	return &simEtcd{w: w, model: memstore.NewModel(), told: 1, expired: map[store.LeaseID]bool{}, queued: map[string][]func(){}}
}

// do lets fn work on the model, and tells everybody what it did.
func (e *simEtcd) do(fn func(*memstore.Model)) {
	fn(e.model)
	e.tell()
	e.expireLater()
}

// byHand is a transaction that no daemon made.
func (e *simEtcd) byHand(txn store.Txn) (store.Result, error) {
	var res store.Result
	var err error
	e.do(func(m *memstore.Model) {
		if res, err = m.Txn(txn); err == nil && res.Succeeded {
			e.w.checker.Edited(res.Rev)
		}
	})
	return res, err
}

func (e *simEtcd) tell() {
	b, err := e.model.ChangesSince(e.w.keys.Prefix(), e.told)
	if err != nil {
		panic(err) // told at once, before a compaction
	}
	if len(b.Changes) == 0 {
		return
	}
	e.told = b.Rev
	e.w.checker.Watched(e.w.now, b)
	for _, c := range b.Changes {
		e.w.tracef("etcd %d: %s", c.KV.ModRev, e.w.changeText(c))
		e.w.checkChange(c)
		if c.Deleted {
			for _, fn := range e.queued[c.KV.Key] {
				fn()
			}
			delete(e.queued, c.KV.Key)
		}
	}
	e.w.spring(b.Changes)
	for _, wt := range e.watches {
		wt.flushSoon()
	}
}

// onDelete calls fn once, when the key is deleted or at the end of the wait.
func (e *simEtcd) onDelete(key string, end time.Duration, fn func()) {
	called := false
	once := func() {
		if !called {
			called = true
			fn()
		}
	}
	e.queued[key] = append(e.queued[key], once)
	e.w.after(max(end-e.w.now, 0), once)
}

// expireLater revokes what is due, some time after it is.
func (e *simEtcd) expireLater() {
	at, ok := e.model.NextExpiry()
	if !ok || e.expiring != 0 && e.expiring <= at { // a lease that was granted since may end before
		return
	}
	e.expiring = at
	e.w.after(at-e.w.now+e.w.upTo(maxExpiryLag), func() {
		e.arrive(func() {
			if e.expiring == at {
				e.expiring = 0
			}
			e.do(func(m *memstore.Model) {
				for _, id := range m.Expire(e.w.now) {
					e.expired[id] = true
				}
			})
		})
	})
}

// call is one call of a daemon to etcd. The request may be lost or come late,
// and so may the answer: then the caller hears errTimeout, and does not know.
// cancel makes it give up at once.
func call[T any](d *simDaemon, timeout time.Duration, op func(*memstore.Model) (T, error), done func(T, error)) (cancel func()) {
	w, l := d.w, &d.w.toEtcd[d.index]
	answered := false
	answer := func(v T, err error) {
		if !answered {
			answered = true
			done(v, err)
		}
	}
	fail := func(err error) func() {
		return func() {
			var none T
			answer(none, err)
		}
	}
	if l.broken() {
		d.after(w.latency(), nil, fail(errBroken))
		return fail(errCancel)
	}
	d.after(timeout, nil, fail(errTimeout))
	lose := func() { w.lose(l, func() { d.after(w.latency(), nil, fail(errBroken)) }) }
	if !w.passes(l.out) {
		lose()
		return fail(errCancel)
	}
	w.after(w.latency(), func() {
		w.etcd.arrive(func() {
			var v T
			var err error
			w.etcd.do(func(m *memstore.Model) { v, err = op(m) })
			if answered {
				w.seen["call after its caller had given up"]++
			}
			if w.passes(l.in) {
				d.after(w.latency(), nil, func() { answer(v, err) })
			} else {
				w.seen["call whose answer was lost"]++
				lose()
			}
		})
	})
	return fail(errCancel)
}

// arrive lets a request be served, after a freeze if there is one.
func (e *simEtcd) arrive(serve func()) {
	if e.frozen {
		e.parked = append(e.parked, serve)
	} else {
		serve()
	}
}

// countFailed notes which guard made a transaction of a term fail.
func (w *World) countFailed(txn store.Txn, res store.Result, err error) {
	if err != nil || res.Succeeded {
		return
	}
	what := ""
	for _, c := range txn.If {
		if c.Field == store.ModRev && c.Key == w.keys.Controller() {
			what = "block guard failed"
			if !slices.ContainsFunc(res.Found, func(kv store.KV) bool { return kv.Key == c.Key && kv.ModRev == c.Rev }) {
				what = "claim guard failed"
			}
		}
	}
	if what != "" {
		w.seen[what]++
	}
}

// watch is one stream of changes to a daemon.
type watch struct {
	d      *simDaemon
	sent   store.Rev
	pipe   pipe
	inside lane // the process
	due    bool
	ended  bool
	heard  time.Duration
}

// flushSoon sends what is new after a moment: what happens until then comes in
// the same batch.
func (wt *watch) flushSoon() {
	if wt.due || wt.ended {
		return
	}
	wt.due = true
	w := wt.d.w
	w.after(w.upTo(pick(w, w.p.latency, 2*w.p.latency, 4*w.p.latency, 300*time.Millisecond)), func() {
		wt.due = false
		wt.flush(false)
	})
}

// flush sends what is new; if it was asked for, it also says that this is all.
func (wt *watch) flush(asked bool) {
	w, e := wt.d.w, wt.d.w.etcd
	if wt.ended || e.frozen {
		return
	}
	b, err := e.model.ChangesSince(w.keys.Prefix(), wt.sent)
	if err != nil {
		wt.send(func() { wt.d.watchEnded(wt, err) })
		return
	}
	if len(b.Changes) > 0 {
		wt.sent = b.Rev
		w.loseEvent(wt.d, &b)
		wt.send(func() { wt.d.watched(wt, b) })
	}
	if asked {
		progress := store.Batch{Rev: e.model.Rev()}
		wt.send(func() { wt.d.watched(wt, progress) })
	}
}

// send brings something to the daemon, in order.
func (wt *watch) send(fn func()) {
	wt.pipe.send(func() {
		if !wt.ended {
			wt.d.after(0, &wt.inside, fn)
		}
	})
}

// progress answers the client's requests for progress.
func (wt *watch) progress(every time.Duration) {
	if wt.ended {
		return
	}
	wt.flush(true)
	wt.d.w.after(every, func() { wt.progress(every) })
}

func (e *simEtcd) drop(wt *watch) {
	wt.ended = true
	e.watches = slices.DeleteFunc(e.watches, func(o *watch) bool { return o == wt })
}
