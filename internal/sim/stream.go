package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/controllerd/controllerd/controller"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

const dialTimeout = 5 * time.Second

// stream carries commands of one daemon to one broker, in order, and answers
// back. What was on its way when it ended may still arrive, some time later.
type stream struct {
	w        *World
	id       rpc.StreamID
	d        *simDaemon
	b        *simBroker // nil: not connected yet
	leaving  lane       // out of the daemon
	up, down pipe
	inDaemon lane
	inBroker lane
	feed     fencing.Feed
	ended    bool // for the daemon
	gone     bool // for the broker
	fate     fate
	address  string
	tally    tally
}

// fate is what becomes of commands on their way when the stream ends.
type fate uint8

const (
	lost fate = iota
	delivered
	late
)

// push does what the loop wants of its streams.
func (d *simDaemon) push(a rpc.PushAction) {
	switch a := a.(type) {
	case rpc.Dial:
		s := &stream{w: d.w, id: a.Stream, d: d, fate: pick(d.w, lost, delivered, late), address: a.Address}
		s.up, s.down = pipe{w: d.w, flow: &s.link().out}, pipe{w: d.w, flow: &s.link().in}
		d.streams[a.Stream] = s
		d.after(d.w.upTo(time.Millisecond), &s.leaving, func() { s.dial(a.Address) })
	case rpc.Send:
		if s := d.streams[a.Stream]; s != nil {
			d.leave(&s.leaving, func(allowed bool) { s.send(a.Request, allowed) })
		}
	case rpc.Hangup:
		if s := d.streams[a.Stream]; s != nil {
			d.after(0, nil, func() { s.end(errStreamEnded) })
		}
		if r := d.probes[a.Stream]; r != nil {
			d.after(0, nil, r.end)
		}
	case rpc.Redial:
		d.probe(a)
	case rpc.Proven:
		d.w.tracef("%s: broker %d counts as dead", d.name, a.Broker)
	}
}

// openStreams are those of the daemon, in order.
func (d *simDaemon) openStreams() []*stream {
	return slices.SortedFunc(maps.Values(d.streams), func(a, b *stream) int { return int(a.id.Number - b.id.Number) })
}

func (s *stream) link() *link { return &s.w.control[s.d.index][s.id.Broker] }

func (s *stream) dial(address string) {
	if s.ended {
		return
	}
	w := s.w
	s.d.after(dialTimeout, nil, func() {
		if s.b == nil {
			s.end(errLate)
		}
	})
	switch {
	case s.link().broken():
		s.d.after(w.latency(), nil, func() { s.end(errUnreachable) })
		return
	case !s.link().open():
		return
	}
	s.up.send(func() {
		b := w.brokers[s.id.Broker]
		if b == nil || b.dead || b.address != address {
			s.d.after(w.latency(), nil, func() { s.end(errUnreachable) })
			return
		}
		b.after(0, &s.inBroker, func() { s.accepted(b) })
	})
}

// accepted is the broker's side of a new stream: it says hello.
func (s *stream) accepted(b *simBroker) {
	if s.ended {
		return
	}
	b.streams = append(b.streams, s)
	hello := b.gate.Hello()
	b.claimForeign(hello)
	s.w.tracef("%s: hello to %s on stream %d: resume %v", b.name, s.d.name, s.id.Number, hello.GetResume())
	s.back(func() {
		s.b = b
		s.d.post(controller.Pushed{Event: rpc.Opened{Stream: s.id, Hello: hello}})
	})
}

// send is the daemon's sender.
func (s *stream) send(r *pb.CommandsRequest, allowed bool) {
	switch {
	case s.ended:
	case !allowed:
		s.end(rpc.ErrQuiet)
	default:
		b := s.b
		s.tally.send(r)
		s.up.send(func() { s.arrive(b, r) })
	}
}

// arrive is a request at the broker's host.
func (s *stream) arrive(b *simBroker, r *pb.CommandsRequest) {
	delay := time.Duration(0)
	if s.ended {
		switch s.fate {
		case lost:
			return
		case late:
			delay = s.w.upTo(6 * time.Second)
		}
		s.w.seen["command of an ended stream"]++
	}
	b.after(delay, &s.inBroker, func() { s.receive(b, r) })
}

func (s *stream) receive(b *simBroker, r *pb.CommandsRequest) {
	switch r := r.GetRequest().(type) {
	case *pb.CommandsRequest_Ping:
		b.gate.Progress(&s.feed, r.Ping.GetProgress())
		s.answer(&pb.CommandsResponse{Response: &pb.CommandsResponse_Pong{Pong: b.gate.Pong(r.Ping.GetSequence())}})
	case *pb.CommandsRequest_Command:
		b.obey(s, r.Command)
		s.breakWithin(r.Command)
	}
}

// answer brings a response to the daemon.
func (s *stream) answer(r *pb.CommandsResponse) {
	s.back(func() {
		s.tally.receive(r)
		s.d.post(controller.Pushed{Event: rpc.Received{Stream: s.id, Response: r}})
	})
}

func (s *stream) back(fn func()) {
	if s.gone {
		return
	}
	s.down.send(func() {
		s.d.after(0, &s.inDaemon, func() {
			if !s.ended {
				fn()
			}
		})
	})
}

// end is the end of the stream at the daemon. The broker hears of it later.
func (s *stream) end(err error) {
	if s.ended {
		return
	}
	s.w.tracef("%s: stream %d to broker %d ends: %v", s.d.name, s.id.Number, s.id.Broker, err)
	s.tally.count(s.w.seen)
	s.daemonGone()
	delete(s.d.streams, s.id)
	closed := rpc.Closed{Stream: s.id, Err: fmt.Errorf("broker %d: %w", s.id.Broker, err)}
	if s.b != nil && errors.Is(err, errUnreachable) {
		closed.Broken = s.address
	}
	s.d.post(controller.Pushed{Event: closed})
}

func (s *stream) daemonGone() {
	s.ended = true
	s.w.after(s.w.latency(), func() { s.gone = true })
}

// brokerGone is the end of the broker's process: the connection is refused or,
// on a silent link, just dead.
func (s *stream) brokerGone() {
	s.gone = true
	if s.link().open() {
		s.w.after(s.w.latency(), func() { s.d.after(0, nil, func() { s.end(errUnreachable) }) })
	}
}
