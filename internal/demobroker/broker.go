package demobroker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
)

// DefaultCaughtUpAfter is how long a follower takes to catch up.
const DefaultCaughtUpAfter = time.Second

// Config is a broker and how it behaves.
type Config struct {
	// Broker needs no Handler.
	Broker broker.Config
	// CaughtUpAfter is how long a follower that is back takes to catch up.
	CaughtUpAfter time.Duration
	// Fault, if set, is called before each new leader epoch is applied. It may
	// delay it, or make it fail.
	Fault func(ctx context.Context, s broker.PartitionState) error
}

// Broker is a demonstration broker that runs.
type Broker struct {
	*broker.Broker
	done chan struct{} // closed when its own goroutine has ended
}

// Start runs a broker until the context ends; see broker.Start.
func Start(ctx context.Context, cfg Config) (*Broker, error) {
	if cfg.CaughtUpAfter == 0 {
		cfg.CaughtUpAfter = DefaultCaughtUpAfter
	}
	h := &handler{fault: cfg.Fault, leader: newLeader(cfg.Broker.ID, cfg.CaughtUpAfter)}
	cfg.Broker.Handler = h
	b, err := broker.Start(ctx, cfg.Broker)
	if err != nil {
		return nil, err
	}
	log := cfg.Broker.Logger
	if log == nil {
		log = slog.Default()
	}
	d := &Broker{Broker: b, done: make(chan struct{})}
	go func() {
		defer close(d.done)
		h.lead(b, log.With("broker", int32(cfg.Broker.ID)))
	}()
	return d, nil
}

// Wait returns when everything has stopped; see broker.Broker.
func (d *Broker) Wait() error {
	err := d.Broker.Wait()
	<-d.done
	return err
}

// handler obeys, and keeps what the leader has to know.
type handler struct {
	fault func(context.Context, broker.PartitionState) error

	mu     sync.Mutex
	leader *leader
}

// ApplyPartition implements broker.Handler.
func (h *handler) ApplyPartition(ctx context.Context, s broker.PartitionState) error {
	if h.fault != nil {
		if err := h.fault(ctx, s); err != nil {
			return err
		}
	}
	h.AdoptISR(s)
	return nil
}

// StopReplica implements broker.Handler.
func (h *handler) StopReplica(_ context.Context, _ string, id cluster.PartitionID, _ bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leader.forget(id)
	return nil
}

// AdoptISR implements broker.Handler.
func (h *handler) AdoptISR(s broker.PartitionState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leader.apply(s)
}

// UpdateMetadata implements broker.Handler.
func (h *handler) UpdateMetadata(u broker.MetadataUpdate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leader.setLive(u.Live)
}

// lead proposes the changes that are due, until the broker has stopped.
func (h *handler) lead(b *broker.Broker, log *slog.Logger) {
	tick := time.NewTicker(min(max(h.leader.after/4, 10*time.Millisecond), 250*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-b.Done():
			return
		}
		h.mu.Lock()
		changes := h.leader.due(time.Now())
		h.mu.Unlock()
		for _, c := range changes {
			if err := b.ProposeISR(c, func(r broker.IsrResult, err error) { h.answered(c, r, err, log) }); err != nil {
				return // the broker stops
			}
		}
	}
}

func (h *handler) answered(c broker.IsrChange, r broker.IsrResult, err error, log *slog.Logger) {
	if err != nil && !errors.Is(err, broker.ErrClosed) {
		log.Warn("cannot report followers that caught up", "partition", c.Partition, "error", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leader.answered(c, r, err)
}
