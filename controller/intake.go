package controller

import (
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

// defaultSlice is how many partitions one Step takes in, looks at for the
// agenda, and decides: some 10 ms each.
const defaultSlice = 8192

// What an event costs to take in, in partitions.
const (
	eventCost   = 8
	resultsCost = 4 // so many results, or replicas that are reported, are one
)

// intake is what has happened and was not taken in yet. Events wait for those
// before them, and nothing is decided, pushed or shown while a batch is under
// way: the image is of no revision then.
type intake struct {
	events []Event
	batch  *cluster.Application // under way
	forget bool                 // the feed remembers nothing of the batch
	told   int                  // events of the batch that were observed
}

// Whole reports whether the image is that of one revision: only then may
// anybody look at it.
func (l *Loop) Whole() bool { return l.intake.batch == nil }

// Backlog reports whether events wait to be taken in: more of them should wait
// elsewhere.
func (l *Loop) Backlog() bool { return !l.Whole() || len(l.intake.events) > 0 }

// takeIn takes in a slice of what has happened. As long as the active one has a
// batch under way it hears of its lease before its turn: that does not depend
// on the batch.
func (l *Loop) takeIn(now election.Now, events []Event, out []Action) []Action {
	for _, ev := range events {
		if e, ok := ev.(Elected); ok && l.active && !l.Whole() {
			out = l.elect(l.candidate.Step(now, l.im, l.oldestWrite(now.Mono), e.Event), out)
			continue
		}
		l.intake.events = append(l.intake.events, ev)
	}
	in := &l.intake
	for limit := l.cfg.Slice; limit > 0; {
		switch {
		case in.batch != nil:
			limit = l.takeBatch(limit)
		case len(in.events) == 0:
			in.events = nil
			return out
		default:
			ev := in.events[0]
			in.events = in.events[1:]
			limit -= eventCost
			if w, ok := ev.(Watched); ok {
				l.begin(w.Batch)
			} else {
				limit -= results(ev) / resultsCost
				out = l.take(now, ev, out)
			}
		}
	}
	return out
}

// results is how many partitions a broker's word is about.
func results(ev Event) int {
	p, ok := ev.(Pushed)
	if !ok {
		return 0
	}
	switch said := p.Event.(type) {
	case rpc.Opened:
		return replicas(said.Hello.GetOffline(), said.Hello.GetStrays())
	case rpc.Received:
		r := said.Response.GetReport()
		return len(said.Response.GetResults().GetOutcomes()) +
			replicas(r.GetOffline(), r.GetRestored(), r.GetStrays(), r.GetFormerStrays())
	}
	return 0
}

func replicas(lists ...[]*pb.TopicReplicas) (n int) {
	for _, topics := range lists {
		for _, t := range topics {
			n += len(t.GetReplicas())
		}
	}
	return n
}

// begin begins to take in a batch.
func (l *Loop) begin(b store.Batch) {
	if len(l.healing) > 0 {
		for _, c := range b.Changes {
			delete(l.healing, c.KV.Key)
		}
	}
	if b.Reset { // the list tells all that they would
		l.comparing, l.missed = nil, nil
		clear(l.healing)
	}
	l.intake.batch, l.intake.told, l.intake.forget = l.im.Begin(b), 0, !l.feed.Begun()
}

// observe takes in a whole batch at once.
func (l *Loop) observe(b store.Batch) {
	for l.begin(b); !l.Whole(); {
		l.takeBatch(l.cfg.Slice)
	}
}

// takeBatch goes on with the batch: the image first, then those who follow it.
// It returns what is left of the limit.
func (l *Loop) takeBatch(limit int) int {
	in := &l.intake
	if in.batch.Next(limit) {
		return 0
	}
	events := in.batch.Events[in.told:]
	events = events[:min(len(events), limit)]
	l.machine.Observe(events)
	l.pusher.Observe(events)
	l.noteCutOff(events)
	l.countChanges(events)
	l.noteMoves(events)
	if !in.forget || in.told == 0 {
		l.feed.Observe(l.im, events)
	}
	if in.told += len(events); in.told == len(in.batch.Events) {
		in.batch = nil
	}
	return limit - len(events) - 1
}
