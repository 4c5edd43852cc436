package broker

import (
	"context"
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
	b.mu.Unlock()

	var err error
	switch {
	case t.state.Stop:
		err = b.cfg.Handler.StopReplica(ctx, t.state.Topic, id, t.state.Delete)
	case t.apply:
		err = b.cfg.Handler.ApplyPartition(ctx, t.state)
	default:
		b.cfg.Handler.AdoptISR(t.state)
	}

	b.mu.Lock()
	more, failed, told := b.workers.end(id, err)
	if failed {
		b.gate.Failed(id, t.state.LeaderEpoch)
		b.resyncUnless(told)
	}
	b.mu.Unlock()
	if failed && b.ctx.Err() == nil {
		b.log.Warn("handler failed", "topic", t.state.Topic, "partition", id.Index,
			"leader_epoch", int32(t.state.LeaderEpoch), "error", err)
	}
	return more && b.ctx.Err() == nil
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
