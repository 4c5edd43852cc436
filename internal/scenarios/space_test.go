package scenarios

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/internal/etcdtest"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// etcd runs out of space. The seat and all sessions are kept, nothing is
// announced that could not be stored, callers and operators are told, and once
// there is room again everything goes on by itself. It runs out again, and the
// active dies: nobody can follow, nobody tries all the time, and somebody does
// once there is room.
func TestET1NoSpace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, etcdtest.Quota(4<<20))
	a := w.daemon("a", brief)
	w.active(1, soon)
	b := w.daemon("b")
	w.candidateLease("b", 0)
	brokers := w.startBrokers(3)
	w.create("orders", 6, 3)
	w.converged(soon)

	w.fill()
	rev := w.tape.rev()
	_, err := a.admin.CreateTopics(w.call(), &pb.CreateTopicsRequest{Topics: []*pb.NewTopic{{Name: "payments", Partitions: 6, ReplicationFactor: 3}}})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "space") {
		t.Errorf("create a topic: %v", err)
	}
	brokers[2].kill()
	w.revoke(w.sessionLease(2)) // an election is due, and cannot be written
	w.await("the active says so", soon, func() bool {
		return !a.serving("") && a.names("takes no writes") && a.measures("controllerd_etcd_writes_refused 1")
	})
	pass(2 * sessionTTL)
	if claim, id := w.seat(); claim.Epoch != 1 || id != "a" || len(a.history()) != 1 {
		t.Errorf("the seat: %+v by %s, %+v", claim, id, a.history())
	}
	if c := w.tape.after(rev, func(key string) bool { return key != w.keys.Broker(2) }); len(c) > 0 {
		t.Errorf("stored meanwhile: %+v", c)
	}
	for _, b := range brokers[:2] {
		for _, p := range b.Partitions() {
			if s, _ := b.Partition(p); s.LeaderEpoch != 0 || s.Topic != "orders" {
				t.Errorf("broker %d was told %+v, which is not stored", b.id, s)
			}
		}
		if b.Epoch() == 0 || w.sessionLease(b.id) == 0 {
			t.Errorf("broker %d has lost its session", b.id)
		}
	}

	w.makeRoom()
	w.await("broker 2 leads nothing", limit, func() bool { return w.leads(2) == 0 })
	w.await("all is well", limit, func() bool { return a.serving("") && b.serving("") && len(a.problems()) == 0 })
	w.create("payments", 6, 2)
	w.converged(limit)
	w.await("the metrics say so", soon, func() bool { return a.measures("controllerd_etcd_writes_refused 0") })
	if w.epoch() != 1 {
		t.Errorf("epoch %d", w.epoch())
	}

	w.fill()
	var asked atomic.Int64
	for _, method := range []string{"Txn", "LeaseGrant"} {
		b.faults.Add(etcdtest.Rule{Effect: etcdtest.Refuse, Method: method, Match: func(msg any) bool {
			if txn, ok := msg.(*etcdpb.TxnRequest); !ok || len(txn.Compare) > 0 { // it is no read
				asked.Add(1)
			}
			return false // it passes
		}})
	}
	a.kill()
	w.revoke(w.seatLease())
	brokers[1].kill()
	const while = 3 * time.Second
	pass(while)
	if n := asked.Load(); n == 0 || n > 10*int64(while/time.Second) {
		t.Errorf("%d writes were tried in %v", n, while)
	}
	if _, id := w.seat(); id != "" || w.epoch() != 1 {
		t.Errorf("%q has the seat", id)
	}
	w.makeRoom()
	if w.active(2, limit) != b {
		t.Error("b does not follow")
	}
	w.await("all is well again", limit, func() bool { return b.serving("") && len(b.problems()) == 0 })
	w.create("refunds", 6, 1)
	w.converged(limit)
}

// A refusal is forgotten without a further write: there may be none for long.
func TestNoSpaceIdle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.daemon("a")
	w.active(1, soon)
	w.startBrokers(3)
	w.etcd.SetNoSpace(true)
	_, err := a.admin.CreateTopics(w.call(), &pb.CreateTopicsRequest{Topics: []*pb.NewTopic{{Name: "payments", Partitions: 6, ReplicationFactor: 3}}})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("create a topic: %v", err)
	}
	w.await("the active says so", soon, func() bool { return !a.serving("") })
	w.etcd.SetNoSpace(false)
	w.await("all is well", limit, func() bool { return a.serving("") })
}

// fill writes beside the cluster until etcd has no space.
func (w *world) fill() {
	w.t.Helper()
	junk := string(bytes.Repeat([]byte("x"), 64<<10))
	for i := range 1000 {
		_, err := w.client.Put(w.call(), fmt.Sprint("junk/", i), junk)
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	w.t.Fatal("there is space without end")
}

// makeRoom does what an operator does.
func (w *world) makeRoom() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	resp, err := w.client.Delete(ctx, "junk/", clientv3.WithPrefix())
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.client.Compact(ctx, resp.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.client.Defragment(ctx, w.etcd.Endpoint()); err != nil {
		w.t.Fatal(err)
	}
	w.etcd.SetNoSpace(false)
}
