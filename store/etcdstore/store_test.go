package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/controllerd/controllerd/internal/etcdtest"
	"github.com/controllerd/controllerd/internal/netproxy"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/etcdstore"
)

const patience = 30 * time.Second

func timeout(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

var always = []store.Cond{store.Missing("never/written")}

func put(t *testing.T, st store.Store, key string) store.Rev {
	t.Helper()
	res, err := st.Commit(timeout(t, patience), store.Txn{If: always, Then: []store.Op{store.Put(key, nil)}})
	if err != nil {
		t.Fatal(err)
	}
	return res.Rev
}

func TestDialRejects(t *testing.T) {
	for _, endpoints := range [][]string{nil, {"127.0.0.1:2379", " "}, {"http://user:secret@127.0.0.1:2379"}} {
		client, err := etcdstore.Dial(etcdstore.Config{Endpoints: endpoints})
		if err == nil {
			_ = client.Close()
			t.Errorf("%q was accepted", endpoints)
		} else if !strings.HasPrefix(err.Error(), "dial etcd: ") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", endpoints, err)
		}
	}
}

// A client is made without its etcd; each call ends with its own deadline.
func TestNobodyThere(t *testing.T) {
	const short = 100 * time.Millisecond
	st := etcdstore.New(etcdtest.Dial(t, "127.0.0.1:1"))
	calls := map[string]func(context.Context) error{
		"commit": func(ctx context.Context) error { _, err := st.Commit(ctx, store.Txn{If: always}); return err },
		"get":    func(ctx context.Context) error { _, err := st.Get(ctx, "a"); return err },
		"list":   func(ctx context.Context) error { _, err := st.List(ctx, "", true); return err },
		"grant":  func(ctx context.Context) error { _, err := st.Grant(ctx, time.Second); return err },
		"renew":  func(ctx context.Context) error { _, err := st.Renew(ctx, 1); return err },
		"revoke": func(ctx context.Context) error { return st.Revoke(ctx, 1) },
	}
	for name, call := range calls {
		if err := call(timeout(t, short)); !errors.Is(err, store.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	never := func(store.Batch) { t.Error("a batch out of nothing") }
	if err := st.Watch(timeout(t, short), store.Watch{}, never); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("watch: %v", err)
	}
	if err := st.Watch(timeout(t, patience), store.Watch{Silence: short}, never); !errors.Is(err, store.ErrSilent) {
		t.Errorf("watch with a limit of silence: %v", err)
	}
}

// collect watches, going on after each failure, until it has seen a revision.
func collect(t *testing.T, st store.Store, w store.Watch, until store.Rev, failed func(error)) []store.Rev {
	ctx, cancel := context.WithCancel(timeout(t, patience))
	defer cancel()
	var seen []store.Rev
	for w.After < until {
		err := st.Watch(ctx, w, func(b store.Batch) {
			w.After = b.Rev
			for _, c := range b.Changes {
				seen = append(seen, c.KV.ModRev)
			}
			if b.Rev >= until {
				cancel()
			}
		})
		if w.After < until {
			failed(err)
		}
	}
	return seen
}

// A watch whose connection breaks again and again, and which goes on where it
// was, sees each revision once and in order.
func TestWatchOverBrokenConnections(t *testing.T) {
	const writes, cuts = 300, 5
	c := etcdtest.Start(t, etcdtest.NoFsync())
	proxy, err := netproxy.Start(c.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	direct := c.Store(t)
	first := put(t, direct, "k")
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := range writes {
			put(t, direct, "k")
			if i%(writes/cuts) == 0 {
				proxy.Reset()
			}
		}
	})
	st := etcdstore.New(etcdtest.Dial(t, proxy.Addr()))
	seen := collect(t, st, store.Watch{Prefix: "k", After: first, Progress: 10 * time.Millisecond}, first+writes, func(err error) {
		if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, store.ErrCompacted) {
			t.Errorf("watch ended with %v", err)
		}
	})
	writing.Wait()
	for i, rev := range seen {
		if rev != first+1+store.Rev(i) {
			t.Fatalf("change %d is of revision %d, want %d", i, rev, first+1+store.Rev(i))
		}
	}
	if len(seen) != writes {
		t.Errorf("saw %d changes, want %d", len(seen), writes)
	}
}

