package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	"github.com/controllerd/controllerd/internal/demobroker"
)

// node is a broker that notes what it obeyed, and when.
type node struct {
	*demobroker.Broker
	id cluster.BrokerID

	mu      sync.Mutex
	first   map[cluster.Epoch]time.Time // when it obeyed the first command of a term
	highest cluster.Epoch
	late    int // commands obeyed after one of a higher epoch
	refused int
	applied map[cluster.PartitionID]cluster.LeaderEpoch
	calls   int       // of the handler, since they were last counted from 0
	last    time.Time // of them
	told    time.Time // of the first UpdateMetadata since then
}

// never is how long followers take that are never reported.
const never = 24 * time.Hour

// startNode starts a broker, and returns when it is registered. As a leader it
// reports followers that are back after catchUp.
func (w *world) startNode(ctx context.Context, id cluster.BrokerID, catchUp time.Duration) error {
	n, err := w.launchNode(ctx, id, catchUp)
	if err != nil {
		return err
	}
	return n.await(ctx)
}

// launchNode starts a broker that runs until the context ends.
func (w *world) launchNode(ctx context.Context, id cluster.BrokerID, catchUp time.Duration) (*node, error) {
	n := &node{id: id, first: map[cluster.Epoch]time.Time{}, applied: map[cluster.PartitionID]cluster.LeaderEpoch{}}
	var err error
	n.Broker, err = demobroker.Start(ctx, demobroker.Config{
		Broker: broker.Config{
			ID: id, NodeUUID: fmt.Sprint("bench-", id), Daemons: w.endpoints(),
			Observer: n.observe, Logger: slog.New(slog.DiscardHandler),
		},
		CaughtUpAfter: catchUp,
		Fault:         n.apply,
	})
	if err != nil {
		return nil, err
	}
	w.nodes[id] = n
	return n, nil
}

// await returns when the broker is registered.
func (n *node) await(ctx context.Context) error {
	select {
	case <-n.Registered():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("register broker %d: %w", n.id, ctx.Err())
	}
}

func (n *node) observe(o broker.Observation) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch o.Result {
	case fencing.Admitted.String(), fencing.IsrAdopted.String(), fencing.Already.String():
	default:
		n.refused++
		return
	}
	if n.first[o.ControllerEpoch].IsZero() {
		n.first[o.ControllerEpoch] = o.Time
	}
	if o.ControllerEpoch < n.highest {
		n.late++
	}
	n.highest = max(n.highest, o.ControllerEpoch)
	if o.Command == broker.UpdateMetadata && n.told.IsZero() {
		n.told = o.Time
	}
}

// apply is called when a handler begins.
func (n *node) apply(_ context.Context, s broker.PartitionState) error {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.applied[s.Partition] = s.LeaderEpoch
	n.calls++
	n.last = now
	return nil
}

// firstCommand is when a broker first obeyed a term, zero if none did yet.
func (w *world) firstCommand(e cluster.Epoch) time.Time {
	var first time.Time
	for _, n := range w.nodes {
		n.mu.Lock()
		if at := n.first[e]; !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
		n.mu.Unlock()
	}
	return first
}

// awaitCommand waits until some broker has obeyed a term.
func (w *world) awaitCommand(ctx context.Context, e cluster.Epoch) (time.Time, error) {
	for {
		if at := w.firstCommand(e); !at.IsZero() {
			return at, nil
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return time.Time{}, fmt.Errorf("waited for a command of epoch %d in vain: %w", e, err)
		}
	}
}

// checkOrder fails if any broker obeyed a term after a later one.
func (w *world) checkOrder() error {
	for id, n := range w.nodes {
		n.mu.Lock()
		late := n.late
		n.mu.Unlock()
		if late > 0 {
			return fmt.Errorf("broker %d obeyed %d commands of a term that was over", id, late)
		}
	}
	return nil
}

// countCalls begins to count the calls of handlers, and to look for metadata.
func (w *world) countCalls() {
	for _, n := range w.nodes {
		n.mu.Lock()
		n.calls, n.told = 0, time.Time{}
		n.mu.Unlock()
	}
}

// awaitCalls waits for so many calls of handlers, and returns when the last
// one began.
func (w *world) awaitCalls(ctx context.Context, want int) (time.Time, error) {
	for {
		calls, last := 0, time.Time{}
		for _, n := range w.nodes {
			n.mu.Lock()
			calls += n.calls
			if n.last.After(last) {
				last = n.last
			}
			n.mu.Unlock()
		}
		if calls >= want {
			return last, nil
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return time.Time{}, fmt.Errorf("%d of %d handlers were called: %w", calls, want, err)
		}
	}
}

// awaitAll waits until every broker has a time, and returns the last one.
func (w *world) awaitAll(ctx context.Context, what string, of func(*node) time.Time) (time.Time, error) {
	for {
		missing, last := 0, time.Time{}
		for _, n := range w.nodes {
			n.mu.Lock()
			at := of(n)
			n.mu.Unlock()
			if at.IsZero() {
				missing++
			} else if at.After(last) {
				last = at
			}
		}
		if missing == 0 {
			return last, nil
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return time.Time{}, fmt.Errorf("waited for %s: %d of %d brokers are without: %w", what, missing, len(w.nodes), err)
		}
	}
}
