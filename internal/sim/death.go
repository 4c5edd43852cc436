package sim

import (
	"time"

	"github.com/controllerd/controllerd/controller"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/rpc"
)

// refusals are what a daemon hears of an address to which a connection broke.
type refusals struct {
	d       *simDaemon
	began   time.Duration
	refuses func() bool
	hears   func() // that all was refused for long enough
	ended   func() // something else than that
	over    bool
}

// redial dials until it is not refused.
func (d *simDaemon) redial(refuses func() bool, hears func(), ended func()) *refusals {
	r := &refusals{d: d, began: d.clock(), refuses: refuses, hears: hears, ended: ended}
	d.after(rpc.DeathWindow/4, nil, r.dial)
	return r
}

func (r *refusals) dial() {
	switch since := r.d.clock() - r.began; {
	case r.over:
	case !r.refuses():
		r.end()
	case since < rpc.DeathWindow:
		r.d.after(min(rpc.DeathWindow/10, rpc.DeathWindow-since), nil, r.dial)
	default:
		r.hears()
		r.d.after(time.Second, nil, r.dial)
	}
}

func (r *refusals) end() {
	if !r.over {
		r.over = true
		r.ended()
	}
}

// attend breaks off what the daemon does to a peer that it attended.
func (d *simDaemon) attend(p election.Peer) {
	d.attends = p
	if d.refused != nil {
		d.refused.end()
	}
}

// losePeer lets a daemon find the connection to its peer broken.
func (d *simDaemon) losePeer(refuses func() bool) {
	p := d.attends
	d.refused = d.redial(refuses, func() {
		d.post(controller.Elected{Event: election.Refused{Peer: p, Address: p.Endpoint}})
	}, func() {})
}

// died tells those who attend a daemon that it is gone. Some have no connection
// at that moment.
func (w *World) died(dead *simDaemon) {
	for _, d := range w.daemons {
		if d != nil && !d.dead && d.attends == dead.peer() && w.chance(0.8) {
			d.losePeer(func() bool { return w.daemons[dead.index] == dead })
		}
	}
}

// peer is the daemon as others attend it.
func (d *simDaemon) peer() election.Peer {
	return election.Peer{Endpoint: d.endpoint, Nonce: d.name}
}

// feignDeath lets the address of the active, or of a broker, refuse connections
// for a while, as a firewall does.
func (w *World) feignDeath() {
	active := w.activeDaemon()
	if active == nil {
		return
	}
	feigned := true
	w.later(pick(w, time.Second, 6*time.Second), func() { feigned = false })
	for _, d := range w.daemons {
		if d != nil && !d.dead && d.attends == active.peer() {
			d.losePeer(func() bool { return feigned && !w.calm })
		}
	}
}

// feignDeathOfBrokers breaks the streams of one broker or of several, and lets
// their addresses refuse new ones for a while.
func (w *World) feignDeathOfBrokers() {
	for _, b := range w.rng.Perm(brokers)[:pick(w, 1, 1, 2)] {
		for i := range daemons {
			w.cutStreams(i, b, link{out: reset, in: reset})
		}
		w.later(pick(w, time.Second, 6*time.Second), func() {
			for i := range daemons {
				w.healStreams(i, b)
			}
		})
	}
}

// probe dials the address of a stream that broke.
func (d *simDaemon) probe(a rpc.Redial) {
	w, link := d.w, &d.w.control[d.index][a.Stream.Broker]
	d.probes[a.Stream] = d.redial(func() bool {
		b := w.brokers[a.Stream.Broker]
		return link.broken() || link.open() && (b == nil || b.dead || b.address != a.Address)
	}, func() {
		d.post(controller.Pushed{Event: rpc.Refused{Stream: a.Stream}})
	}, func() {
		delete(d.probes, a.Stream)
		d.post(controller.Pushed{Event: rpc.Closed{Stream: a.Stream}})
	})
}
