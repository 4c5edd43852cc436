package sim

import (
	"time"

	"github.com/controllerd/controllerd/controller"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/memstore"
)

// fault is one kind of disturbance. Each seed has about half of them.
type fault struct {
	name   string
	strike func(*World)
}

const losesEvent = "watch loses an event"

// allFaults in a fixed order: a seed must mean the same run for ever.
var allFaults = []fault{
	{"daemon frozen", (*World).freezeDaemon},
	{"daemon killed", (*World).killDaemon},
	{"daemon told to stop", (*World).stopDaemon},
	{"etcd cut off", (*World).cutEtcd},
	{"watch cut off", (*World).cutWatch},
	{losesEvent, func(w *World) { w.etcd.losing = 1 + w.rng.IntN(3) }},
	{"broker cut off", (*World).cutBroker},
	{"broker killed", (*World).killBroker},
	{"broker frozen", (*World).freezeBroker},
	{"noise", (*World).makeNoise},
	{"lease revoked", (*World).revokeLease},
	{"seat deleted", (*World).deleteSeat},
	{"seat overwritten", (*World).overwriteSeat},
	{"epoch key edited", (*World).editEpoch},
	{"block edited", (*World).editBlock},
	{"key spoiled", (*World).spoil},
	{"topic created", (*World).createTopic},
	{"topic written by hand", (*World).writeTopic},
	{"topic deleted", (*World).deleteTopic},
	{"resignation", (*World).resign},
	{"compaction", func(w *World) { _ = w.etcd.model.Compact(w.etcd.model.Rev()) }},
	{"etcd without space", (*World).fillEtcd},
	{"storage failed", (*World).failStorage},
	{"stray left", (*World).plantStray},
	{"etcd frozen", (*World).freezeEtcd},
	{"broker drained", (*World).drain},
	{"term forged", (*World).forgeTerm},
	{"block forged", (*World).forgeBlock},
	{"keys garbled, processes restarted", (*World).garble},
	{"topic deleted, a broker away", (*World).deleteWhileAway},
	{"topic expanded", (*World).expandTopic},
	{"active killed between transactions", (*World).killBetween},
	{"stream torn within a chunk", (*World).tear},
	{"term deleted", (*World).forgetTerm},
	{"broker of another history", (*World).restartForeign},
	{"follower bounced", func(w *World) { w.bouncing = true }},
	{"brokers without streams", (*World).deafen},
	{"leaders elected", (*World).electLeaders},
	{"false death of the active", (*World).feignDeath},
	{"false death of brokers", (*World).feignDeathOfBrokers},
}

// strike lets one fault happen, and sets the next.
func (w *World) strike() {
	if w.calm || len(w.p.faults) == 0 {
		return
	}
	f := pick(w, w.p.faults...)
	w.faults++
	w.tracef("FAULT: %s", f.name)
	w.disturbed()
	f.strike(w)
	w.after(w.upTo(2*w.p.rhythm), w.strike)
}

// later heals a fault after about that time.
func (w *World) later(d time.Duration, heal func()) {
	w.after(d/4+w.upTo(d), func() {
		if !w.calm { // which has healed it
			w.disturbed()
			heal()
		}
	})
}

// someDaemon is the active one more often than not.
func (w *World) someDaemon() *simDaemon {
	if d := w.activeDaemon(); d != nil && w.chance(0.7) {
		return d
	}
	return pick(w, w.daemons[:]...)
}

// freezeDaemon for less or more than a TTL, often while it has something to
// write or to send.
func (w *World) freezeDaemon() {
	d := w.someDaemon()
	if d == nil || !d.runs() {
		return
	}
	switch w.rng.IntN(4) {
	case 0:
		w.stir()
	case 1:
		w.killBroker()
	case 2:
		w.revokeLease()
	}
	w.after(w.upTo(4*w.p.latency), func() { d.frozen = !w.calm })
	w.later(pick(w, w.p.ttl/2, 2*w.p.ttl), func() { w.thaw(&d.process) })
}

