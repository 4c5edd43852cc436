package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/controllerd/controllerd/cluster"
)

// startWorker puts a partition that has got its first task in line. It is
// called under the lock.
func (b *Broker) startWorker(id cluster.PartitionID) {
	b.ready = append(b.ready, id)
	b.callWorker()
}

// callWorker keeps a goroutine on its way to the line as long as a partition
// waits in it: a handler that blocks holds up no other partition, and handlers
// that do not block need no goroutine each.
func (b *Broker) callWorker() {
	if len(b.ready) > 0 && !b.coming {
		b.coming = true
		b.work.Go(b.serveLine)
	}
}

// serveLine works on partitions until none waits.
func (b *Broker) serveLine() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.coming = false
	for len(b.ready) > 0 && b.ctx.Err() == nil {
		id := b.ready[0]
		if b.ready = b.ready[1:]; len(b.ready) == 0 {
			b.ready = nil
		}
		b.callWorker()
		for b.workOnce(id) {
		}
	}
	b.tellResults()
}

// workOnce does one task of a partition and reports whether there is another.
// It gives up the lock while it does.
func (b *Broker) workOnce(id cluster.PartitionID) bool {
	ctx := &taskContext{parent: b.ctx}
	t := b.workers[id].begin(ctx.cancel)
	t.state.MayCreate = t.state.IsNew || !b.storageFailed()
	missing := t.apply && !t.state.Stop && !t.state.MayCreate && b.cfg.Found != nil && !b.gate.Exists(id)
	b.tellResults()
	b.mu.Unlock()
	began := time.Now()
	var err error
	if missing {
		err = fmt.Errorf("%w: the replica may be where storage has failed, and must not be created anew", ErrStorage)
	} else {
		err = b.handle(ctx, id, t)
	}
	took := time.Since(began)
	ctx.cancel()
	b.mu.Lock()
	if t.apply {
		b.measured.handled(took, err)
	}
	w := b.workers[id]
	if w.spoiled && err == nil {
		b.gate.Touched(id)
		err = fmt.Errorf("%w while the state was applied", ErrStorage)
	}
	more, failed, told := b.workers.end(id, err)
	switch {
	case failed:
		b.failed(&t.state, err, told)
		if w.restored { // what has just failed began before that
			b.setOnline(id)
		}
	case err == nil && t.apply:
		b.gate.Applied(&t.state)
	}
	if failed && b.ctx.Err() == nil {
		b.mu.Unlock()
		b.log.Warn("handler failed", "topic", t.state.Topic, "partition", id.Index,
			"leader_epoch", int32(t.state.LeaderEpoch), "error", err)
		b.mu.Lock()
	}
	return more && b.ctx.Err() == nil
}

// failed takes in that a handler failed, and that those streams are told. A
// replica whose storage failed is offline: every stream is told that. A stray
// that cannot be stopped is stopped again at the end of the next full sync.
func (b *Broker) failed(s *PartitionState, err error, told []*outbox) {
	switch {
	case b.gate.FailedStray(s.Partition):
	case errors.Is(err, ErrStorage) && !s.Stop:
		b.gate.Failed(s.Partition, s.LeaderEpoch)
		gone := b.gate.SetOffline(s.Partition)
		for o := range b.streams {
			o.tell(&o.report.offline, true, gone)
		}
	default:
		b.gate.Failed(s.Partition, s.LeaderEpoch)
		b.resyncUnless(told)
	}
}

func (b *Broker) handle(ctx context.Context, id cluster.PartitionID, t task) error {
	switch {
	case t.state.Stop:
		return b.cfg.Handler.StopReplica(ctx, t.state.Topic, id, t.state.Delete)
	case t.apply:
		return b.cfg.Handler.ApplyPartition(ctx, t.state)
	}
	b.cfg.Handler.AdoptISR(t.state)
	return nil
}

// tellResults lets the streams send what results there are, unless a partition
// waits in line: its result comes soon, and goes with them.
func (b *Broker) tellResults() {
	if len(b.ready) > 0 {
		return
	}
	for o := range b.streams {
		if len(o.results) > 0 {
			o.wake()
		}
	}
}

// resyncUnless ends all streams if one of them was not told of a failure: its
// controller would never try again. The next streams say everything.
func (b *Broker) resyncUnless(told []*outbox) {
	for o := range b.streams {
		if !slices.Contains(told, o) {
			close(b.again)
			b.again = make(chan struct{})
			return
		}
	}
}

// tellMetadata is the worker for metadata.
func (b *Broker) tellMetadata() {
	for b.ctx.Err() == nil {
		b.mu.Lock()
		u, ok := b.metadata.take()
		b.mu.Unlock()
		if !ok {
			return
		}
		b.cfg.Handler.UpdateMetadata(u)
	}
}

// taskContext is the context of a handler. Most handlers end without a look at
// it, so a real one is made only for one that looks.
type taskContext struct {
	parent context.Context

	mu    sync.Mutex
	real  context.Context // nil: nobody has looked
	end   context.CancelFunc
	ended bool
}

func (c *taskContext) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real == nil {
		c.real, c.end = context.WithCancel(c.parent)
		if c.ended {
			c.end()
		}
	}
	return c.real
}

func (c *taskContext) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.end != nil {
		c.end()
	}
}

// Deadline implements context.Context.
func (c *taskContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }

// Done implements context.Context.
func (c *taskContext) Done() <-chan struct{} { return c.made().Done() }

// Err implements context.Context.
func (c *taskContext) Err() error { return c.made().Err() }

// Value implements context.Context.
func (c *taskContext) Value(key any) any { return c.made().Value(key) }
