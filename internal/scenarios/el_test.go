package scenarios

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/epoch"
	"github.com/controllerd/controllerd/internal/etcdtest"
	"github.com/controllerd/controllerd/internal/localcluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// candidateLease waits until a daemon has a candidate key on another lease
// than the old one, and returns that lease.
func (w *world) candidateLease(id string, old store.LeaseID) (lease store.LeaseID) {
	w.t.Helper()
	w.await(id+" is a candidate on a new lease", soon, func() bool {
		for _, l := range w.candidates()[id] {
			if l != old {
				lease = l
				return true
			}
		}
		return false
	})
	return lease
}

// seatLease is the lease under the seat, 0 if it is empty.
func (w *world) seatLease() (lease store.LeaseID) {
	w.tape.look(func(im *cluster.Image) {
		if im.Controller != nil {
			lease = im.Controller.Lease
		}
	})
	return lease
}

// A standby whose lease dies contends again with a new one.
func TestEL1StandbyLeaseDies(t *testing.T) {
	t.Parallel()
	faults := map[string]func(*world, *daemon, store.LeaseID){
		"revoked": func(w *world, _ *daemon, lease store.LeaseID) { w.revoke(lease) },
		"cut off": func(w *world, b *daemon, lease store.LeaseID) {
			b.proxy.Blackhole()
			w.await("the lease of b is gone", takeover, func() bool { return !w.leaseLives(lease) })
			b.proxy.Heal()
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.daemon("a", brief)
			w.active(1, soon)
			b := w.daemon("b", proxied(), brief)
			old := w.candidateLease("b", 0)
			fault(w, b, old)
			lease := w.candidateLease("b", old)
			if c := w.candidates(); len(c["a"]) != 1 || len(c["b"]) != 1 {
				t.Errorf("candidates %v", c)
			}
			if len(b.history()) > 0 {
				t.Errorf("b was active: %v", b.history())
			}

			a.kill()
			if w.active(2, takeover) != b || w.epoch() != 2 || w.seatLease() != lease || !w.leaseLives(lease) {
				t.Errorf("epoch %d, seat on lease %x, b has %x", w.epoch(), w.seatLease(), lease)
			}
		})
	}
}

// Operators delete the seat to unwedge a cluster. Each time exactly one daemon
// follows, while topics are created.
func TestEL2SeatDeletedByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"a", "b", "c"} {
		w.daemon(id)
	}
	w.active(1, soon)
	w.startBrokers(3)
	stop := w.keepCreating("load", 2, 3)
	for e := cluster.Epoch(1); e <= 20; e++ {
		w.active(e, soon)
		w.await("topics are created", soon, func() bool { return w.topics() >= int(e)/2 })
		w.remove(w.keys.Controller())
		w.active(e+1, soon)
		if w.epoch() != e+1 {
			t.Fatalf("epoch %d follows %d", w.epoch(), e)
		}
	}
	stop()
	w.converged(soon)
}

// A daemon that comes back before its old lease is gone does not mistake the
// key of its previous process for its own.
func TestEL3RestartWithinTTL(t *testing.T) {
	t.Parallel()
	for _, others := range []int{0, 1} {
		t.Run(fmt.Sprint(others, " other"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.daemon("a", brief)
			w.active(1, soon)
			for i := range others {
				w.candidateLease(w.daemon(fmt.Sprint("b", i)).ID, 0)
			}
			old := w.seatLease()
			a.kill()
			again := w.daemon("a", brief)
			next := w.active(2, takeover)
			if w.epoch() != 2 || w.seatLease() == old {
				t.Errorf("epoch %d, seat on lease %x", w.epoch(), w.seatLease())
			}
			for _, d := range []*daemon{again, next} {
				for _, term := range d.history() {
					if term.claim.Epoch < 2 {
						t.Errorf("%s acted under the claim of an earlier process: %+v", d.ID, term)
					}
				}
			}
		})
	}
}