// A black hole breaks nothing that TCP sees at once; the silence is seen.
func TestWatchInABlackHole(t *testing.T) {
	c := etcdtest.Start(t)
	proxy, err := netproxy.Start(c.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	st := etcdstore.New(etcdtest.Dial(t, proxy.Addr()))
	begin := time.Now()
	err = st.Watch(timeout(t, patience), store.Watch{Progress: 50 * time.Millisecond, Silence: 500 * time.Millisecond}, func(store.Batch) {
		proxy.Blackhole()
		begin = time.Now()
	})
	if took := time.Since(begin); !errors.Is(err, store.ErrSilent) || took > 5*time.Second {
		t.Errorf("watch ended after %v with %v", took, err)
	}
	proxy.Heal()
	put(t, st, "k")
}

// Compaction ends a list that is under way, which begins anew.
func TestListOverCompaction(t *testing.T) {
	const keys = 10_100 // more than a page
	c := etcdtest.Start(t, etcdtest.NoFsync())
	var faults etcdtest.Faults
	direct, st := c.Store(t), c.Store(t, faults.DialOptions()...)
	for from := 0; from < keys; from += store.MaxOps {
		txn := store.Txn{If: always}
		for i := from; i < min(from+store.MaxOps, keys); i++ {
			txn.Then = append(txn.Then, store.Put(fmt.Sprintf("k/%05d", i), nil))
		}
		if _, err := direct.Commit(timeout(t, patience), txn); err != nil {
			t.Fatal(err)
		}
	}
	second := faults.Add(etcdtest.Rule{Effect: etcdtest.Hold, Method: "Range", Times: 1, Match: func(msg any) bool {
		return msg.(*pb.RangeRequest).Revision > 0
	}})
	listed := make(chan store.Snapshot, 1)
	go func() {
		snap, err := st.List(timeout(t, patience), "k/", false)
		if err != nil {
			t.Error(err)
		}
		listed <- snap
	}()
	<-second.Hit()
	put(t, direct, "k/00000")
	last := put(t, direct, "k/new")
	if err := c.Compact(last); err != nil {
		t.Fatal(err)
	}
	second.Remove()
	if snap := <-listed; snap.Rev != last || len(snap.KVs) != keys+1 {
		t.Errorf("%d keys at %d, want %d at %d", len(snap.KVs), snap.Rev, keys+1, last)
	}
}

// The transactions that cross the quota are applied and answered ErrNoSpace;
// those after them are refused with the same answer.
func TestQuota(t *testing.T) {
	c := etcdtest.Start(t, etcdtest.NoFsync(), etcdtest.Quota(8<<20))
	st := c.Store(t)
	fill := func(key string) error {
		txn := store.Txn{If: always, Then: []store.Op{store.Put(key, make([]byte, 1<<20))}}
		_, err := st.Commit(timeout(t, patience), txn)
		return err
	}
	// etcd learns of its size with a delay, so each goes on until it is told.
	const writers, most = 8, 100
	var mu sync.Mutex
	outcomes := map[string]error{}
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range most {
				key := fmt.Sprintf("k/%d/%d", w, i)
				err := fill(key)
				mu.Lock()
				outcomes[key] = err
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	writing.Wait()
	snap, err := st.List(timeout(t, patience), "k/", true)
	if err != nil {
		t.Fatal(err)
	}
	there, applied, refused := map[string]bool{}, 0, 0
	for _, kv := range snap.KVs {
		there[kv.Key] = true
	}
	for key, err := range outcomes {
		switch {
		case err == nil && !there[key]:
			t.Errorf("%s is acknowledged and lost", key)
		case err != nil && (!errors.Is(err, store.ErrNoSpace) || store.Refused(err)):
			t.Errorf("%s: %v", key, err)
		case err != nil && there[key]:
			applied++
		case err != nil:
			refused++
		}
	}
	t.Logf("of %d answers ErrNoSpace %d transactions were applied", applied+refused, applied)
	if err := fill("k/last"); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("after the quota was crossed: %v", err)
	}

	// What an operator does: make room, give it back, clear the alarm.
	var last store.Rev
	for some := range slices.Chunk(snap.KVs, store.MaxOps) {
		empty := store.Txn{If: always}
		for _, kv := range some {
			empty.Then = append(empty.Then, store.Delete(kv.Key))
		}
		res, err := st.Commit(timeout(t, patience), empty)
		if err != nil {
			t.Fatal(err)
		}
		last = res.Rev
	}
	if err := c.Compact(last); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client(t).Defragment(timeout(t, patience), c.Endpoint()); err != nil {
		t.Fatal(err)
	}
	if err := fill("k/last"); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("with the alarm on: %v", err)
	}
	c.SetNoSpace(false)
	if err := fill("k/last"); err != nil {
		t.Errorf("with the alarm off: %v", err)
	}
}

// The store works with a client that somebody else made.
func TestForeignClient(t *testing.T) {
	c := etcdtest.Start(t)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.Endpoint()}, MaxCallSendMsgSize: 1 << 20, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	txn := store.Txn{If: always, Then: []store.Op{store.Put("k", make([]byte, 1<<20+1))}}
	if _, err := etcdstore.New(client).Commit(timeout(t, patience), txn); !errors.Is(err, store.ErrLimit) {
		t.Errorf("too large for the client: %v", err)
	}
}

// A watch that ended holds nothing at the server.
func TestWatchEndsAtTheServer(t *testing.T) {
	c := etcdtest.Start(t)
	st := c.Store(t)
	for range 3 {
		ctx, cancel := context.WithCancel(timeout(t, patience))
		err := st.Watch(ctx, store.Watch{Progress: 10 * time.Millisecond}, func(store.Batch) {
			if n := c.Watchers(); n != 1 {
				t.Errorf("%d watchers", n)
			}
			cancel()
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("watch ended with %v", err)
		}
		tick := time.NewTicker(5 * time.Millisecond)
		for deadline := time.Now().Add(patience); c.Watchers() > 0 && time.Now().Before(deadline); {
			<-tick.C
		}
		tick.Stop()
		if n := c.Watchers(); n != 0 {
			t.Errorf("%d watchers are left", n)
		}
	}
}
