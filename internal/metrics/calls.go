package metrics

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/internal/durations"
	"github.com/controllerd/controllerd/internal/prom"
	"github.com/controllerd/controllerd/store"
)

// operation is a kind of call of the store.
type operation int

const (
	opCommit operation = iota
	opGet
	opList
	opGrant
	opRenew
	opRevoke
	operations
)

var operationNames = [operations]string{
	opCommit: "commit", opGet: "get", opList: "list", opGrant: "grant", opRenew: "renew", opRevoke: "revoke",
}

// callStats are about the calls of one kind.
type callStats struct {
	Time   durations.Histogram
	Failed int64
}

// Calls measures the calls of a store.
type Calls struct {
	mu sync.Mutex
	by [operations]callStats
}

// Wrap is the store, with its calls measured. Those that wait, Watch and
// AwaitTurn, are not.
func (c *Calls) Wrap(s store.Store) store.Store { return measured{s, c} }

// etcd is about the calls of etcd.
var etcd = []prom.Metric[*look]{
	{Name: "controllerd_etcd_request_seconds", Kind: prom.Histogram, Labels: []string{"op"}, Help: "how long calls of etcd took: commit, get, list, and of leases grant, renew, revoke",
		Read: func(l *look, e prom.Emit) {
			for op := range l.etcd {
				e.Durations(&l.etcd[op].Time, operationNames[op])
			}
		}},
	{Name: "controllerd_etcd_request_errors_total", Kind: prom.Counter, Labels: []string{"op"}, Help: "calls of etcd that failed or got no answer in time",
		Read: func(l *look, e prom.Emit) {
			for op := range l.etcd {
				e.Value(float64(l.etcd[op].Failed), operationNames[op])
			}
		}},
}

// stats is a copy of what was measured.
func (c *Calls) stats() *[operations]callStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := c.by
	return &by
}

// note takes in one call. One that the daemon itself has broken off is no
// failure of etcd.
func (c *Calls) note(op operation, begun time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by[op].Time.Observe(election.Clock() - begun)
	if err != nil && !errors.Is(err, context.Canceled) {
		c.by[op].Failed++
	}
}

// measured is a store whose calls are measured.
type measured struct {
	store.Store
	calls *Calls
}

func (m measured) Commit(ctx context.Context, txn store.Txn) (store.Result, error) {
	begun := election.Clock()
	r, err := m.Store.Commit(ctx, txn)
	m.calls.note(opCommit, begun, err)
	return r, err
}

func (m measured) Get(ctx context.Context, keys ...string) (store.Snapshot, error) {
	begun := election.Clock()
	s, err := m.Store.Get(ctx, keys...)
	m.calls.note(opGet, begun, err)
	return s, err
}

func (m measured) List(ctx context.Context, prefix string, keysOnly bool) (store.Snapshot, error) {
	begun := election.Clock()
	s, err := m.Store.List(ctx, prefix, keysOnly)
	m.calls.note(opList, begun, err)
	return s, err
}

func (m measured) Grant(ctx context.Context, ttl time.Duration) (store.Lease, error) {
	begun := election.Clock()
	l, err := m.Store.Grant(ctx, ttl)
	m.calls.note(opGrant, begun, err)
	return l, err
}

func (m measured) Renew(ctx context.Context, id store.LeaseID) (time.Duration, error) {
	begun := election.Clock()
	ttl, err := m.Store.Renew(ctx, id)
	m.calls.note(opRenew, begun, err)
	return ttl, err
}

func (m measured) Revoke(ctx context.Context, id store.LeaseID) error {
	begun := election.Clock()
	err := m.Store.Revoke(ctx, id)
	m.calls.note(opRevoke, begun, err)
	return err
}
