package sim

import (
	"errors"
	"time"

	"github.com/controllerd/controllerd/controller"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/memstore"
)

// The pauses of election.Follow.
const (
	listPause  = time.Second
	watchPause = 100 * time.Millisecond
	listLimit  = 30 * time.Second
)

// follow brings the prefix to the daemon as election.Follow does: a list, then
// a watch, and a new one whenever it ends.
func (d *simDaemon) follow() {
	if d.rev != 0 {
		d.openWatch()
		return
	}
	call(d, listLimit, func(m *memstore.Model) (store.Snapshot, error) {
		return m.List(d.w.keys.Prefix(), false), nil
	}, func(read store.Snapshot, err error) {
		if err != nil {
			d.after(listPause, nil, d.follow)
			return
		}
		b := store.Batch{Rev: read.Rev, Reset: true}
		for _, kv := range read.KVs {
			b.Changes = append(b.Changes, store.Change{KV: kv})
		}
		d.rev = read.Rev
		d.post(controller.Watched{Batch: b})
		d.openWatch()
	})
}

func (d *simDaemon) openWatch() {
	w := d.w
	l := &w.toEtcd[d.index]
	wt := &watch{d: d, sent: d.rev, heard: w.now, pipe: pipe{w: w, flow: &l.in}}
	d.watch = wt
	d.watchSilence(wt)
	switch l.out {
	case reset:
		d.after(w.latency(), nil, func() { d.watchEnded(wt, errBroken) })
		return
	case silent:
		return
	}
	w.after(w.latency(), func() {
		if wt.ended {
			return
		}
		w.etcd.watches = append(w.etcd.watches, wt)
		wt.progress(min(w.p.ttl/4, 2*time.Second))
	})
}

func (d *simDaemon) watched(wt *watch, b store.Batch) {
	if wt.ended {
		return
	}
	wt.heard = d.w.now
	d.rev = max(d.rev, b.Rev)
	d.post(controller.Watched{Batch: b})
}

func (d *simDaemon) watchEnded(wt *watch, err error) {
	if wt.ended {
		return
	}
	d.w.etcd.drop(wt)
	pause := watchPause
	if errors.Is(err, store.ErrCompacted) {
		d.rev, pause = 0, 0
		d.w.seen["watch that was compacted away"]++
	}
	d.w.tracef("%s: watch ended: %v", d.name, err)
	d.after(pause, nil, d.follow)
}

// watchSilence replaces a watch that brings nothing for two TTLs.
func (d *simDaemon) watchSilence(wt *watch) {
	limit := 2 * d.w.p.ttl
	d.after(wt.heard+limit-d.w.now, nil, func() {
		switch {
		case wt.ended:
		case d.w.now-wt.heard >= limit:
			d.watchEnded(wt, store.ErrSilent)
		default:
			d.watchSilence(wt)
		}
	})
}

// compare lists keys and mod revisions every now and then.
func (d *simDaemon) compare() {
	if d.w.p.compare == 0 {
		return
	}
	d.after(d.w.p.compare, nil, func() { d.list(d.compare) })
}

func (d *simDaemon) list(then func()) {
	call(d, listLimit, func(m *memstore.Model) (store.Snapshot, error) {
		return m.List(d.w.keys.Prefix(), true), nil
	}, func(list store.Snapshot, err error) {
		if err == nil {
			d.post(controller.Listed{List: list})
		}
		then()
	})
}
