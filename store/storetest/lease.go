package storetest

import (
	"errors"
	"time"

	"github.com/controllerd/controllerd/store"
)

var leaseCases = []Case{
	newCase("lease/grant", grant),
	newCase("lease/expiry", expiry),
	newCase("lease/renewal", renewal),
	newCase("lease/revocation", revocation),
	newCase("lease/outlives its keys", outlivesKeys),
}

func grant(e env) {
	e.wants("least", e.grant(time.Nanosecond).TTL, e.MinTTL)
	e.wants("rounded up", e.grant(9500*time.Millisecond).TTL, 10*time.Second)
	before := e.rev()
	a, b := e.grant(time.Hour), e.grant(time.Hour)
	if a.ID == b.ID || a.ID == 0 || b.ID == 0 {
		e.Errorf("ids %d, %d", a.ID, b.ID)
	}
	e.wants("revision", e.rev(), before)
}

// A lease that nobody renews takes its keys with it, not before its time, and
// a watch sees it although nobody calls the store.
func expiry(e env) {
	watch := e.watch(store.Watch{})
	begin := time.Now()
	lease := e.grant(e.MinTTL)
	put := e.do(store.PutLeased("b", nil, lease.ID), store.PutLeased("a", nil, lease.ID), store.Put("c", nil))
	e.wants("puts", watch.next().Rev, put)
	gone := watch.next()
	if lived := time.Since(begin); lived < lease.TTL {
		e.Errorf("expired after %v", lived)
	}
	e.wants("deleted", showBatch(gone), []string{"-a", "-b"})
	e.wants("revision", gone.Rev, put+1)
	e.wants("left", keysOf(e.list("", false).KVs), "[c]")
	if _, err := e.Store.Renew(e.ctx, lease.ID); !errors.Is(err, store.ErrLeaseNotFound) {
		e.Errorf("renew: %v", err)
	}
}

func renewal(e env) {
	watch := e.watch(store.Watch{})
	lease := e.grant(e.MinTTL)
	e.do(store.PutLeased("a", nil, lease.ID))
	watch.next()
	tick := time.NewTicker(lease.TTL / 4)
	defer tick.Stop()
	for range 10 {
		<-tick.C
		ttl, err := e.Store.Renew(e.ctx, lease.ID)
		if err != nil || ttl != lease.TTL {
			e.Fatalf("renew: %v, %v", ttl, err)
		}
	}
	e.wants("kept", keysOf(e.list("", false).KVs), "[a]")
	last := time.Now()
	e.wants("deleted", showBatch(watch.next()), "[-a]")
	if lived := time.Since(last); lived < lease.TTL/2 {
		e.Errorf("expired %v after a renewal", lived)
	}
}

func revocation(e env) {
	watch := e.watch(store.Watch{})
	lease, empty := e.grant(time.Hour), e.grant(time.Hour)
	put := e.do(store.PutLeased("b", nil, lease.ID), store.PutLeased("a", nil, lease.ID))
	e.wants("puts", watch.next().Rev, put)
	e.revoke(lease.ID)
	gone := watch.next()
	e.wants("deleted", showBatch(gone), []string{"-a", "-b"})
	e.wants("revision", gone.Rev, put+1)
	e.revoke(lease.ID)
	e.revoke(empty.ID)
	e.wants("revision", e.rev(), put+1)
	e.refused(store.Txn{If: always, Then: []store.Op{store.PutLeased("a", nil, lease.ID)}}, store.ErrLeaseNotFound)
	if _, err := e.Store.Renew(e.ctx, lease.ID); !errors.Is(err, store.ErrLeaseNotFound) {
		e.Errorf("renew: %v", err)
	}
}

// A key that was deleted, or moved to another lease, leaves its lease alone.
func outlivesKeys(e env) {
	first, second := e.grant(time.Hour), e.grant(time.Hour)
	e.do(store.PutLeased("a", nil, first.ID), store.PutLeased("b", nil, first.ID))
	e.do(store.Delete("a"), store.PutLeased("b", nil, second.ID))
	e.renew(first.ID)
	last := e.do(store.Put("a", nil))
	e.revoke(first.ID)
	e.wants("kept", keysOf(e.list("", false).KVs), "[a b]")
	e.wants("revision", e.rev(), last)
	e.revoke(second.ID)
	e.wants("kept", keysOf(e.list("", false).KVs), "[a]")
}
