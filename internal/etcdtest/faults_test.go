package etcdtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/controllerd/controllerd/internal/etcdtest"
	"github.com/controllerd/controllerd/store"
)

func put(key string) store.Txn {
	return store.Txn{If: []store.Cond{store.Missing(key)}, Then: []store.Op{store.Put(key, nil)}}
}

// A lost reply was applied, a refused request was not; both look alike.
func TestLoseReplyAndRefuse(t *testing.T) {
	ctx := timeout(t)
	var faults etcdtest.Faults
	st := etcdtest.Start(t).Store(t, faults.DialOptions()...)
	for effect, applied := range map[etcdtest.Effect]int{etcdtest.LoseReply: 1, etcdtest.Refuse: 0} {
		key := string('a' + rune(effect))
		fault := faults.Add(etcdtest.Rule{Effect: effect, Method: "Txn", Times: 1, Match: func(msg any) bool {
			return len(msg.(*pb.TxnRequest).Success) > 0
		}})
		if _, err := st.Commit(ctx, put(key)); !errors.Is(err, store.ErrUnknown) || store.Refused(err) {
			t.Errorf("effect %d: %v", effect, err)
		}
		snap, err := st.Get(ctx, key) // a Txn too, but it does not match
		if err != nil || len(snap.KVs) != applied || fault.Hits() != 1 {
			t.Errorf("effect %d: %v, %v, %d hits", effect, snap, err, fault.Hits())
		}
	}
}

func TestHold(t *testing.T) {
	ctx := timeout(t)
	var faults etcdtest.Faults
	c := etcdtest.Start(t)
	st, other := c.Store(t, faults.DialOptions()...), c.Store(t)
	for effect, applied := range map[etcdtest.Effect]int{etcdtest.HoldReply: 1, etcdtest.Hold: 0} {
		key := string('a' + rune(effect))
		fault := faults.Add(etcdtest.Rule{Effect: effect, Method: "Txn"})
		done := make(chan error, 1)
		go func() {
			_, err := st.Commit(ctx, put(key))
			done <- err
		}()
		<-fault.Hit()
		if applied == 1 {
			await(t, func() bool { return exists(t, other, key) })
		}
		select {
		case err := <-done:
			t.Errorf("effect %d: not held: %v", effect, err)
		default:
		}
		if got := exists(t, other, key); got != (applied == 1) {
			t.Errorf("effect %d: key exists: %v", effect, got)
		}
		fault.Remove()
		if err := <-done; err != nil {
			t.Errorf("effect %d: %v", effect, err)
		}
	}

	held := faults.Add(etcdtest.Rule{Effect: etcdtest.Hold})
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := st.List(short, "", true); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("list with a deadline: %v", err)
	}
	held.Remove()
}

func exists(t *testing.T, st store.Store, key string) bool {
	t.Helper()
	snap, err := st.Get(timeout(t), key)
	if err != nil {
		t.Fatal(err)
	}
	return len(snap.KVs) == 1
}

// await polls a condition.
func await(t *testing.T, cond func() bool) {
	t.Helper()
	ctx, tick := timeout(t), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("condition did not come true")
		}
	}
}

func TestSlow(t *testing.T) {
	const delay = 100 * time.Millisecond
	var faults etcdtest.Faults
	st := etcdtest.Start(t).Store(t, faults.DialOptions()...)
	faults.Add(etcdtest.Rule{Effect: etcdtest.Slow, Method: "Txn", Delay: delay})
	begin := time.Now()
	if exists(t, st, "a") {
		t.Error("key out of nothing")
	}
	if d := time.Since(begin); d < delay {
		t.Errorf("took %v", d)
	}
}

// A watch may be silenced while everything else works, and may lose one event.
func TestWatchFaults(t *testing.T) {
	ctx := timeout(t)
	var faults etcdtest.Faults
	st := etcdtest.Start(t).Store(t, faults.DialOptions()...)
	faults.Add(etcdtest.Rule{Effect: etcdtest.LoseReply, Method: "Watch", Times: 1, Match: func(msg any) bool {
		return len(msg.(*pb.WatchResponse).Events) > 0
	}})
	batches := make(chan store.Batch, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- st.Watch(ctx, store.Watch{Prefix: "k", Progress: 10 * time.Millisecond, Silence: 2 * time.Second}, func(b store.Batch) { batches <- b })
	}()
	<-batches
	for _, key := range []string{"k1", "k2"} {
		if _, err := st.Commit(ctx, put(key)); err != nil {
			t.Fatal(err)
		}
	}
	var seen []string
	for len(seen) == 0 {
		for _, c := range (<-batches).Changes {
			seen = append(seen, c.KV.Key)
		}
	}
	if len(seen) != 1 || seen[0] != "k2" {
		t.Errorf("saw %v, want only k2", seen)
	}

	silent := faults.Add(etcdtest.Rule{Effect: etcdtest.HoldReply, Method: "Watch"})
	defer silent.Remove()
	if _, err := st.Grant(ctx, time.Minute); err != nil {
		t.Errorf("grant beside a silent watch: %v", err)
	}
	if err := <-ended; !errors.Is(err, store.ErrSilent) {
		t.Errorf("watch ended with %v", err)
	}
}
