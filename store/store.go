package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Rev is a revision of the store: it rises by one with each transaction that
// writes. 0 means "does not exist".
type Rev int64

// LeaseID names a lease. 0 means "no lease".
type LeaseID int64

// KV is one key as it stood at some revision.
type KV struct {
	Key       string
	Value     []byte
	CreateRev Rev // revision of the put that made the key, since it last did not exist
	ModRev    Rev // revision of its last put
	Lease     LeaseID
}

// Change is one put or delete that a watch reports. For a delete only KV.Key
// and KV.ModRev (the revision of the deletion) are set.
type Change struct {
	KV      KV
	Deleted bool
}

// Batch is a piece of the history of one prefix. All changes of one revision
// are in the same batch; batches arrive in order of revision. A batch without
// changes is a progress notification.
type Batch struct {
	Rev     Rev  // nothing at or below this revision is still to come
	Reset   bool // Changes is the whole prefix as it stands at Rev, as puts
	Changes []Change
}

// Field selects what a Cond compares.
type Field uint8

// The fields that a Cond can compare.
const (
	ModRev Field = iota
	CreateRev
)

// Cond holds if the field of the key equals Rev. A key that does not exist has
// 0 in both fields.
type Cond struct {
	Key   string
	Field Field
	Rev   Rev
}

// ModRevIs is the condition that the key's last put was at rev.
func ModRevIs(key string, rev Rev) Cond { return Cond{Key: key, Field: ModRev, Rev: rev} }

// CreateRevIs is the condition that the key was made at rev.
func CreateRevIs(key string, rev Rev) Cond { return Cond{Key: key, Field: CreateRev, Rev: rev} }

// Missing is the condition that the key does not exist.
func Missing(key string) Cond { return Cond{Key: key, Field: CreateRev} }

// OpKind is what an Op does.
type OpKind uint8

// The kinds of Op.
const (
	OpPut OpKind = iota
	OpDelete
	OpDeletePrefix
)

// Op is one write of a transaction.
type Op struct {
	Kind  OpKind
	Key   string // of OpDeletePrefix, the prefix
	Value []byte
	Lease LeaseID // attach the key to this lease; 0 detaches it
	// KeepLease leaves the key on the lease that it has. It fails the whole
	// transaction if the key is missing, so a Cond must stop it first.
	KeepLease bool
}

// Put writes a key that has no lease.
func Put(key string, value []byte) Op { return Op{Kind: OpPut, Key: key, Value: value} }

// PutLeased writes a key that lives as long as the lease.
func PutLeased(key string, value []byte, lease LeaseID) Op {
	return Op{Kind: OpPut, Key: key, Value: value, Lease: lease}
}

// PutKeepLease rewrites an existing key and leaves its lease as it is.
func PutKeepLease(key string, value []byte) Op {
	return Op{Kind: OpPut, Key: key, Value: value, KeepLease: true}
}

// DeletePrefix removes all keys with a prefix, which counts as one operation
// however many they are.
func DeletePrefix(prefix string) Op { return Op{Kind: OpDeletePrefix, Key: prefix} }

// Delete removes a key; it does nothing if the key does not exist.
func Delete(key string) Op { return Op{Kind: OpDelete, Key: key} }

// Limits of one transaction, those of etcd's defaults.
const (
	MaxConds    = 128
	MaxOps      = 128
	MaxTxnBytes = 1536 * 1024 // of the encoded request
)

// Txn does all of Then if all of If hold, otherwise nothing. No key may occur
// twice in Then, nor under a prefix that is deleted.
type Txn struct {
	If   []Cond
	Then []Op
}

// Bytes that a request needs at most beside keys and values: in all, for a
// condition together with its part of Result.Found, for an operation.
const (
	txnOverhead  = 128
	condOverhead = 48
	opOverhead   = 40
)

// Size is the most bytes that the condition takes of a request. The store
// reads the key of a condition once more to tell what it found.
func (c Cond) Size() int { return 2*len(c.Key) + condOverhead }

// Size is the most bytes that the operation takes of a request.
func (op Op) Size() int {
	if op.Kind == OpDeletePrefix { // its range has two ends
		return 2*len(op.Key) + opOverhead
	}
	return len(op.Key) + len(op.Value) + opOverhead
}

// Size is the most bytes that the encoded request takes; MaxTxnBytes is its
// limit.
func (t Txn) Size() int {
	size := txnOverhead
	for _, c := range t.If {
		size += c.Size()
	}
	for _, op := range t.Then {
		size += op.Size()
	}
	return size
}

// Validate reports what makes the transaction one that no Store runs: no
// condition (ErrUnguarded), or a broken limit (ErrLimit).
func (t Txn) Validate() error {
	if len(t.If) == 0 {
		return fmt.Errorf("validate transaction: %w", ErrUnguarded)
	}
	if len(t.If) > MaxConds || len(t.Then) > MaxOps {
		return fmt.Errorf("validate transaction of %d conditions and %d operations: %w", len(t.If), len(t.Then), ErrLimit)
	}
	if size := t.Size(); size > MaxTxnBytes {
		return fmt.Errorf("validate transaction of up to %d bytes: %w", size, ErrLimit)
	}
	seen := make(map[string]bool, len(t.Then))
	for _, op := range t.Then {
		if op.Key == "" || seen[op.Key] {
			return fmt.Errorf("validate transaction: key %q written twice or empty: %w", op.Key, ErrLimit)
		}
		seen[op.Key] = true
	}
	for i, op := range t.Then {
		for j, other := range t.Then {
			if op.Kind == OpDeletePrefix && i != j && strings.HasPrefix(other.Key, op.Key) {
				return fmt.Errorf("validate transaction: key %q written under the prefix %q that is deleted: %w", other.Key, op.Key, ErrLimit)
			}
		}
	}
	for _, c := range t.If {
		if c.Key == "" {
			return fmt.Errorf("validate transaction: condition on an empty key: %w", ErrLimit)
		}
	}
	return nil
}