// stir gives the active something to say for a while.
func (w *World) stir() {
	w.editBlock()
	for range w.rng.IntN(8) {
		w.after(w.upTo(time.Second), func() {
			if !w.calm {
				w.disturbed()
				w.editBlock()
			}
		})
	}
}

func (w *World) thaw(p *process) {
	if p.frozen && !p.dead {
		w.tracef("%s: thaws", p.name)
		p.thaw()
	}
}

// killDaemon and start it again, often before its lease has expired.
func (w *World) killDaemon() {
	d := w.someDaemon()
	if d == nil || d.dead {
		return
	}
	d.kill()
	w.later(pick(w, 20*time.Millisecond, w.p.ttl, 2*w.p.ttl), func() { w.startDaemon(d.index) })
}

// stopDaemon in order, as far as it can give up what it holds in time.
func (w *World) stopDaemon() {
	const leaveTimeout = 6 * time.Second
	d := w.someDaemon()
	if d == nil || !d.runs() {
		return
	}
	d.post(controller.Elected{Event: election.Leave{Reason: "told to stop"}})
	d.after(leaveTimeout, nil, d.kill)
	w.later(2*leaveTimeout, func() { w.startDaemon(d.index) })
}

// cutEtcd off from one daemon: one way or both, with or without notice.
func (w *World) cutEtcd() {
	d := w.someDaemon()
	if d == nil {
		return
	}
	l := &w.toEtcd[d.index]
	l.set(anyCut(w))
	if l.broken() && d.watch != nil {
		d.after(w.latency(), nil, func() { d.watchEnded(d.watch, errBroken) })
	}
	w.later(pick(w, w.p.ttl/2, 2*w.p.ttl), func() { w.healEtcd(d.index) })
}

func anyCut(w *World) link {
	return pick(w, link{out: silent, in: silent}, link{out: reset, in: reset}, link{out: silent}, link{in: silent})
}

func (w *World) healEtcd(i int) {
	w.toEtcd[i].set(link{})
	if d := w.daemons[i]; d != nil && d.watch != nil && !d.watch.ended {
		d.watch.pipe.release(w.chance(0.5))
	}
}

// cutWatch breaks a watch while calls go on; often its history is compacted.
func (w *World) cutWatch() {
	d := w.someDaemon()
	if d == nil || d.dead || d.watch == nil || d.watch.ended {
		return
	}
	wt := d.watch
	if w.chance(0.5) { // it falls silent for good
		quiet := silent
		wt.pipe.flow = &quiet
		return
	}
	w.etcd.drop(wt)
	w.after(w.upTo(w.p.ttl), func() {
		if w.chance(0.5) {
			_ = w.etcd.model.Compact(w.etcd.model.Rev())
		}
		d.after(0, nil, d.follow)
	})
}

// loseEvent takes a change out of a batch, as some releases of etcd did.
func (w *World) loseEvent(d *simDaemon, b *store.Batch) {
	if w.etcd.losing == 0 || d.index != w.etcd.losing-1 {
		return
	}
	w.etcd.losing = 0
	i := w.rng.IntN(len(b.Changes))
	w.tracef("%s: never hears of %s", d.name, w.changeText(b.Changes[i]))
	w.checker.Missed(b.Changes[i].KV.Key)
	w.disturbed()
	b.Changes = append(append([]store.Change(nil), b.Changes[:i]...), b.Changes[i+1:]...)
}

// cutBroker off from one daemon or from all.
func (w *World) cutBroker() {
	b := w.rng.IntN(brokers)
	kind := anyCut(w)
	from, to := 0, daemons
	if d := w.someDaemon(); d != nil && w.chance(0.7) {
		from, to = d.index, d.index+1
	}
	for i := from; i < to; i++ {
		w.links[i][b].set(kind)
		w.cutStreams(i, b, kind)
	}
	w.later(pick(w, time.Second, 12*time.Second), func() {
		for i := from; i < to; i++ {
			w.healBroker(i, b)
		}
	})
}

