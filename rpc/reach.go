package rpc

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// UnreachableAfter is for how long a live broker must have answered on no
// stream of commands to count as unreachable.
const UnreachableAfter = 30 * time.Second

// Reach is how the live brokers that have a control address are reached.
type Reach struct {
	// Answering are those that answer on an open stream, in order.
	Answering []cluster.BrokerID
	// Overdue are those that have not answered for too long, in order.
	Overdue []cluster.BrokerID
	// Silent is how many do not answer at present, those that are overdue too.
	Silent int
}

// Brokers is how many there are.
func (r *Reach) Brokers() int { return len(r.Answering) + r.Silent }

// Reach tells who has not answered for that long. The time is the term's own:
// each active begins anew.
func (p *Pusher) Reach(now, overdue time.Duration) Reach {
	var r Reach
	for _, t := range p.order {
		switch {
		case t.answers:
			r.Answering = append(r.Answering, t.id)
		case now-t.silentSince >= overdue:
			r.Overdue = append(r.Overdue, t.id)
			fallthrough
		default:
			r.Silent++
		}
	}
	return r
}

// Contact is what the active knows of its stream to a broker.
type Contact struct {
	// ResumePoint is the revision up to which the broker was told everything
	// and has applied it; 0: no stream is open, or it has yet to begin.
	ResumePoint store.Rev
	// Problem is why it gets no commands, or what it cannot do of what they say;
	// empty: nothing is wrong.
	Problem string
}

// Contacts are those of all live brokers that have a control address.
func (p *Pusher) Contacts(im *cluster.Image) map[cluster.BrokerID]Contact {
	out := make(map[cluster.BrokerID]Contact, len(p.order))
	for _, t := range p.order {
		c := Contact{Problem: t.problem}
		if c.Problem == "" {
			c.Problem = t.stuckInShort(im)
		}
		if t.phase == open && t.began {
			c.ResumePoint = p.resumePoint(im, t)
		}
		out[t.id] = c
	}
	return out
}

// readdressed reports whether a broker is to be reached otherwise than before,
// or named otherwise to others.
func readdressed(old, now *pb.BrokerRecord) bool {
	same := func(a, b *pb.Endpoint) bool { return proto.Equal(a, b) }
	return old.GetControlAddress() != now.GetControlAddress() || old.GetRack() != now.GetRack() ||
		!slices.EqualFunc(old.GetEndpoints(), now.GetEndpoints(), same)
}

// stranger leaves an address at which somebody else answers, and looks whether
// the broker has another one by now. Until then it is tried again, less and
// less often: whoever is there may leave.
func (p *Pusher) stranger(now time.Duration, t *target, problem string, out []PushAction) []PushAction {
	return append(p.hangUp(now, t, problem, out), Reread{t.id})
}

// hangUp gives a stream up; a new one is opened after a while.
func (p *Pusher) hangUp(now time.Duration, t *target, problem string, out []PushAction) []PushAction {
	stream := t.stream
	p.closing[stream] = true
	t.closed(now)
	t.problem = problem
	return append(out, Hangup{stream})
}
