package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/controllerd/controllerd/cluster"
)

// startWorker starts the worker of a partition that has got its first task.
func (b *Broker) startWorker(id cluster.PartitionID) {
	b.work.Go(func() {
		for b.workOnce(id) {
		}
	})
}

// workOnce does one task of a partition and reports whether there is another.
func (b *Broker) workOnce(id cluster.PartitionID) bool {
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	b.mu.Lock()
	t := b.workers[id].begin(cancel)
	t.state.MayCreate = t.state.IsNew || !b.storageFailed()
	missing := t.apply && !t.state.Stop && !t.state.MayCreate && b.cfg.Found != nil && !b.gate.Exists(id)
	b.mu.Unlock()

	var err error
	switch {
	case missing:
		err = fmt.Errorf("%w: the replica may be where storage has failed, and must not be created anew", ErrStorage)
	case t.state.Stop:
		err = b.cfg.Handler.StopReplica(ctx, t.state.Topic, id, t.state.Delete)
	case t.apply:
		err = b.cfg.Handler.ApplyPartition(ctx, t.state)
	default:
		b.cfg.Handler.AdoptISR(t.state)
	}

	b.mu.Lock()
	if w := b.workers[id]; w.spoiled && err == nil {
		err = fmt.Errorf("%w while the state was applied", ErrStorage)
	}
	more, failed, told := b.workers.end(id, err)
	switch {
	case failed:
		b.failed(&t.state, err, told)
	case err == nil && t.apply:
		b.gate.Applied(&t.state)
	}
	b.mu.Unlock()
	if failed && b.ctx.Err() == nil {
		b.log.Warn("handler failed", "topic", t.state.Topic, "partition", id.Index,
			"leader_epoch", int32(t.state.LeaderEpoch), "error", err)
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
