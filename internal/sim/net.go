package sim

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/store"
)

// link is the way between two processes, one state for each direction.
type link struct {
	out, in flow
	lost    []func() // calls that fail when the connection is replaced
}

type flow uint8

const (
	open   flow = iota
	silent      // everything vanishes
	reset       // connections break at once
)

func (l *link) open() bool { return l.out == open && l.in == open }

// broken reports whether either direction resets connections.
func (l *link) broken() bool { return l.out == reset || l.in == reset }

var (
	errTimeout = fmt.Errorf("%w: deadline exceeded", store.ErrUnknown)
	errBroken  = fmt.Errorf("%w: connection reset", store.ErrUnknown)
	errCancel  = fmt.Errorf("%w: context canceled", store.ErrUnknown)

	errStreamEnded   = errors.New("stream ended")
	errUnreachable   = status.Error(codes.Unavailable, "unreachable")
	errLate          = status.Error(codes.DeadlineExceeded, "deadline exceeded")
	errDaemonTooBusy = status.Error(codes.Unavailable, "etcd does not answer")
)

// latency is how long a message takes. In noise some take very long.
func (w *World) latency() time.Duration {
	d := w.p.latency/2 + w.upTo(w.p.latency)
	if w.chance(w.noise) {
		d += w.upTo(pick(w, 100*time.Millisecond, time.Second, 8*time.Second))
	}
	return d
}

// passes reports whether a message of a call gets through. Those of streams
// are not lost one by one: they wait, or the stream breaks.
func (w *World) passes(f flow) bool { return f == open && !w.chance(w.noise/2) }

// lose lets a call fail for which a message was lost: when the connection is
// found to be dead. On a silent link that is not before it works again.
func (w *World) lose(l *link, fail func()) {
	if l.open() {
		w.after(w.upTo(4*time.Second), fail)
	} else {
		l.lost = append(l.lost, fail)
	}
}

// set changes a link, and lets those calls fail that have waited for it.
func (l *link) set(to link) {
	lost := l.lost
	*l = to
	for _, fail := range lost {
		fail()
	}
}

// pipe is one direction of a connection: in order, and what is sent while the
// link is silent waits.
type pipe struct {
	w    *World
	flow *flow
	lane lane
	held []func()
}

func (p *pipe) send(arrive func()) {
	p.w.after(p.lane.next(p.w.now, p.w.latency()), func() {
		if *p.flow == silent || len(p.held) > 0 {
			p.held = append(p.held, arrive)
		} else {
			arrive()
		}
	})
}

// release goes on after a silence. A connection that has not survived it stays
// silent.
func (p *pipe) release(survives bool) {
	if !survives && len(p.held) > 0 {
		return
	}
	held := p.held
	p.held = nil
	for _, arrive := range held {
		arrive()
	}
}
