package memstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/controllerd/controllerd/store"
)

// Store is a store.Store around a Model, in real time. It is safe for
// concurrent use.
type Store struct {
	start time.Time

	mu       sync.Mutex
	model    *Model
	watchers map[*watcher]bool
	expiry   time.Duration // of the lease that expires next, as the watches know it
}

var _ store.Store = (*Store)(nil)

// watcher is a running Watch. What happens is queued at once, so that a
// compaction right after it takes nothing away.
type watcher struct {
	prefix string
	seen   store.Rev
	queue  []store.Batch
	wake   chan struct{} // holds one token
}

// New makes an empty store.
func New() *Store {
	return &Store{start: time.Now(), model: NewModel(), watchers: map[*watcher]bool{}}
}

// Do calls fn with the model and the time since the store was made, after
// leases that are due were expired. What fn changes reaches the watches.
func (s *Store) Do(fn func(m *Model, now time.Duration)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Since(s.start)
	s.model.Expire(now)
	s.publish() // before fn, which may compact
	fn(s.model, now)
	s.publish()
}

// publish gives the watches what is new, and wakes those that got something,
// or all if there is another deadline to wait for.
func (s *Store) publish() {
	expiry, _ := s.model.NextExpiry()
	moved := expiry != s.expiry
	s.expiry = expiry
	for w := range s.watchers {
		if batch, err := s.model.ChangesSince(w.prefix, w.seen); err == nil && batch.Rev > 0 {
			w.seen = s.model.Rev()
			if len(batch.Changes) > 0 {
				w.queue = append(w.queue, batch)
			}
		}
		if moved || len(w.queue) > 0 {
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
	}
}

// ended is the error of a call whose context has ended.
func ended(ctx context.Context, verb string) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: %w", verb, store.ErrUnknown, ctx.Err())
}

// Commit runs one transaction.
func (s *Store) Commit(ctx context.Context, txn store.Txn) (res store.Result, err error) {
	if err := ended(ctx, "commit transaction"); err != nil {
		return store.Result{}, err
	}
	s.Do(func(m *Model, _ time.Duration) { res, err = m.Txn(txn) })
	return res, err
}

// Get reads keys.
func (s *Store) Get(ctx context.Context, keys ...string) (snap store.Snapshot, err error) {
	if err := ended(ctx, "get keys"); err != nil {
		return store.Snapshot{}, err
	}
	s.Do(func(m *Model, _ time.Duration) { snap, err = m.Get(keys...) })
	return snap, err
}

// List reads a prefix.
func (s *Store) List(ctx context.Context, prefix string, keysOnly bool) (snap store.Snapshot, err error) {
	if err := ended(ctx, "list prefix"); err != nil {
		return store.Snapshot{}, err
	}
	s.Do(func(m *Model, _ time.Duration) { snap = m.List(prefix, keysOnly) })
	return snap, nil
}

// Grant makes a lease.
func (s *Store) Grant(ctx context.Context, ttl time.Duration) (l store.Lease, err error) {
	if err := ended(ctx, "grant lease"); err != nil {
		return store.Lease{}, err
	}
	s.Do(func(m *Model, now time.Duration) { l, err = m.Grant(now, ttl) })
	return l, err
}

// Renew starts a lease's TTL again.
func (s *Store) Renew(ctx context.Context, id store.LeaseID) (ttl time.Duration, err error) {
	if err := ended(ctx, "renew lease"); err != nil {
		return 0, err
	}
	s.Do(func(m *Model, now time.Duration) { ttl, err = m.Renew(now, id) })
	return ttl, err
}

// Revoke ends a lease.
func (s *Store) Revoke(ctx context.Context, id store.LeaseID) error {
	if err := ended(ctx, "revoke lease"); err != nil {
		return err
	}
	s.Do(func(m *Model, _ time.Duration) { m.Revoke(id) })
	return nil
}

// Compact forgets the history below rev.
func (s *Store) Compact(rev store.Rev) (err error) {
	s.Do(func(m *Model, _ time.Duration) { err = m.Compact(rev) })
	return err
}

// Watch reports the changes of a prefix. It is never silent.
func (s *Store) Watch(ctx context.Context, w store.Watch, fn func(store.Batch)) error {
	me, err := s.addWatcher(w)
	if err != nil {
		return fmt.Errorf("watch %q: %w", w.Prefix, err)
	}
	defer s.removeWatcher(me)
	var progress <-chan time.Time
	if w.Progress > 0 {
		tick := time.NewTicker(w.Progress)
		defer tick.Stop()
		progress = tick.C
	}
	expiry := time.NewTimer(time.Hour)
	defer expiry.Stop()
	for {
		s.setExpiry(expiry)
		asked := false
		select {
		case <-ctx.Done():
			return fmt.Errorf("watch %q: %w", w.Prefix, ctx.Err())
		case <-me.wake:
		case <-expiry.C:
		case <-progress:
			asked = true
		}
		for _, batch := range s.take(me, asked) {
			if ctx.Err() != nil {
				break
			}
			fn(batch)
		}
	}
}

func (s *Store) addWatcher(w store.Watch) (*watcher, error) {
	me := &watcher{prefix: w.Prefix, seen: w.After, wake: make(chan struct{}, 1)}
	var err error
	s.Do(func(m *Model, _ time.Duration) {
		if _, err = m.ChangesSince(w.Prefix, w.After); err == nil {
			s.watchers[me] = true
		}
	})
	return me, err
}

func (s *Store) removeWatcher(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, w)
}

// take empties the queue of a watch; if it was asked for and nothing is there,
// a progress notification comes.
func (s *Store) take(w *watcher, progress bool) (batches []store.Batch) {
	s.Do(func(m *Model, _ time.Duration) {
		batches, w.queue = w.queue, nil
		if len(batches) == 0 && progress && w.seen <= m.Rev() {
			batches = []store.Batch{{Rev: m.Rev()}}
		}
	})
	return batches
}

// setExpiry lets the timer fire when the next lease is due, so that a watch
// sees it expire although nobody calls.
func (s *Store) setExpiry(timer *time.Timer) {
	s.mu.Lock()
	at, ok := s.model.NextExpiry()
	s.mu.Unlock()
	if ok {
		timer.Reset(time.Until(s.start.Add(at)))
	} else {
		timer.Stop()
	}
}