// Two daemons with one id are two daemons: one is active, and says that there
// is another.
func TestEL4SameID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.daemon("a", brief)
	w.active(1, soon)
	second := w.daemon("a", brief)
	for e := cluster.Epoch(1); e <= 3; e++ {
		w.await("both name the duplicate", soon, func() bool { return first.names("same id") && second.names("same id") })
		if _, ok := second.active(); ok || w.active(e, soon) != first || w.epoch() != e {
			t.Fatalf("epoch %d: %v and %v", w.epoch(), first.history(), second.history())
		}
		first.kill()
		if w.active(e+1, takeover) != second {
			t.Fatal("the second did not follow")
		}
		first, second = second, w.daemon("a", brief)
	}

	_, err := localcluster.StartDaemon(localcluster.DaemonConfig{
		ID: "a", Cluster: clusterName, Listen: first.Endpoint, EtcdEndpoints: []string{w.etcd.Endpoint()}, Logger: w.logger(),
	})
	var op *net.OpError
	if !errors.As(err, &op) || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("start on the port of another: %v", err)
	}
}

// A daemon that lost the seat contends again, as often as that happens.
func TestEL5ContendsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	daemons := map[string]*daemon{}
	for _, id := range []string{"a", "b", "c"} {
		daemons[id] = w.daemon(id, brief)
	}
	firstLoser := ""
	lost := map[string]int{}
	for e := cluster.Epoch(1); len(lost) < 3 || min(lost["a"], lost["b"], lost["c"]) < 2; e++ {
		d := w.active(e, soon)
		if e > 200 {
			t.Fatalf("after %d terms only %v have lost the seat", e, lost)
		}
		if firstLoser == "" {
			firstLoser = d.ID
		}
		lost[d.ID]++
		w.revoke(w.seatLease())
		w.active(e+1, soon)
		w.candidateLease(d.ID, 0)
	}
	last := w.epoch()
	for id, d := range daemons {
		if id != firstLoser {
			d.kill()
		}
	}
	w.await(firstLoser+" is active", takeover+ttl, func() bool {
		_, ok := daemons[firstLoser].active()
		return ok
	})
	if e := w.epoch(); e > last+2 {
		t.Errorf("epoch %d after %d", e, last)
	}
}

// One daemon that loses the seat and wins it back, fast: work is done once, by
// the last term, and nothing of the earlier ones is left.
func TestEL6LossAndRegain(t *testing.T) {
	// Not parallel: it counts goroutines.
	w := newWorld(t)
	d := w.daemon("a")
	brokers := w.startBrokers(3)
	w.create("before", 4, 3)
	w.converged(soon)
	base := w.resources()

	rounds := 50
	for range rounds {
		w.revoke(w.seatLease()) // also while the next term begins
		pass(time.Duration(rand.Int64N(int64(longOr(1500*time.Millisecond, 60*time.Millisecond)))))
		w.await("somebody holds the seat", soon, func() bool { return w.seatLease() != 0 })
	}
	won := d.history()
	w.active(cluster.Epoch(len(won)), soon)
	won = d.history()
	if e := w.epoch(); e <= cluster.Epoch(rounds/2) || won[len(won)-1].claim.Epoch != e {
		t.Errorf("epoch %d after %d rounds, the daemon acted in %d terms", e, rounds, len(won))
	}

	w.create("after", 4, 3)
	w.converged(soon)
	brokers[2].kill()
	w.await("broker 2 leads nothing", 2*sessionTTL, func() bool { return w.leads(2) == 0 })
	w.broker(2)
	w.backTo(base, 20)
	w.converged(limit)
}

// topics is how many there are.
func (w *world) topics() (n int) {
	w.tape.look(func(im *cluster.Image) { n = len(im.Topics) })
	return n
}

// leads is how many partitions a broker leads.
func (w *world) leads(id cluster.BrokerID) (n int) {
	w.tape.look(func(im *cluster.Image) {
		im.Hosted(id, func(_ *cluster.Topic, _ cluster.PartitionID, p *cluster.Partition) {
			if p.Leader == id {
				n++
			}
		})
	})
	return n
}

