package rpc

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Any other broker that is suspected, and a broker that was taken for dead
// shortly before, keep one from being taken for dead.
func TestDeaths(t *testing.T) {
	// what happens, and to whom: s suspected, r refuses, a answers or is gone; a
	// number lets so many seconds pass, - makes the term younger than 10 s.
	cases := []struct{ name, events, want string }{
		{"one", "s1 r1", "1"},
		{"a broken connection is no death", "s1", ""},
		{"once only", "s1 r1 r1 r1", "1"},
		{"too early in the term", "-1 s1 r1", ""},
		{"in time after all", "-1 s1 r1 1 r1", "1"},
		{"two at once", "s1 s2 r1 r2 r1 r2", ""},
		{"another is suspected", "s1 s2 r1", ""},
		{"another is suspected before it is written", "s1 r1 s2", ""},
		{"another was, and answers", "s1 s2 r1 a2 r1", "1"},
		{"another, and the first is gone", "s1 s2 r1 a1 r2", "2"},
		{"another within 10 s", "s1 r1 a1 9 s2 r2", ""},
		{"another after 10 s", "s1 r1 a1 9 s2 r2 1 r2", "2"},
		{"the same again within 10 s", "s1 r1 a1 9 s1 r1", ""},
		{"it answers in between", "s1 r1 a1", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			now := time.Hour
			d := beginDeaths(now - deathPause)
			for _, ev := range strings.Fields(c.events) {
				id := cluster.BrokerID(ev[len(ev)-1] - '0')
				switch ev[0] {
				case 's':
					d.suspect(id)
				case 'r':
					d.refuses(now, id)
				case 'a':
					d.forget(id)
				case '-':
					d = beginDeaths(now - deathPause + time.Second)
				default:
					now += time.Duration(id) * time.Second
				}
			}
			got := ""
			for id := cluster.BrokerID(1); id < 3; id++ {
				if d.dead[id] {
					got += string(rune('0' + id))
				}
			}
			if got != c.want {
				t.Errorf("dead: %q, want %q", got, c.want)
			}
		})
	}
}

func probed(r *pb.BrokerRecord) { r.DeathProbe = true }

const brokenAt = "10.0.0.1:9092"

// probingHub is a pusher with two brokers that have admitted a command, well
// after the begin of its term.
func probingHub(t *testing.T) *hub {
	t.Helper()
	h := newHub(t)
	h.p.DeathProbe = true
	h.broker(1, probed)
	h.broker(2, probed)
	h.begin(1)
	h.step()
	for id := range cluster.BrokerID(2) {
		h.opens(id + 1)
		h.step()
		h.admits(id + 1)
	}
	h.now += 11 * time.Second
	for id := range cluster.BrokerID(2) {
		h.pong(id + 1)
	}
	h.done = nil
	return h
}

// breaks ends the connection of a broker, and returns the stream.
func (h *hub) breaks(id cluster.BrokerID) StreamID {
	h.t.Helper()
	s := h.streams[id]
	h.take(Closed{Stream: s, Err: errors.New("EOF"), Broken: brokenAt})
	return s
}

func (h *hub) dead() (ids []cluster.BrokerID) {
	for _, b := range h.p.Dead(h.im) {
		ids = append(ids, b.ID)
	}
	return ids
}

// A broker that had admitted a command, and whose address refuses connections
// from then on, counts as dead until its key is gone.
func TestBrokerIsTakenForDead(t *testing.T) {
	h := probingHub(t)
	s := h.breaks(1)
	h.wants("redial 1 at " + brokenAt)
	h.step() // it is dialed as ever
	h.wants()
	if h.now += DeathWindow; len(h.dead()) != 0 {
		t.Error("dead before anything was refused")
	}
	h.take(Refused{Stream: s})
	h.wants("proven 1 at b1:1")
	if got := h.dead(); len(got) != 1 || got[0] != 1 || !h.p.CountsAsDead(1) || h.p.CountsAsDead(2) {
		t.Errorf("dead: %v", got)
	}
	h.gone(1)
	h.step()
	h.wants("hangup 1")
	if h.p.Stats.DeathsProven != 1 || h.p.Stats.DeathsDamped != 0 || len(h.dead()) != 0 {
		t.Errorf("counted %+v, dead %v", h.p.Stats, h.dead())
	}
}

func TestBrokerIsNotTakenForDead(t *testing.T) {
	cases := []struct {
		name string
		then func(h *hub) StreamID
	}{
		{"the stream ended, the connection did not break", func(h *hub) StreamID {
			h.closes(1, errors.New("done"))
			return h.streams[1]
		}},
		{"nobody has said who is there", func(h *hub) StreamID {
			h.closes(1, nil)
			h.now += time.Second
			h.step()
			h.opens(1)
			return h.breaks(1)
		}},
		{"its registration does not allow it", func(h *hub) StreamID {
			h.broker(3)
			h.step()
			h.opens(3)
			h.step()
			h.admits(3)
			s := h.breaks(3)
			if len(h.dead()) > 0 {
				h.t.Error("dead")
			}
			return s
		}},
		{"its registration does not allow it any more", func(h *hub) StreamID {
			s := h.breaks(1)
			h.broker(1)
			return s
		}},
		{"it has another address by now", func(h *hub) StreamID {
			s := h.breaks(1)
			h.broker(1, probed, func(r *pb.BrokerRecord) { r.ControlAddress = "elsewhere:1" })
			return s
		}},
		{"it has registered anew", func(h *hub) StreamID {
			s := h.breaks(1)
			h.gone(1)
			h.broker(1, probed)
			return s
		}},
		{"it is reached again", func(h *hub) StreamID {
			s := h.breaks(1)
			h.now += time.Second
			h.step()
			h.opens(1)
			return s
		}},
		{"something else than a refusal came in between", func(h *hub) StreamID {
			s := h.breaks(1)
			h.take(Closed{Stream: s})
			return s
		}},
		{"another refuses too", func(h *hub) StreamID {
			s := h.breaks(1)
			h.breaks(2)
			return s
		}},
		{"the term has ended", func(h *hub) StreamID {
			s := h.breaks(1)
			h.note(h.p.End())
			return s
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := probingHub(t)
			s := c.then(h)
			h.take(Refused{Stream: s})
			if got := h.dead(); len(got) > 0 {
				t.Errorf("dead: %v", got)
			}
		})
	}
}

// What the death of a broker would prove is still asked when its term ends, and
// the term waits for the answer.
func TestRedialEndsWithTheTerm(t *testing.T) {
	h := probingHub(t)
	s := h.breaks(1)
	h.closes(2, nil)
	h.done = nil
	h.note(h.p.End())
	h.wants("hangup 1")
	if h.p.Open() != 1 {
		t.Errorf("%d streams are open", h.p.Open())
	}
	h.take(Closed{Stream: s})
	if h.p.Open() != 0 {
		t.Errorf("%d streams are open", h.p.Open())
	}
}

// A daemon that probes nobody asks for nothing.
func TestNoDeathProbeOfBrokers(t *testing.T) {
	h := newHub(t)
	h.broker(1, probed)
	h.begin(1)
	for _, a := range h.p.Step(h.now, h.im) {
		if d, ok := a.(Dial); ok && d.Probe {
			t.Errorf("dials with a probe: %+v", d)
		}
	}
}
