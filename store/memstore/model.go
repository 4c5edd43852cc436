package memstore

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/controllerd/controllerd/store"
)

// DefaultMinTTL is the shortest lease of an etcd with default timings.
const DefaultMinTTL = 2 * time.Second

// Model is the state of one store. It is not safe for concurrent use. Slices
// that it returns share values with it: they must not be changed.
type Model struct {
	// MinTTL is the shortest lease that Grant makes.
	MinTTL time.Duration
	// NoSpace refuses transactions that put, and grants, as etcd does once its
	// quota was exceeded. Reads, deletions and renewals go on.
	NoSpace bool

	rev       store.Rev
	compacted store.Rev
	keys      map[string]store.KV
	history   []store.Change // above compacted, in order of revision
	leases    map[store.LeaseID]*lease
	lastLease store.LeaseID
}

// NewModel makes an empty store, which for etcd stands at revision 1.
func NewModel() *Model {
	return &Model{
		MinTTL: DefaultMinTTL,
		rev:    1,
		keys:   map[string]store.KV{},
		leases: map[store.LeaseID]*lease{},
	}
}

// Rev is the current revision.
func (m *Model) Rev() store.Rev { return m.rev }

// Txn runs one transaction; see store.Store.
func (m *Model) Txn(txn store.Txn) (store.Result, error) {
	if err := txn.Validate(); err != nil {
		return store.Result{}, err
	}
	if m.NoSpace && slices.ContainsFunc(txn.Then, isPut) { // even if no condition holds
		return store.Result{}, fmt.Errorf("commit transaction: %w: %w", store.ErrNoSpace, store.ErrUnknown)
	}
	if !m.holds(txn.If) {
		return store.Result{Rev: m.rev, Found: m.found(txn.If)}, nil
	}
	if err := m.check(txn.Then); err != nil {
		return store.Result{}, fmt.Errorf("commit transaction: %w", err)
	}
	m.write(txn.Then)
	return store.Result{Succeeded: true, Rev: m.rev}, nil
}

func isPut(op store.Op) bool { return op.Kind == store.OpPut }

func (m *Model) holds(conds []store.Cond) bool {
	for _, c := range conds {
		kv := m.keys[c.Key]
		rev := kv.ModRev
		if c.Field == store.CreateRev {
			rev = kv.CreateRev
		}
		if rev != c.Rev {
			return false
		}
	}
	return true
}

func (m *Model) found(conds []store.Cond) []store.KV {
	seen := make(map[string]bool, len(conds))
	var out []store.KV
	for _, c := range conds {
		if kv, ok := m.keys[c.Key]; ok && !seen[c.Key] {
			seen[c.Key] = true
			out = append(out, keyOnly(kv))
		}
	}
	return out
}

func keyOnly(kv store.KV) store.KV {
	kv.Value, kv.Lease = nil, 0
	return kv
}

// check finds what makes the whole transaction fail before it writes.
func (m *Model) check(ops []store.Op) error {
	for _, op := range ops {
		switch {
		case op.Kind == store.OpDelete, op.Kind == store.OpDeletePrefix:
		case op.KeepLease:
			if _, ok := m.keys[op.Key]; !ok {
				return fmt.Errorf("key %q: %w", op.Key, store.ErrKeyNotFound)
			}
		case op.Lease != 0 && m.leases[op.Lease] == nil:
			return fmt.Errorf("lease %x: %w", op.Lease, store.ErrLeaseNotFound)
		}
	}
	return nil
}

// write does the operations at one new revision, unless none changes anything.
func (m *Model) write(ops []store.Op) {
	rev := m.rev + 1
	for _, op := range ops {
		switch op.Kind {
		case store.OpDelete:
			m.delete(op.Key, rev)
		case store.OpDeletePrefix:
			for _, kv := range m.List(op.Key, true).KVs {
				m.delete(kv.Key, rev)
			}
		default:
			m.put(op, rev)
		}
	}
}

func (m *Model) put(op store.Op, rev store.Rev) {
	old, exists := m.keys[op.Key]
	kv := store.KV{Key: op.Key, Value: bytes.Clone(op.Value), CreateRev: rev, ModRev: rev, Lease: op.Lease}
	if exists {
		kv.CreateRev = old.CreateRev
	}
	if op.KeepLease {
		kv.Lease = old.Lease
	}
	m.attach(op.Key, old.Lease, kv.Lease)
	m.keys[op.Key] = kv
	m.record(store.Change{KV: kv})
}

func (m *Model) delete(key string, rev store.Rev) {
	old, exists := m.keys[key]
	if !exists {
		return
	}
	m.attach(key, old.Lease, 0)
	delete(m.keys, key)
	m.record(store.Change{KV: store.KV{Key: key, ModRev: rev}, Deleted: true})
}

func (m *Model) record(c store.Change) {
	m.rev = c.KV.ModRev
	m.history = append(m.history, c)
}

// Get reads keys; see store.Store.
func (m *Model) Get(keys ...string) (store.Snapshot, error) {
	set, err := store.ReadSet(keys)
	if err != nil {
		return store.Snapshot{}, err
	}
	snap := store.Snapshot{Rev: m.rev}
	for _, k := range set {
		if kv, ok := m.keys[k]; ok {
			snap.KVs = append(snap.KVs, kv)
		}
	}
	return snap, nil
}

// List reads a prefix; see store.Store.
func (m *Model) List(prefix string, keysOnly bool) store.Snapshot {
	snap := store.Snapshot{Rev: m.rev}
	for key, kv := range m.keys {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		if keysOnly {
			kv = keyOnly(kv)
		}
		snap.KVs = append(snap.KVs, kv)
	}
	slices.SortFunc(snap.KVs, func(a, b store.KV) int { return cmp.Compare(a.Key, b.Key) })
	return snap
}

// ChangesSince is what a watch of the prefix would have brought since revision
// after, in one batch; without changes it is a progress notification. A batch
// at revision 0 says that after is still to come. ErrCompacted if the history
// is gone.
func (m *Model) ChangesSince(prefix string, after store.Rev) (store.Batch, error) {
	if max(after, 1) < m.compacted {
		return store.Batch{}, fmt.Errorf("read history after %d: %w at %d", after, store.ErrCompacted, m.compacted)
	}
	if after > m.rev {
		return store.Batch{}, nil
	}
	batch := store.Batch{Rev: m.rev}
	from, _ := slices.BinarySearchFunc(m.history, after+1, func(c store.Change, rev store.Rev) int {
		return cmp.Compare(c.KV.ModRev, rev)
	})
	for _, c := range m.history[from:] {
		if strings.HasPrefix(c.KV.Key, prefix) {
			batch.Changes = append(batch.Changes, c)
		}
	}
	if n := len(batch.Changes); n > 0 {
		batch.Rev = batch.Changes[n-1].KV.ModRev
	}
	return batch, nil
}

// Compact forgets the history below rev. ErrCompacted if that was done
// already.
func (m *Model) Compact(rev store.Rev) error {
	if rev <= m.compacted {
		return fmt.Errorf("compact to %d: %w at %d", rev, store.ErrCompacted, m.compacted)
	}
	if rev > m.rev {
		return fmt.Errorf("compact to %d: the store is at %d", rev, m.rev)
	}
	m.compacted = rev
	keep, _ := slices.BinarySearchFunc(m.history, rev+1, func(c store.Change, rev store.Rev) int {
		return cmp.Compare(c.KV.ModRev, rev)
	})
	m.history = slices.Clone(m.history[keep:])
	return nil
}