// The compare of the epoch fails because somebody writes the key by hand: no
// term, another try with what is there now.
func TestEL7LostEpochCompare(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.daemon("a"), w.daemon("b")
	w.active(1, soon)
	w.startBrokers(3)
	w.create("orders", 4, 3)
	bump := func() cluster.Epoch {
		e := w.epoch() + 1
		w.put(w.keys.ControllerEpoch(), encode(t, &pb.EpochRecord{Epoch: int64(e)}))
		return e
	}

	for range 10 { // under a running term, and into the claims that follow
		w.revoke(w.seatLease())
		bumped := bump()
		w.active(bumped+1, soon)
	}

	// Held back, so that the compare certainly fails.
	held := []*etcdtest.Fault{holdClaims(a), holdClaims(b)}
	w.revoke(w.seatLease())
	w.await("a claim is held", soon, func() bool { return held[0].Hits()+held[1].Hits() > 0 })
	bumped := bump()
	for _, h := range held {
		h.Remove()
	}
	w.active(bumped+1, soon)
	if e := w.epoch(); e != bumped+1 {
		t.Errorf("epoch %d after %d was put by hand", e, bumped)
	}
	for _, d := range []*daemon{a, b} {
		for _, term := range d.history() {
			if term.claim.Epoch == bumped {
				t.Errorf("%s acted under an epoch that it did not win: %+v", d.ID, term)
			}
		}
	}
	w.create("payments", 4, 3)
	w.converged(soon)
}

func encode(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// With a large state and a slow etcd the lease is kept while the state loads:
// one epoch for each fail-over.
func TestEL8SlowLoad(t *testing.T) {
	longOr(func() {}, t.Parallel)() // the long one needs the machine for itself
	topics, failovers := longOr(5_000, 1_000), cluster.Epoch(longOr(5, 2))
	w := newWorld(t)
	w.preload(topics, 3)
	slow := func(d *daemon, cfg *localcluster.DaemonConfig) {
		proxied()(d, cfg)
		d.proxy.SetLatency(20 * time.Millisecond)           // each way
		cfg.LeaseTTL = longOr(3*time.Second, 5*time.Second) // make test runs beside much else
	}
	d := w.daemon("a", slow)
	w.active(1, limit)
	w.startBrokers(3)
	for e := cluster.Epoch(1); e <= failovers; e++ {
		w.await("every partition has a leader", limit, func() bool { return w.offline() == 0 })
		w.await(fmt.Sprintf("brokers obey epoch %d", e), limit, func() bool { return w.apart() == "" })
		if w.epoch() != e {
			t.Fatalf("epoch %d after %d fail-overs", w.epoch(), e-1)
		}
		d.kill()
		d = w.daemon(fmt.Sprint("b", e), slow, listen(d.Endpoint)) // loads while the lease expires
		w.active(e+1, takeover+limit)
	}
	w.converged(limit)
}

// An etcd that takes 800 ms for everything is slow, not away.
func TestEL8SlowEtcd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	slow := func(d *daemon, cfg *localcluster.DaemonConfig) {
		proxied()(d, cfg)
		d.proxy.SetLatency(400 * time.Millisecond) // each way
		cfg.LeaseTTL = 5 * time.Second
	}
	d := w.daemon("a", slow)
	w.active(1, limit)
	next := w.daemon("b", slow)
	w.startBrokers(3)
	w.create("orders", 4, 3)
	w.converged(limit)
	pass(longOr(time.Minute, 3*time.Second))
	if w.epoch() != 1 {
		t.Errorf("epoch %d while nothing failed", w.epoch())
	}
	d.kill()
	if w.active(2, limit) != next || w.epoch() != 2 {
		t.Errorf("epoch %d", w.epoch())
	}
	w.create("payments", 4, 3)
	w.converged(limit)
}