// ReadSet sorts the keys of a Get and leaves out what is named twice. It
// returns ErrLimit for none, for more than MaxOps and for an empty key.
func ReadSet(keys []string) ([]string, error) {
	set := slices.Compact(slices.Sorted(slices.Values(keys)))
	if len(set) == 0 || len(set) > MaxOps || set[0] == "" {
		return nil, fmt.Errorf("read set of %d keys, or with an empty one: %w", len(set), ErrLimit)
	}
	return set, nil
}

// Result is the outcome of a transaction that the store answered.
type Result struct {
	Succeeded bool
	// Rev is the revision that the transaction's writes got, if it succeeded
	// and wrote anything; otherwise the revision at which it was evaluated.
	Rev Rev
	// Found holds, after a failure, the compared keys that exist, without
	// values and leases, as they stood at Rev.
	Found []KV
}

// Snapshot is what a read found at one revision.
type Snapshot struct {
	Rev Rev
	KVs []KV // in order of key
}

// Lease is a granted lease. TTL may be longer than what was asked.
type Lease struct {
	ID  LeaseID
	TTL time.Duration
}

// Watch asks for the changes of a prefix after a revision.
type Watch struct {
	Prefix string
	After  Rev
	// Progress is the interval at which a progress notification is asked for.
	// A store that brings nothing for Silence, not even the start of the
	// stream, ends the watch with ErrSilent; the time that the callback takes
	// does not count. 0 turns either off.
	Progress, Silence time.Duration
}

// Errors of a Store. Anything else that Commit returns is an ErrUnknown too in
// effect: the caller cannot know whether the transaction was applied.
var (
	// ErrUnknown: the call broke off, timed out or was cancelled; a
	// transaction may have been applied, or may yet be.
	ErrUnknown = errors.New("store: outcome unknown")
	// ErrUnguarded: a transaction without a condition. Not applied.
	ErrUnguarded = errors.New("store: transaction without a condition")
	// ErrLimit: a limit of the store, or a key written twice. Not applied.
	ErrLimit = errors.New("store: limit of a transaction exceeded")
	// ErrNoSpace: the store's quota is used up. It comes with ErrUnknown,
	// because etcd gives this answer also to a transaction that it applied and
	// that crossed the quota.
	ErrNoSpace = errors.New("store: no space")
	// ErrBusy: the store refuses work for now. Not applied.
	ErrBusy = errors.New("store: too many requests")
	// ErrLeaseNotFound: the lease expired or was revoked. Not applied.
	ErrLeaseNotFound = errors.New("store: lease not found")
	// ErrKeyNotFound: PutKeepLease of a key that does not exist. Not applied.
	ErrKeyNotFound = errors.New("store: key not found")
	// ErrCompacted: the history from which a watch should start is gone.
	ErrCompacted = errors.New("store: revision compacted")
	// ErrSilent: a watch brought neither changes nor progress for too long.
	ErrSilent = errors.New("store: watch is silent")
)

// Refused reports whether err says that a transaction was certainly not
// applied.
func Refused(err error) bool {
	for _, e := range []error{ErrUnguarded, ErrLimit, ErrBusy, ErrLeaseNotFound, ErrKeyNotFound} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Store is a linearizable key-value store with leases and an ordered watch:
// etcd, or a model of it. Every call needs a context with a deadline, except
// Watch. Implementations are safe for concurrent use.
type Store interface {
	// Commit runs one transaction.
	Commit(ctx context.Context, txn Txn) (Result, error)
	// Get reads one to MaxOps keys at one revision, linearizably. Keys that do
	// not exist are left out.
	Get(ctx context.Context, keys ...string) (Snapshot, error)
	// List reads a whole prefix at one revision, linearizably; with keysOnly
	// the values and leases are left out.
	List(ctx context.Context, prefix string, keysOnly bool) (Snapshot, error)
	// Watch calls fn with each batch, in order and from one goroutine, until
	// the context ends or the watch fails; the error says which: the
	// context's, ErrCompacted, ErrSilent, or another, such as a lost
	// connection. But for ErrCompacted a new watch may go on after the last
	// batch's revision. fn has returned when Watch returns.
	Watch(ctx context.Context, w Watch, fn func(Batch)) error
	// Grant makes a lease of at least ttl. If its outcome is unknown, a lease
	// that nobody renews may be left behind until it expires.
	Grant(ctx context.Context, ttl time.Duration) (Lease, error)
	// Renew starts the lease's TTL again and returns it. ErrLeaseNotFound if
	// it is gone.
	Renew(ctx context.Context, id LeaseID) (time.Duration, error)
	// Revoke ends a lease and deletes its keys. A lease that is gone is no error.
	Revoke(ctx context.Context, id LeaseID) error
	// AwaitTurn queues under a prefix, which ends with a slash: it puts the key
	// prefix + lease in hex under the lease, unless it is there, and returns its
	// create revision once no key under the prefix is older. It waits for the
	// next older one only, and does not look whether its own still stands. The
	// key stays, whatever becomes of the wait.
	AwaitTurn(ctx context.Context, prefix string, lease LeaseID, value []byte) (Rev, error)
}
