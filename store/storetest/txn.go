package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/controllerd/controllerd/store"
)

var txnCases = []Case{
	newCase("txn/both branches", bothBranches),
	newCase("txn/each field", eachField),
	newCase("txn/found", foundKeys),
	newCase("txn/revisions", revisions),
	newCase("txn/nothing written", nothingWritten),
	newCase("txn/delete prefix", deletePrefix),
	newCase("txn/limits", limits),
	newCase("txn/size", size),
	newCase("txn/leases", txnLeases),
	newCase("txn/ended context", endedContext),
	newCase("txn/no space", noSpace),
}

func bothBranches(e env) {
	before := e.rev()
	create := store.Txn{If: []store.Cond{store.Missing("a")}, Then: []store.Op{store.Put("a", []byte("1"))}}
	first := e.commit(create)
	if !first.Succeeded || first.Rev != before+1 || first.Found != nil {
		e.Errorf("first: %+v at %d", first, before)
	}
	second := e.commit(create)
	if second.Succeeded || second.Rev != first.Rev {
		e.Errorf("second: %+v", second)
	}
	e.wants("a", show(e.one("a")), fmt.Sprintf("a=1@%d,%d", first.Rev, first.Rev))
}

func eachField(e env) {
	created := e.do(store.Put("a", []byte("1")))
	modified := e.do(store.Put("a", []byte("2")))
	for _, c := range []struct {
		cond store.Cond
		want bool
	}{
		{store.ModRevIs("a", modified), true},
		{store.ModRevIs("a", created), false},
		{store.CreateRevIs("a", created), true},
		{store.CreateRevIs("a", modified), false},
		{store.Missing("a"), false},
		{store.Missing("b"), true},
		{store.ModRevIs("b", 0), true},
		{store.ModRevIs("a", 0), false},
	} {
		res := e.commit(store.Txn{If: []store.Cond{c.cond}})
		if res.Succeeded != c.want || res.Rev != modified {
			e.Errorf("%+v: %+v, want %v", c.cond, res, c.want)
		}
	}
	both := []store.Cond{store.ModRevIs("a", modified), store.CreateRevIs("a", created)}
	if !e.commit(store.Txn{If: both}).Succeeded {
		e.Error("two conditions on one key do not hold together")
	}
}

// A failure tells each compared key once, without value and lease, and not
// those that do not exist.
func foundKeys(e env) {
	lease := e.grant(e.MinTTL)
	created := e.do(store.PutLeased("a", []byte("1"), lease.ID), store.Put("b", []byte("1")))
	modified := e.do(store.PutKeepLease("a", []byte("2")))
	res := e.commit(store.Txn{
		If: []store.Cond{
			store.ModRevIs("b", 0), store.ModRevIs("a", modified), store.Missing("c"), store.CreateRevIs("a", created),
		},
		Then: []store.Op{store.Put("d", nil)},
	})
	if res.Succeeded || res.Rev != modified {
		e.Errorf("%+v", res)
	}
	e.wants("found", showAll(sortedByKey(res.Found)), []string{
		fmt.Sprintf("a=@%d,%d", created, modified),
		fmt.Sprintf("b=@%d,%d", created, created),
	})
	e.wants("written", len(e.get("d")), 0)
}

func revisions(e env) {
	r1 := e.do(store.Put("a", []byte("1")), store.Put("b", []byte("1")))
	r2 := e.do(store.Put("a", []byte("2")))
	e.wants("rewritten", showAll(e.get("a", "b")), []string{
		fmt.Sprintf("a=2@%d,%d", r1, r2), fmt.Sprintf("b=1@%d,%d", r1, r1),
	})
	r3 := e.do(store.Delete("a"))
	e.wants("deleted", keysOf(e.get("a", "b")), "[b]")
	r4 := e.do(store.Put("a", []byte("3")))
	e.wants("made again", show(e.one("a")), fmt.Sprintf("a=3@%d,%d", r4, r4))
	e.wants("revisions", []store.Rev{r2, r3, r4}, []store.Rev{r1 + 1, r1 + 2, r1 + 3})
}