// A stop in order: the work ends before the seat is given up, nobody waits for
// a lease, and it ends even without etcd.
func TestEL9StopInOrder(t *testing.T) {
	t.Parallel()
	t.Run("brokers hang", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.daemon("a", brief)
		w.active(1, soon)
		w.daemon("b")
		brokers := w.startBrokers(3)
		w.converged(soon)
		hung := make(chan struct{}, 1000)
		for _, b := range brokers[:2] {
			b.onApply(func(ctx context.Context, _ broker.PartitionState) error {
				hung <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})
		}
		w.keepCreating("load", 10, 3)
		<-hung
		claim, _ := w.seat()
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			a.stop()
		}()
		w.active(2, 2*time.Second)
		select {
		case <-stopped:
		case <-time.After(10 * time.Second):
			t.Fatal("a does not stop")
		}
		w.wasQuiet(claim)
		var cause pb.EndCause
		w.tape.look(func(im *cluster.Image) { cause = im.Terms[1].Record.GetEndCause() })
		if cause != pb.EndCause_END_CAUSE_SHUTDOWN {
			t.Errorf("the history says %v", cause)
		}
	})
	t.Run("etcd is away", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.daemon("a", proxied(), brief)
		w.active(1, soon)
		w.daemon("b")
		w.startBrokers(3)
		w.create("orders", 4, 3)
		a.proxy.Blackhole()
		begin := time.Now()
		a.stop()
		if d := time.Since(begin); d > 10*time.Second {
			t.Errorf("stopping took %v", d)
		}
		w.active(2, takeover)
		w.converged(limit)
	})
	for _, times := range []int{1, 2} {
		t.Run(fmt.Sprint("SIGTERM times ", times), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.process("a")
			w.seated(1, soon)
			b := w.daemon("b")
			w.startBrokers(3)
			w.create("orders", 4, 3)
			claim := w.seatTo("a")
			for range times {
				a.signal(syscall.SIGTERM)
			}
			within := 2 * time.Second
			if times > 1 {
				within = takeover // the second signal ends it at once
			}
			if w.active(claim.Epoch+1, within) != b {
				t.Error("b did not follow")
			}
			select {
			case <-a.exited:
			case <-time.After(10 * time.Second):
				t.Fatal("a does not exit")
			}
			if code := a.cmd.ProcessState.ExitCode(); times == 1 && code != 0 {
				t.Errorf("exit code %d", code)
			}
			w.wasQuiet(claim)
		})
	}
}

// wasQuiet checks that no broker accepted a command of a term after its seat
// was given up.
func (w *world) wasQuiet(claim epoch.Claim) {
	w.t.Helper()
	left, _ := w.tape.leftSeat(claim.Rev)
	if left.IsZero() {
		w.t.Fatalf("the seat of epoch %d was not given up", claim.Epoch)
	}
	for _, b := range w.brokers {
		for _, o := range b.observed() {
			if o.ControllerEpoch == claim.Epoch && accepted(o) && o.Time.After(left) {
				w.t.Errorf("broker %d accepted %+v, %v after the seat was given up", b.id, o, o.Time.Sub(left))
			}
		}
	}
}

// The same while the active is stopped: it wakes up with a healthy lease, and
// has lost the seat all the same.
func TestEL2SeatDeletedWhileFrozen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.process("a")
	w.seated(1, soon)
	b := w.daemon("b")
	w.startBrokers(3)
	w.create("orders", 4, 3)
	stop := w.keepCreating("load", 8, 3)
	w.await("topics are created", soon, func() bool { return w.topics() > 3 })
	next := w.seatTo("a").Epoch + 1
	a.freeze()
	w.remove(w.keys.Controller())
	if w.active(next, soon) != b {
		t.Fatal("b did not follow")
	}
	w.obeyed(next, soon)
	a.thaw()
	w.await("a is a candidate again", soon, func() bool {
		resp, err := a.admin.DescribeController(w.call(), &pb.DescribeControllerRequest{})
		return err == nil && resp.GetRole() == "standby" && cluster.Epoch(resp.GetEpoch()) == next && len(w.candidates()["a"]) == 1
	})
	stop()
	w.converged(limit)
	if now, _ := w.seat(); now.Epoch != next {
		t.Errorf("epoch %d", now.Epoch)
	}
}
