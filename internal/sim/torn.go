package sim

import (
	"time"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// tear lets the next stream that brings a broker a chunk break within it.
func (w *World) tear() {
	w.torn[w.rng.IntN(brokers)] = true
	w.stir()
}

// half is the part of a chunk that a command is.
type half uint8

const (
	whole half = iota // of a chunk, or of none
	replicas
	metadata
)

// tally is what a daemon has sent on a stream and heard of it.
type tally struct {
	sent, acked int64 // sequence numbers
	first       int64 // of the first half of the last chunk of two commands
	half        half  // what the last command was
	states      int   // of replicas sent
	results     int
}

func (t *tally) send(r *pb.CommandsRequest) {
	c := r.GetCommand()
	if c == nil {
		return
	}
	t.sent = c.GetSequence()
	was := t.half
	switch t.half = whole; {
	case c.GetLeaderAndIsr() != nil:
		t.half = replicas
	case len(c.GetUpdateMetadata().GetTopics()) > 0:
		t.half = metadata
	}
	if c.GetProgress() != nil { // behind a chunk
		if was != whole && t.half != whole && was != t.half {
			t.first = t.sent - 1
		}
		t.half = whole
	}
	for _, s := range c.GetLeaderAndIsr().GetTopics() {
		t.states += len(s.GetPartitions())
	}
	for _, s := range c.GetStopReplica().GetTopics() {
		t.states += len(s.GetPartitions())
	}
}

func (t *tally) receive(r *pb.CommandsResponse) {
	if a := r.GetAck(); a != nil {
		t.acked = a.GetSequence()
	}
	t.results += len(r.GetResults().GetOutcomes())
}

// count says how the stream ended.
func (t *tally) count(seen map[string]int) {
	if t.first != 0 && t.acked == t.first {
		seen["stream ended between the acks of a chunk"]++
	}
	if t.acked == t.sent && t.results < t.states {
		seen["stream ended with all acks and without all results"]++
	}
}

// breakWithin ends the stream while the broker works on what it has just been
// told.
func (s *stream) breakWithin(c *pb.Command) {
	w, id := s.w, s.id.Broker
	if !w.torn[id] || c.GetLeaderAndIsr() == nil && len(c.GetUpdateMetadata().GetTopics()) == 0 {
		return
	}
	w.torn[id] = false
	w.disturbed()
	w.after(w.upTo(pick(w, 0, 4*w.p.latency, 60*time.Millisecond)), func() {
		s.d.after(0, nil, func() { s.end(errUnreachable) })
	})
}
