package storetest

import (
	"errors"
	"fmt"

	"github.com/controllerd/controllerd/store"
)

var readCases = []Case{
	newCase("read/get", get),
	newCase("read/list", list),
	newCase("read/list of many", listMany),
	newCase("read/one revision", oneRevision),
}

func get(e env) {
	e.do(store.Put("b", []byte("2")), store.Put("a", []byte("1")), store.Put("ab", nil))
	snap, err := e.Store.Get(e.ctx, "b", "missing", "a", "b")
	if err != nil {
		e.Fatal(err)
	}
	e.wants("keys", showAll(snap.KVs), []string{
		fmt.Sprintf("a=1@%d,%d", snap.Rev, snap.Rev), fmt.Sprintf("b=2@%d,%d", snap.Rev, snap.Rev),
	})
	if _, err := e.Store.Get(e.ctx); !errors.Is(err, store.ErrLimit) {
		e.Errorf("get of nothing: %v", err)
	}
	many := make([]string, store.MaxOps+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	if _, err := e.Store.Get(e.ctx, many...); !errors.Is(err, store.ErrLimit) {
		e.Errorf("get of %d keys: %v", len(many), err)
	}
	e.wants("none of many", len(e.get(many[1:]...)), 0)
}

func list(e env) {
	lease := e.grant(e.MinTTL)
	e.do(store.Put("p/b", []byte("2")), store.PutLeased("p/a", []byte("1"), lease.ID), store.Put("p0", nil), store.Put("o", nil))
	last := e.do(store.Put("p", nil))
	whole := e.list("p/", false)
	e.wants("revision", whole.Rev, last)
	e.wants("prefix", showAll(whole.KVs), []string{
		fmt.Sprintf("p/a=1@%d,%d/%d", last-1, last-1, lease.ID), fmt.Sprintf("p/b=2@%d,%d", last-1, last-1),
	})
	e.wants("keys only", showAll(e.list("p/", true).KVs), []string{
		fmt.Sprintf("p/a=@%d,%d", last-1, last-1), fmt.Sprintf("p/b=@%d,%d", last-1, last-1),
	})
	e.wants("no prefix", keysOf(e.list("", false).KVs), "[o p p/a p/b p0]")
	e.wants("nothing", len(e.list("q", false).KVs), 0)
}

// More keys than fit a page of etcdstore.
func listMany(e env) {
	const keys = 10_003
	for from := 0; from < keys; from += store.MaxOps {
		var ops []store.Op
		for i := from; i < min(from+store.MaxOps, keys); i++ {
			ops = append(ops, store.Put(fmt.Sprintf("p/%05d", i), []byte{byte(i)}))
		}
		e.do(ops...)
	}
	for _, keysOnly := range []bool{false, true} {
		snap := e.list("p/", keysOnly)
		e.wants("keys", len(snap.KVs), keys)
		for i, kv := range snap.KVs {
			if kv.Key != fmt.Sprintf("p/%05d", i) || (!keysOnly && kv.Value[0] != byte(i)) {
				e.Fatalf("key %d: %s", i, show(kv))
			}
		}
	}
}

// A read never sees half of a transaction, nor less than what was answered
// before it began.
func oneRevision(e env) {
	const rounds = 100
	written := make(chan store.Rev, rounds)
	go func() {
		defer close(written)
		for range rounds {
			res, err := e.Store.Commit(e.ctx, store.Txn{If: always, Then: []store.Op{store.Put("a", nil), store.Put("b", nil)}})
			if err != nil {
				e.Error(err)
				return
			}
			written <- res.Rev
		}
	}()
	for rev := range written {
		got, err := e.Store.Get(e.ctx, "a", "b")
		if err != nil {
			e.Error(err)
			continue
		}
		listed := e.list("", true)
		for _, snap := range []store.Snapshot{got, listed} {
			if len(snap.KVs) != 2 || snap.KVs[0].ModRev != snap.KVs[1].ModRev || snap.KVs[0].ModRev < rev || snap.Rev < snap.KVs[0].ModRev {
				e.Errorf("after %d: %v at %d", rev, showAll(snap.KVs), snap.Rev)
			}
		}
	}
}
