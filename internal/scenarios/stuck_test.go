package scenarios

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/etcdtest"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

// The lease could be renewed, but the daemon cannot do its work: it gives up
// the seat as if the lease were lost.
func TestStuckActiveGivesUp(t *testing.T) {
	t.Parallel()
	stuck := map[string]struct {
		begin func(w *world, d *daemon) (end func())
		hung  bool          // the loop cannot even say that its term is over
		ttl   time.Duration // 0: ttl
	}{
		"hung loop":         {begin: hang, hung: true},
		"writes unanswered": {begin: holdWrites},
		// A call is given up before half of this lease has passed.
		"writes unanswered, long lease": {begin: holdWrites, ttl: 7 * time.Second},
		"watch silent": {begin: func(w *world, d *daemon) func() {
			silent := d.faults.Add(etcdtest.Rule{Effect: etcdtest.HoldReply, Method: "Watch"})
			w.put(w.keys.Node(7), encode(w.t, &pb.NodeRecord{NodeUuid: "node-7"})) // on an idle cluster nothing is missed
			return silent.Remove
		}},
		"reads unanswered": {begin: func(_ *world, d *daemon) func() {
			return d.faults.Add(etcdtest.Rule{Effect: etcdtest.Hold, Method: "Txn", Match: func(msg any) bool { return !writes("")(msg) }}).Remove
		}},
	}
	for name, s := range stuck {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if s.ttl == 0 {
				s.ttl = ttl
			}
			a := w.daemon("a", withTTL(s.ttl))
			w.active(1, soon)
			b := w.daemon("b")
			w.candidateLease("b", 0)
			w.startBrokers(3)
			w.create("orders", 4, 3)
			w.converged(soon)
			claim, _ := w.seat()

			begin := time.Now()
			end := s.begin(w, a)
			defer end()
			if w.active(2, takeover+s.ttl) != b { // even giving up is a write that takes its time
				t.Fatal("b did not follow")
			}
			gone, _ := w.tape.leftSeat(claim.Rev)
			if !s.hung {
				gone = a.history()[0].ended
			}
			if d := gone.Sub(begin); d > s.ttl+time.Second {
				t.Errorf("the seat was given up after %v", d)
			}
			if s.hung {
				w.await("health says so", soon, func() bool { return !a.serving("") })
			}
			w.create("refunds", 4, 3)
			end()
			w.candidateLease("a", 0)
			w.await("a is well again", soon, func() bool { _, ok := a.active(); return !ok && a.serving("") })
			w.wasQuiet(claim)
			w.converged(soon)
			if w.epoch() != 2 {
				t.Errorf("epoch %d", w.epoch())
			}
		})
	}
}

// holdWrites keeps back all that the daemon writes, and makes it write.
func holdWrites(w *world, d *daemon) (end func()) {
	held := d.faults.Add(etcdtest.Rule{Effect: etcdtest.Hold, Method: "Txn", Match: writes(w.keys.Prefix())})
	go func() { _, _ = w.tryCreate(w.call(), "payments", 4, 3) }()
	<-held.Hit()
	return held.Remove
}

// hang blocks the daemon's loop in a callback.
func hang(_ *world, d *daemon) (end func()) {
	hung, release := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = d.Controller.Await(context.Background(), func(rpc.View) bool {
			close(hung)
			<-release
			return true
		})
	}()
	<-hung
	return func() {
		select {
		case <-release:
		default:
			close(release)
		}
		<-done
	}
}

// While a daemon is cut off the history that it has missed is compacted away.
// It lists anew and knows all that it would have seen.
func TestWatchCompactedWhileCutOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.daemon("a", withTTL(5*time.Second), proxied())
	w.active(1, soon)
	b := w.daemon("b", proxied())
	w.candidateLease("b", 0)
	brokers := w.startBrokers(3)
	id := w.create("orders", 6, 3)
	w.converged(soon)
	compact := func(rev store.Rev) {
		if err := w.etcd.Compact(rev); err != nil {
			t.Fatal(err)
		}
	}

	b.proxy.Refuse() // a standby
	if _, err := w.shrink(w.call(), brokers, cluster.PartitionID{Topic: id, Index: 1}); err != nil {
		t.Fatal(err)
	}
	w.create("payments", 6, 3)
	brokers[2].kill()
	w.revoke(w.sessionLease(2))
	w.await("broker 2 leads nothing", soon, func() bool { return w.leads(2) == 0 })
	compact(w.tape.rev())
	b.proxy.Heal()
	w.await("b knows what happened", soon, func() bool {
		resp, err := b.admin.DescribeController(w.call(), &pb.DescribeControllerRequest{})
		return err == nil && resp.GetTopics() == 2 && resp.GetBrokers() == 2
	})

	a.proxy.Refuse() // and the active
	compact(w.put(w.keys.Node(7), encode(t, &pb.NodeRecord{NodeUuid: "node-7"})))
	a.proxy.Heal()
	w.await("a knows what happened", soon, func() bool {
		resp, err := a.admin.ListBrokers(w.call(), &pb.ListBrokersRequest{})
		return err == nil && len(resp.GetBrokers()) == 4
	})
	if n := strings.Count(w.log.String(), "compacted"); n < 2 {
		t.Errorf("compaction was met %d times", n)
	}
	if w.epoch() != 1 {
		t.Errorf("epoch %d", w.epoch())
	}

	a.kill()
	w.broker(2)
	w.active(2, takeover+5*time.Second)
	w.await("every partition has a leader", soon, func() bool { return w.offline() == 0 })
	w.converged(limit)
}
