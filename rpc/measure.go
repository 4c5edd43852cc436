package rpc

import (
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// refusalKinds is how many kinds of pb.Refusal there are, none included.
const refusalKinds = pb.Refusal_REFUSAL_WRONG_BROKER + 1

// Refusals counts refused commands by reason: the index is a pb.Refusal.
type Refusals [refusalKinds]int64

// add counts one. A reason that this version does not know is not counted.
func (r *Refusals) add(reason pb.Refusal) {
	if int(reason) < len(r) {
		r[reason]++
	}
}

// Backlog is what a live broker has yet to confirm.
type Backlog struct {
	Broker    cluster.BrokerID
	Connected bool // its stream of commands is open
	Pending   int  // partition states on their way, or to be tried again
}

// Backlogs are those of all live brokers that have a control address, in order.
func (p *Pusher) Backlogs() []Backlog {
	out := make([]Backlog, len(p.order))
	for i, t := range p.order {
		out[i] = Backlog{Broker: t.id, Connected: t.phase == open, Pending: len(t.pending) + len(t.retries)}
	}
	return out
}

// OfflineAll is how many replicas of live brokers are offline.
func (p *Pusher) OfflineAll() int { return p.offline }

// sentTimes are when the last commands to a broker were sent, by sequence: as
// many as can be unanswered, and some more.
type sentTimes [2 * window]time.Duration

func (s *sentTimes) at(sequence int64) *time.Duration { return &s[sequence%int64(len(s))] }

// Mark notes what there is to tell by now; see Told and Acked.
func (p *Pusher) Mark() { p.mark, p.markAt = p.mark+1, p.changes.last }

// Told reports whether every broker has been sent all that there was at the
// mark. One that could not be reached yet does not count.
func (p *Pusher) Told() bool {
	return p.each(func(t *target) bool { return t.cursor >= p.markAt })
}

// Acked reports whether all of them have confirmed it, or failed: each was
// seen once with nothing on its way.
func (p *Pusher) Acked() bool {
	return p.each(func(t *target) bool {
		if t.cursor >= p.markAt && t.unacked == 0 && len(t.pending) == 0 {
			t.confirmed = p.mark
		}
		return t.confirmed == p.mark
	})
}

// each reports whether all brokers that can be reached, or were not tried yet,
// are as ok says.
func (p *Pusher) each(ok func(*target) bool) bool {
	all := p.followed == p.brokers
	for _, t := range p.order {
		if t.phase == open && t.began {
			all = ok(t) && all
		} else {
			all = t.again > 0 && all
		}
	}
	return all
}
