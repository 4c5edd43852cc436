package rpc

import (
	"maps"
	"slices"
	"time"

	"github.com/controllerd/controllerd/cluster"
)

// deathPause is how long after a broker was taken for dead, or after the begin
// of a term, no other is.
const deathPause = 10 * time.Second

// Redial dials the address of a stream that broke, until it is not refused:
// each refusal that counts is answered by Refused, the end, and the end by
// Hangup, by Closed.
type Redial struct {
	Stream  StreamID
	Address string // IP address and port
}

// Proven says that a broker counts as dead. It is for information.
type Proven struct {
	Broker  cluster.BrokerID
	Epoch   cluster.BrokerEpoch
	Address string
}

// Refused says that every dial of Redial has been refused so far.
type Refused struct {
	Stream StreamID
	Whole  bool // for DeathWindow or longer; else it is the first one
}

func (Redial) pushAction() {}
func (Proven) pushAction() {}
func (Refused) pushEvent() {}

// judgement is what deaths make of a refusal.
type judgement uint8

const (
	undecided judgement = iota // or decided before
	damped
	proven
)

// deaths decide which brokers count as dead because they refuse connections. If
// two do so at once, something else than a broker has probably died.
type deaths struct {
	refusing map[cluster.BrokerID]bool
	dead     map[cluster.BrokerID]bool // of those
	notYet   time.Duration             // until then nobody else counts as dead
}

// beginDeaths are those of a term that begins.
func beginDeaths(now time.Duration) deaths {
	return deaths{refusing: map[cluster.BrokerID]bool{}, dead: map[cluster.BrokerID]bool{}, notYet: now + deathPause}
}

// refuses takes in a refusal by a broker, the first one or for the whole window.
func (d *deaths) refuses(now time.Duration, id cluster.BrokerID, whole bool) judgement {
	d.refusing[id] = true
	switch {
	case len(d.refusing) > 1:
		clear(d.dead) // what is not written yet
		return damped
	case !whole || d.dead[id]:
		return undecided
	case now < d.notYet:
		return damped
	}
	d.dead[id], d.notYet = true, now+deathPause
	return proven
}

// forget says that a broker refuses nothing any more, or is gone.
func (d *deaths) forget(id cluster.BrokerID) {
	delete(d.refusing, id)
	delete(d.dead, id)
}

// broke begins to dial a broker whose stream has ended with its connection, if
// that may prove its death: it had admitted a command, so it was this very
// incarnation that was there.
func (p *Pusher) broke(t *target, ev Closed, out []PushAction) []PushAction {
	if !t.probe || !t.admitted || ev.Broken == "" {
		return out
	}
	out = p.stopRedial(t, out)
	t.redialed = ev.Stream
	return append(out, Redial{ev.Stream, ev.Broken})
}

// stopRedial ends what broke has begun, if it has not ended.
func (p *Pusher) stopRedial(t *target, out []PushAction) []PushAction {
	p.deaths.forget(t.id)
	if t.redialed == (StreamID{}) {
		return out
	}
	p.closing[t.redialed] = true
	out = append(out, Hangup{t.redialed})
	t.redialed = StreamID{}
	return out
}

// refused takes in that a broker refuses connections.
func (p *Pusher) refused(now time.Duration, ev Refused) []PushAction {
	t := p.targets[ev.Stream.Broker]
	if t == nil || t.redialed != ev.Stream || t.phase == open {
		return nil
	}
	switch p.deaths.refuses(now, t.id, ev.Whole) {
	case damped:
		if ev.Whole {
			p.Stats.DeathsDamped++
		}
	case proven:
		p.Stats.DeathsProven++
		return []PushAction{Proven{t.id, t.epoch, t.address}}
	}
	return nil
}

// CountsAsDead reports whether a broker counts as dead.
func (p *Pusher) CountsAsDead(id cluster.BrokerID) bool { return p.deaths.dead[id] }

// Dead are the brokers that count as dead, in order: as the image shows them, if
// that is the registration at whose address connections were refused, and
// allows the conclusion. Their keys are to be deleted.
func (p *Pusher) Dead(im *cluster.Image) []*cluster.Broker {
	if len(p.deaths.dead) == 0 {
		return nil
	}
	var out []*cluster.Broker
	for _, id := range slices.Sorted(maps.Keys(p.deaths.dead)) {
		b, t := im.Brokers[id], p.targets[id]
		if b != nil && t != nil && b.Epoch == t.epoch && b.Record.GetControlAddress() == t.address && b.Record.GetDeathProbe() {
			out = append(out, b)
		}
	}
	return out
}
