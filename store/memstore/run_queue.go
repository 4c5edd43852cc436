package memstore

import (
	"context"
	"fmt"
	"time"

	"github.com/controllerd/controllerd/store"
)

// AwaitTurn waits in a queue.
func (s *Store) AwaitTurn(ctx context.Context, prefix string, lease store.LeaseID, value []byte) (rev store.Rev, err error) {
	if err := ended(ctx, "queue"); err != nil {
		return 0, err
	}
	var older string
	s.Do(func(m *Model, _ time.Duration) { rev, older, err = m.Enqueue(prefix, lease, value) })
	for err == nil && older != "" {
		if s.awaitDelete(ctx, older); ctx.Err() != nil {
			err = ended(ctx, "queue")
			break
		}
		s.Do(func(m *Model, _ time.Duration) { older = m.Older(prefix, rev) })
	}
	if err != nil {
		return 0, fmt.Errorf("queue under %q: %w", prefix, err)
	}
	return rev, nil
}

// awaitDelete waits until a key is gone.
func (s *Store) awaitDelete(ctx context.Context, key string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var now store.Rev
	s.Do(func(m *Model, _ time.Duration) {
		if now = m.rev; m.keys[key].Key == "" {
			cancel()
		}
	})
	_ = s.Watch(ctx, store.Watch{Prefix: key, After: now}, func(b store.Batch) {
		for _, c := range b.Changes {
			if c.Deleted && c.KV.Key == key {
				cancel()
			}
		}
	})
}