func nothingWritten(e env) {
	before := e.rev()
	e.wants("delete of a missing key", e.do(store.Delete("a")), before)
	e.wants("no operation", e.do(), before)
	e.wants("one of two deletes", e.do(store.Delete("a"), store.Put("b", nil)), before+1)
}

// A prefix is deleted at one revision together with what else is written, and a
// watch hears of each key.
func deletePrefix(e env) {
	w := e.watch(store.Watch{After: e.rev()})
	made := e.do(store.Put("a/1", nil), store.Put("a/2", nil), store.Put("a0", nil), store.Put("a", nil))
	gone := e.do(store.DeletePrefix("a/"), store.Put("b", nil), store.Delete("a"))
	e.wants("revision", gone, made+1)
	e.wants("left", keysOf(e.list("", true).KVs), "[a0 b]")
	e.wants("of nothing", e.do(store.DeletePrefix("a/")), gone)
	e.wants("one of two", e.do(store.DeletePrefix("a/"), store.Put("c", nil)), gone+1)
	deleted := map[string]store.Rev{}
	for _, c := range w.upTo(gone + 1) {
		if c.Deleted {
			deleted[c.KV.Key] = c.KV.ModRev
		}
	}
	e.wants("watched", fmt.Sprint(deleted), fmt.Sprint(map[string]store.Rev{"a": gone, "a/1": gone, "a/2": gone}))

	stopped := store.Txn{If: []store.Cond{store.Missing("b")}, Then: []store.Op{store.DeletePrefix("a")}}
	e.wants("stopped", e.commit(stopped).Succeeded, false)
	e.wants("left", keysOf(e.list("a", true).KVs), "[a0]")
}

func limits(e env) {
	conds := make([]store.Cond, store.MaxConds+1)
	ops := make([]store.Op, store.MaxOps+1)
	for i := range conds {
		conds[i] = store.Missing(fmt.Sprintf("cond/%03d", i))
		ops[i] = store.Put(fmt.Sprintf("op/%03d", i), []byte("v"))
	}
	before := e.rev()
	put := store.Put("a", nil)
	for name, txn := range map[string]store.Txn{
		"conditions":  {If: conds, Then: []store.Op{put}},
		"operations":  {If: always, Then: ops},
		"two puts":    {If: always, Then: []store.Op{put, put}},
		"put delete":  {If: always, Then: []store.Op{put, store.Delete("a")}},
		"two deletes": {If: always, Then: []store.Op{store.Delete("a"), store.Delete("a")}},
		"empty key":   {If: always, Then: []store.Op{store.Put("", nil)}},
		"all keys":    {If: always, Then: []store.Op{store.DeletePrefix("")}},
		"put below":   {If: always, Then: []store.Op{store.DeletePrefix("a"), store.Put("ab", nil)}},
		"two below":   {If: always, Then: []store.Op{store.Delete("ab"), store.DeletePrefix("a")}},
		"empty cond":  {If: []store.Cond{store.Missing("")}},
	} {
		_, err := e.Store.Commit(e.ctx, txn)
		if !errors.Is(err, store.ErrLimit) || !store.Refused(err) {
			e.Errorf("%s: %v", name, err)
		}
	}
	e.refused(store.Txn{Then: []store.Op{put}}, store.ErrUnguarded)
	e.wants("revision", e.rev(), before)

	full := store.Txn{If: conds[:store.MaxConds], Then: ops[:store.MaxOps]}
	if res := e.commit(full); !res.Succeeded || res.Rev != before+1 {
		e.Errorf("at the limit: %+v", res)
	}
	e.wants("written", len(e.list("op/", true).KVs), store.MaxOps)
	again := store.Txn{If: make([]store.Cond, store.MaxConds)}
	for i := range again.If {
		again.If[i] = store.Missing(ops[i].Key)
	}
	e.wants("found", len(e.commit(again).Found), store.MaxConds)
}

