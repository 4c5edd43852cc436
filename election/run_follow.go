package election

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/controllerd/controllerd/store"
)

// Follow hands fn the prefix: once as it stands, then every change, for as
// long as the context lasts. A watch that fails or falls silent is replaced
// and goes on where it was; one that the store has compacted away begins
// again with a list. Nothing is left out either way.
func Follow(ctx context.Context, s store.Store, prefix string, ttl time.Duration, log *slog.Logger, fn func(store.Batch)) error {
	progress := min(ttl/4, 2*time.Second)
	again := firstPause
	var rev store.Rev
	for ctx.Err() == nil {
		if rev == 0 {
			read, err := list(ctx, s, prefix)
			if err != nil && ctx.Err() == nil {
				log.Warn("etcd does not answer, trying again", "error", err)
				pause(ctx, time.Second)
			}
			if err != nil {
				continue
			}
			fn(listed(read))
			rev = read.Rev
		}
		err := s.Watch(ctx, store.Watch{Prefix: prefix, After: rev, Progress: progress, Silence: 2 * ttl}, func(b store.Batch) {
			rev = max(rev, b.Rev)
			again = firstPause
			fn(b)
		})
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, store.ErrCompacted):
			log.Warn("watch was compacted away, listing again", "revision", rev)
			rev = 0
		default:
			log.Warn("watch ended, watching again", "revision", rev, "error", err)
			pause(ctx, again)
			again = min(2*again, time.Second)
		}
	}
	return ctx.Err()
}

// firstPause is how long a watch that ended is not begun again; it doubles, as
// long as none brings anything, to 1 s.
const firstPause = 100 * time.Millisecond

// listTimeout bounds the list of a whole prefix.
const listTimeout = 30 * time.Second

func list(ctx context.Context, s store.Store, prefix string) (store.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return s.List(ctx, prefix, false)
}

func listed(read store.Snapshot) store.Batch {
	b := store.Batch{Rev: read.Rev, Reset: true, Changes: make([]store.Change, len(read.KVs))}
	for i, kv := range read.KVs {
		b.Changes[i] = store.Change{KV: kv}
	}
	return b
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