// cutStreams breaks the streams of one daemon to one broker, and new ones.
func (w *World) cutStreams(i, b int, kind link) {
	w.control[i][b].set(kind)
	d := w.daemons[i]
	if !kind.broken() || d == nil || d.dead {
		return
	}
	for _, s := range d.openStreams() {
		if int(s.id.Broker) == b {
			d.after(w.latency(), nil, func() { s.end(errUnreachable) })
		}
	}
}

// deafen brokers to commands, while they keep their sessions: one or most of
// them, to one daemon or to all, for less or more than it takes to be marked.
func (w *World) deafen() {
	from, to := 0, daemons
	if d := w.someDaemon(); d != nil && w.chance(0.5) {
		from, to = d.index, d.index+1
	}
	deaf := w.rng.Perm(brokers)[:pick(w, 1, 2, 4, 4)]
	for i := from; i < to; i++ {
		for _, b := range deaf {
			w.cutStreams(i, b, anyCut(w))
		}
	}
	w.later(pick(w, w.p.unreachable, 5*w.p.unreachable), func() {
		for i := from; i < to; i++ {
			for _, b := range deaf {
				w.healStreams(i, b)
			}
		}
	})
}

func (w *World) healBroker(i, b int) {
	w.links[i][b].set(link{})
	w.healStreams(i, b)
}

func (w *World) healStreams(i, b int) {
	w.control[i][b].set(link{})
	d := w.daemons[i]
	if d == nil {
		return
	}
	for _, s := range d.openStreams() {
		if int(s.id.Broker) == b {
			survives := w.chance(0.5)
			s.up.release(survives)
			s.down.release(survives)
		}
	}
}

// killBroker and start it again, within its session or after it.
func (w *World) killBroker() {
	i := w.rng.IntN(brokers)
	b := w.brokers[i]
	if b.dead {
		return
	}
	b.kill()
	if w.chance(0.3) {
		w.stir()
	}
	w.later(pick(w, 20*time.Millisecond, w.p.session, 2*w.p.session), func() { w.startBroker(i) })
}

func (w *World) freezeBroker() {
	b := pick(w, w.brokers[:]...)
	if !b.runs() {
		return
	}
	b.frozen = true
	w.later(pick(w, time.Second, 2*w.p.session), func() { w.thaw(&b.process) })
}

// makeNoise lets messages be lost and come late for a while.
func (w *World) makeNoise() {
	w.noise = pick(w, 0.02, 0.1, 0.3)
	w.later(pick(w, time.Second, 2*w.p.ttl), func() { w.noise = 0 })
}

// revokeLease ends one lease by hand, or all.
func (w *World) revokeLease() {
	leases := w.etcd.model.Leases()
	if len(leases) == 0 {
		return
	}
	if w.chance(0.8) {
		leases = []store.LeaseID{pick(w, leases...)}
	}
	if w.chance(0.3) {
		w.stir()
	}
	for _, id := range leases {
		w.etcd.do(func(m *memstore.Model) { m.Revoke(id) })
	}
}

func (w *World) fillEtcd() {
	w.etcd.model.NoSpace = true
	w.later(w.p.ttl, func() { w.etcd.model.NoSpace = false })
}

// freezeEtcd for all. What it is asked meanwhile it does afterwards.
func (w *World) freezeEtcd() {
	w.etcd.frozen = true
	w.later(pick(w, w.p.ttl/2, 2*w.p.ttl), w.thawEtcd)
}

func (w *World) thawEtcd() {
	parked := w.etcd.parked
	w.etcd.frozen, w.etcd.parked = false, nil
	for _, fn := range parked {
		w.after(w.upTo(3*time.Millisecond), fn)
	}
}
