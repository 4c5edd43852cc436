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

// Redial dials the address of a stream whose connection broke, until it is not
// refused. It is answered by Refused, each time that proves something, and by
// Closed at its end, or after a Hangup.
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

// Refused says that every dial of Redial was refused so far, for DeathWindow or
// longer.
type Refused struct{ Stream StreamID }

func (Redial) pushAction() {}
func (Proven) pushAction() {}
func (Refused) pushEvent() {}

// judgement is what deaths make of a refusal.
type judgement uint8

const (
	undecided judgement = iota // since it was before
	damped
	proven
)

// deaths decide which brokers count as dead because they refuse connections. If
// two are suspected at once, something else than a broker has probably died.
type deaths struct {
	suspected map[cluster.BrokerID]bool // their connection broke, and nothing is heard of them since
	dead      map[cluster.BrokerID]bool // of those
	notYet    time.Duration             // until then nobody else counts as dead
}

// beginDeaths are those of a term that begins.
func beginDeaths(now time.Duration) deaths {
	return deaths{suspected: map[cluster.BrokerID]bool{}, dead: map[cluster.BrokerID]bool{}, notYet: now + deathPause}
}

// suspect says that the connection to a broker broke.
func (d *deaths) suspect(id cluster.BrokerID) {
	if d.suspected[id] = true; len(d.suspected) > 1 {
		clear(d.dead) // what is not written yet
	}
}

// refuses takes in that a suspected broker has refused connections for long
// enough.
func (d *deaths) refuses(now time.Duration, id cluster.BrokerID) judgement {
	switch {
	case d.dead[id]:
		return undecided
	case len(d.suspected) > 1 || now < d.notYet:
		return damped
	}
	d.dead[id], d.notYet = true, now+deathPause
	return proven
}

// forget says that something else than a refusal is heard of a broker, or that
// it is gone.
func (d *deaths) forget(id cluster.BrokerID) {
	delete(d.suspected, id)
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
	p.deaths.suspect(t.id)
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
	switch p.deaths.refuses(now, t.id) {
	case damped:
		p.Stats.DeathsDamped++
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
