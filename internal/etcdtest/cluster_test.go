package etcdtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/controllerd/controllerd/internal/etcdserver"
	"github.com/controllerd/controllerd/internal/etcdtest"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/etcdstore"
)

const limit = 20 * time.Second

func timeout(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

func TestRestartKeepsDataAndAddress(t *testing.T) {
	ctx := timeout(t)
	c := etcdtest.Start(t)
	st, endpoint := c.Store(t), c.Endpoint()
	lease, err := st.Grant(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	put := store.Txn{If: []store.Cond{store.Missing("k")}, Then: []store.Op{store.PutLeased("k", []byte("v"), lease.ID)}}
	if _, err := st.Commit(ctx, put); err != nil {
		t.Fatal(err)
	}

	c.Restart()

	if c.Endpoint() != endpoint {
		t.Errorf("endpoint %s, before %s", c.Endpoint(), endpoint)
	}
	snap, err := st.List(ctx, "", false)
	if err != nil || len(snap.KVs) != 1 || string(snap.KVs[0].Value) != "v" {
		t.Errorf("list: %v, %v", snap, err)
	}
	if ids := c.Leases(ctx); len(ids) != 1 || ids[0] != lease.ID {
		t.Errorf("leases %v, want %v", ids, lease.ID)
	}
}

// An open watch must not delay the end of the server by etcd's 5 s and more.
func TestStopCutsWatches(t *testing.T) {
	c := etcdtest.Start(t)
	ended := make(chan error, 1)
	first := make(chan store.Batch, 1)
	go func() {
		ended <- c.Store(t).Watch(context.Background(), store.Watch{Progress: 10 * time.Millisecond}, func(b store.Batch) {
			select {
			case first <- b:
			default:
			}
		})
	}()
	<-first
	if n := c.Watchers(); n != 1 {
		t.Errorf("%d watches are open, want 1", n)
	}
	begin := time.Now()
	c.Stop()
	if d := time.Since(begin); d > 3*time.Second {
		t.Errorf("stopping took %v", d)
	}
	if err := <-ended; err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("watch ended with %v", err)
	}
}

func TestDirectoryIsNotSharedAndPortIsChecked(t *testing.T) {
	ctx := timeout(t)
	dir := t.TempDir()
	a, err := etcdserver.Start(ctx, etcdserver.Config{Dir: dir, Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Stop()
	if _, err := etcdserver.Start(ctx, etcdserver.Config{Dir: dir, Addr: "127.0.0.1:0"}); !errors.Is(err, etcdserver.ErrInUse) {
		t.Errorf("second server in the directory: %v", err)
	}
	if _, err := etcdserver.Start(ctx, etcdserver.Config{Dir: t.TempDir(), Addr: a.Addr()}); err == nil {
		t.Error("second server on the port")
	} else {
		t.Log(err)
	}
	if err := a.Stop(); err != nil {
		t.Error(err)
	}
	b, err := etcdserver.Start(ctx, etcdserver.Config{Dir: dir, Addr: a.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
}

// A member that is cut off answers no linearizable read, the others do; once it
// is back it knows what was written meanwhile.
func TestIsolate(t *testing.T) {
	ctx := timeout(t)
	m := etcdtest.StartMembers(t, 3)
	here, there := etcdstore.New(etcdtest.Dial(t, m.Endpoint(2))), etcdstore.New(etcdtest.Dial(t, m.Endpoint(0)))
	if _, err := here.Commit(ctx, put("a")); err != nil {
		t.Fatal(err)
	}
	m.Isolate(2)
	for err := errors.New("no leader yet"); err != nil; { // the one that was cut off may have led
		if err = ctx.Err(); err != nil {
			t.Fatal(err)
		}
		_, err = there.Commit(ctx, put("b"))
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if snap, err := here.Get(short, "b"); err == nil {
		t.Errorf("who is cut off answers %v", snap)
	}
	m.Rejoin(2)
	if snap, err := here.Get(ctx, "b"); err != nil || len(snap.KVs) != 1 {
		t.Errorf("after it is back: %v, %v", snap, err)
	}
}
