package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/controllerd/controllerd/store"
)

// Harness is one empty store and what a test does to it from outside.
type Harness struct {
	Store store.Store
	// MinTTL is the shortest lease that the store grants.
	MinTTL time.Duration
	// Compact forgets the history below a revision.
	Compact func(store.Rev) error
	// FillUp makes the store refuse writes for lack of space.
	FillUp func()
}

// Case is one promise of a store.
type Case struct {
	Name string
	Run  func(*testing.T, Harness)
}

// Cases are all promises. Each wants an empty store of its own. They run in a
// bubble of testing/synctest too, if the store does.
func Cases() []Case {
	return slices.Concat(txnCases, readCases, leaseCases, queueCases, watchCases)
}

// Run checks all cases, each on a new store.
func Run(t *testing.T, start func(*testing.T) Harness) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, start(t)) })
	}
}

// patience bounds a case; on a busy machine an etcd may be slow.
const patience = time.Minute

// env is a test and its store.
type env struct {
	*testing.T
	Harness
	ctx context.Context
}

type caseFunc func(env)

func newCase(name string, fn caseFunc) Case {
	return Case{Name: name, Run: func(t *testing.T, h Harness) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		t.Cleanup(cancel)
		fn(env{T: t, Harness: h, ctx: ctx})
	}}
}

// always is a condition that holds as long as nobody writes the key.
var always = []store.Cond{store.Missing("never/written")}

// do commits operations under a condition that holds.
func (e env) do(ops ...store.Op) store.Rev {
	e.Helper()
	res := e.commit(store.Txn{If: always, Then: ops})
	if !res.Succeeded {
		e.Fatalf("transaction failed: %+v", res)
	}
	return res.Rev
}

func (e env) commit(txn store.Txn) store.Result {
	e.Helper()
	res, err := e.Store.Commit(e.ctx, txn)
	if err != nil {
		e.Fatal(err)
	}
	return res
}

// refused commits a transaction that must end with the error.
func (e env) refused(txn store.Txn, want error) {
	e.Helper()
	if _, err := e.Store.Commit(e.ctx, txn); !errors.Is(err, want) {
		e.Errorf("commit: %v, want %v", err, want)
	}
}

func (e env) get(keys ...string) []store.KV {
	e.Helper()
	snap, err := e.Store.Get(e.ctx, keys...)
	if err != nil {
		e.Fatal(err)
	}
	return snap.KVs
}

// one gets a key that must exist.
func (e env) one(key string) store.KV {
	e.Helper()
	kvs := e.get(key)
	if len(kvs) != 1 {
		e.Fatalf("get %q: %v", key, kvs)
	}
	return kvs[0]
}

func (e env) list(prefix string, keysOnly bool) store.Snapshot {
	e.Helper()
	snap, err := e.Store.List(e.ctx, prefix, keysOnly)
	if err != nil {
		e.Fatal(err)
	}
	return snap
}

func (e env) grant(ttl time.Duration) store.Lease {
	e.Helper()
	l, err := e.Store.Grant(e.ctx, ttl)
	if err != nil {
		e.Fatal(err)
	}
	return l
}

func (e env) renew(id store.LeaseID) {
	e.Helper()
	if _, err := e.Store.Renew(e.ctx, id); err != nil {
		e.Fatal(err)
	}
}

func (e env) revoke(id store.LeaseID) {
	e.Helper()
	if err := e.Store.Revoke(e.ctx, id); err != nil {
		e.Fatal(err)
	}
}

func (e env) compact(rev store.Rev) {
	e.Helper()
	if err := e.Compact(rev); err != nil {
		e.Fatal(err)
	}
}

// rev is the store's current revision.
func (e env) rev() store.Rev {
	e.Helper()
	return e.list("", true).Rev
}

// wants compares texts, which say what differs.
func (e env) wants(what string, got, want any) {
	e.Helper()
	if g, w := fmt.Sprintf("%v", got), fmt.Sprintf("%v", want); g != w {
		e.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

func keysOf(kvs []store.KV) []string {
	keys := make([]string, len(kvs))
	for i, kv := range kvs {
		keys[i] = kv.Key
	}
	return keys
}

// show is a key as a text: key=value@created,modified and its lease.
func show(kv store.KV) string {
	s := fmt.Sprintf("%s=%s@%d,%d", kv.Key, kv.Value, kv.CreateRev, kv.ModRev)
	if kv.Lease != 0 {
		s += fmt.Sprintf("/%d", kv.Lease)
	}
	return s
}

func showAll(kvs []store.KV) []string {
	out := make([]string, len(kvs))
	for i, kv := range kvs {
		out[i] = show(kv)
	}
	return out
}

func sortedByKey(kvs []store.KV) []store.KV {
	return slices.SortedFunc(slices.Values(kvs), func(a, b store.KV) int { return cmp.Compare(a.Key, b.Key) })
}