// What Size says fits must fit, down to the last byte, whatever the shape.
func size(e env) {
	for name, txn := range map[string]store.Txn{
		"one value": {If: always, Then: []store.Op{store.Put("a", nil)}},
		"long keys": longKeys(),
	} {
		last := &txn.Then[len(txn.Then)-1]
		last.Value = nil
		last.Value = make([]byte, store.MaxTxnBytes-txn.Size())
		if res, err := e.Store.Commit(e.ctx, txn); err != nil || !res.Succeeded {
			e.Errorf("%s, %d bytes: %+v, %v", name, txn.Size(), res.Succeeded, err)
		}
		last.Value = append(last.Value, 0)
		e.refused(txn, store.ErrLimit)
	}
}

func longKeys() store.Txn {
	var txn store.Txn
	for i := range store.MaxOps {
		key := fmt.Sprintf("%03d/%s", i, strings.Repeat("k", 2000))
		txn.If = append(txn.If, store.ModRevIs(key, 0))
		txn.Then = append(txn.Then, store.Put(key, []byte("v")))
	}
	return txn
}

func txnLeases(e env) {
	lease := e.grant(e.MinTTL)
	e.do(store.PutLeased("a", []byte("1"), lease.ID))
	e.wants("leased", e.one("a").Lease, lease.ID)
	e.do(store.PutKeepLease("a", []byte("2")))
	e.wants("kept", e.one("a").Lease, lease.ID)
	e.do(store.Put("a", []byte("3")))
	e.wants("detached", e.one("a").Lease, 0)
	e.do(store.PutKeepLease("a", []byte("4")))
	e.wants("kept none", e.one("a").Lease, 0)

	before := e.rev()
	gone := store.Txn{If: always, Then: []store.Op{store.Put("b", nil), store.PutKeepLease("c", nil)}}
	e.refused(gone, store.ErrKeyNotFound)
	e.refused(store.Txn{If: always, Then: []store.Op{store.Put("b", nil), store.PutLeased("c", nil, 1<<40)}}, store.ErrLeaseNotFound)
	e.wants("revision", e.rev(), before)
	gone.If = []store.Cond{store.CreateRevIs("c", before)}
	if e.commit(gone).Succeeded {
		e.Error("a condition did not stop the transaction")
	}

	e.revoke(lease.ID)
	e.wants("detached key", string(e.one("a").Value), "4")
}

func endedContext(e env) {
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	_, err := e.Store.Commit(ctx, store.Txn{If: always, Then: []store.Op{store.Put("a", nil)}})
	if !errors.Is(err, store.ErrUnknown) || !errors.Is(err, context.Canceled) || store.Refused(err) {
		e.Errorf("commit: %v", err)
	}
}

// Without space, what frees some still works, and so does a lease that stands.
func noSpace(e env) {
	lease := e.grant(e.MinTTL)
	e.do(store.PutLeased("a", nil, lease.ID), store.Put("b", nil))
	e.FillUp()
	for name, txn := range map[string]store.Txn{
		"put":          {If: always, Then: []store.Op{store.Put("c", nil)}},
		"put, stopped": {If: []store.Cond{store.Missing("b")}, Then: []store.Op{store.Put("b", nil)}},
	} {
		_, err := e.Store.Commit(e.ctx, txn)
		if !errors.Is(err, store.ErrNoSpace) || !errors.Is(err, store.ErrUnknown) || store.Refused(err) {
			e.Errorf("%s: %v", name, err)
		}
	}
	if _, err := e.Store.Grant(e.ctx, e.MinTTL); !errors.Is(err, store.ErrNoSpace) {
		e.Errorf("grant: %v", err)
	}
	e.renew(lease.ID)
	e.do(store.Delete("b"))
	e.do()
	e.wants("left", keysOf(e.get("a", "b", "c")), "[a]")
	e.revoke(lease.ID)
	e.wants("left", keysOf(e.list("", false).KVs), "[]")
}
