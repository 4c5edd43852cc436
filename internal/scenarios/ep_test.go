package scenarios

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/etcdtest"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// The active is stopped for a part or a multiple of its lease, with work under
// way. What it wakes up to say is heard by nobody.
func TestEP1ActiveFrozen(t *testing.T) {
	t.Parallel()
	for range longOr(8, 1) {
		w := newWorld(t)
		a := w.process("a")
		w.seated(1, soon)
		brokers := w.startBrokers(3)
		brokers[0].onApply(func(ctx context.Context, _ broker.PartitionState) error {
			slow, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			<-slow.Done()
			return ctx.Err()
		})
		// Clearly below the TTL: on a lease that was granted just now.
		w.revoke(w.seatLease())
		w.seated(2, soon)
		w.frozen(a, ttl/2)
		pass(ttl)
		if w.epoch() != 2 {
			t.Errorf("epoch %d after a pause of half a lease under epoch 2", w.epoch())
		}

		daemons := map[string]*process{"a": a, "b": w.process("b")}
		for _, pause := range []time.Duration{ttl, ttl * 11 / 10, 2 * ttl} {
			w.resign()
			before, id := w.seat()
			lease := w.seatLease()
			w.frozen(daemons[id], pause)
			w.await(fmt.Sprintf("%s works again after a pause of %v", id, pause), soon, func() bool {
				claim, _ := w.seat()
				leases := w.candidates()[id]
				return len(leases) == 1 && (claim == before || leases[0] != lease)
			})
			w.converged(limit)
		}
	}
}

// frozen stops the active for a while, and for as long as it takes until all
// brokers obey the next one if the pause is two leases.
func (w *world) frozen(p *process, pause time.Duration) {
	w.t.Helper()
	e := w.epoch()
	stop := w.keepCreating(fmt.Sprint("load-", e), 8, 3)
	defer stop()
	p.freeze()
	pass(pause)
	if pause >= 2*ttl {
		w.seated(e+1, takeover)
		w.obeyed(e+1, soon)
	}
	p.thaw()
}

// capture remembers a transaction that a rule has met.
type capture struct {
	mu  sync.Mutex
	txn *etcdpb.TxnRequest
}

// hold keeps back the next write of keys with a prefix, and remembers it.
func (c *capture) hold(d *daemon, prefix string) *etcdtest.Fault {
	match := writes(prefix)
	return d.faults.Add(etcdtest.Rule{Effect: etcdtest.Hold, Method: "Txn", Times: 1, Match: func(msg any) bool {
		if !match(msg) {
			return false
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.txn = proto.Clone(msg.(*etcdpb.TxnRequest)).(*etcdpb.TxnRequest)
		return true
	}})
}

// A write of partition state is under way while another daemon takes over. It
// reaches etcd in the end, and changes nothing.
func TestEP2WriteInFlight(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		act func(w *world, brokers []*node, id cluster.TopicID)
		// The next term leaves alone what the write is about: only the guard of
		// the claim stands in its way.
		untouched bool
	}{
		"create topic": {act: func(w *world, _ []*node, _ cluster.TopicID) {
			go func() { _, _ = w.tryCreate(w.call(), "payments", 4, 3) }()
		}},
		"create topic, nobody asks again": {untouched: true, act: func(w *world, _ []*node, _ cluster.TopicID) {
			req := &pb.CreateTopicsRequest{Topics: []*pb.NewTopic{{Name: "payments", Partitions: 4, ReplicationFactor: 3}}}
			go func() { _, _ = w.someAdmin(0).CreateTopics(w.call(), req) }()
		}},
		"leader election": {act: func(w *world, _ []*node, _ cluster.TopicID) {
			w.revoke(w.sessionLease(1))
		}},
		"alter ISR": {act: func(w *world, brokers []*node, id cluster.TopicID) {
			go func() { _, _ = w.shrink(w.call(), brokers, cluster.PartitionID{Topic: id}) }()
		}},
	}
	for name, c := range cases {
		for _, follower := range []string{"a", "b"} { // the same daemon again, or another
			t.Run(name+", then "+follower, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				a := w.daemon("a")
				w.active(1, soon)
				if follower != "a" {
					w.daemon(follower)
					w.candidateLease(follower, 0)
				}
				brokers := w.startBrokers(3)
				id := w.create("orders", 4, 3)
				w.converged(soon)

				var late capture
				held := late.hold(a, w.keys.Prefix()+"partitions/")
				defer held.Remove()
				rev := w.tape.rev()
				c.act(w, brokers, id)
				<-held.Hit()
				if follower != "a" {
					defer holdClaims(a).Remove()
				}
				w.revoke(w.seatLease())
				if d := w.active(2, soon); d.ID != follower {
					t.Fatalf("%s follows", d.ID)
				}
				written := func(key string) bool { return strings.HasPrefix(key, w.keys.Prefix()+"partitions/") }
				w.await("the next term has written", limit, func() bool { return c.untouched || len(w.tape.after(rev, written)) > 0 })
				w.converged(limit)

				rev = w.tape.rev()
				late.mu.Lock()
				defer late.mu.Unlock()
				resp, err := etcdpb.NewKVClient(w.client.ActiveConnection()).Txn(w.call(), late.txn)
				if err != nil || resp.Succeeded {
					t.Errorf("the late write: %v, %v", resp, err)
				}
				w.create("refunds", 4, 3)
				for _, c := range w.tape.after(rev, written) {
					if c.KV.ModRev <= store.Rev(resp.GetHeader().GetRevision()) {
						t.Errorf("written late: %+v", c)
					}
				}
				w.candidateLease("a", 0)
				w.converged(limit)
				for _, b := range brokers {
					for _, id := range b.Partitions() {
						if len(w.partition(id).Replicas) == 0 {
							t.Errorf("broker %d was told of partition %s, which was never stored", b.id, id)
						}
					}
				}
				if w.epoch() != 2 {
					t.Errorf("epoch %d", w.epoch())
				}
			})
		}
	}
}

// The reply to the transaction that wins is lost, in several ways. Who won is
// read from etcd; nobody waits for the lease.
func TestEP3UnknownOutcomeOfClaim(t *testing.T) {
	t.Parallel()
	losses := map[string]struct {
		effect etcdtest.Effect
		cut    bool
		rounds int
	}{
		"unavailable": {effect: etcdtest.LoseReply, rounds: longOr(100, 20)},
		"no answer":   {effect: etcdtest.HoldReply, rounds: longOr(100, 20)},
		"cut":         {effect: etcdtest.LoseReply, cut: true, rounds: longOr(100, 10)},
	}
	for name, loss := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			daemons := []*daemon{w.daemon("a", proxied()), w.daemon("b", proxied())}
			w.active(1, soon)
			w.startBrokers(3)
			for e := range cluster.Epoch(loss.rounds) {
				w.active(e+1, soon)
				var faults []*etcdtest.Fault
				for _, d := range daemons {
					rule := etcdtest.Rule{Effect: loss.effect, Method: "Txn", Match: writes(w.keys.ControllerEpoch())}
					faults = append(faults, d.faults.Add(rule))
				}
				w.revoke(w.seatLease())
				w.seated(e+2, soon)
				for _, d := range daemons {
					if loss.cut {
						d.proxy.Reset()
					}
				}
				w.active(e+2, soon)
				if w.epoch() != e+2 || faults[0].Hits()+faults[1].Hits() == 0 {
					t.Fatalf("epoch %d, %d claims met the fault", w.epoch(), faults[0].Hits()+faults[1].Hits())
				}
				for _, f := range faults {
					f.Remove()
				}
			}
			w.create("orders", 4, 3)
			w.converged(soon)
		})
	}
}

// A command for an earlier process of a broker arrives late, at the next one.
func TestEP4CommandForPreviousIncarnation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.daemon("a")
	w.active(1, soon)
	brokers := w.startBrokers(3)
	w.create("orders", 4, 3)
	w.converged(soon)

	var mu sync.Mutex
	var late *pb.Command
	held := a.toBrokers.Add(etcdtest.Rule{Effect: etcdtest.Hold, Method: "Commands", Times: 1, Match: func(msg any) bool {
		r, _ := msg.(*pb.CommandsRequest) // metadata is another type
		cmd := r.GetCommand()
		if cmd.GetStamp().GetBrokerId() != 1 || cmd.GetLeaderAndIsr() == nil {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		late = cmd
		return true
	}})
	w.create("payments", 4, 3)
	<-held.Hit()
	brokers[1].kill()
	again := w.broker(1)
	w.registered(again)
	held.Remove()
	w.converged(limit)

	mu.Lock()
	defer mu.Unlock()
	if ack := w.say(again, late); ack.GetRefusal() != pb.Refusal_REFUSAL_STALE_BROKER_EPOCH {
		t.Errorf("the late command: %v", ack)
	}
	w.converged(soon)
}

// A broker does not know its new epoch yet when the controller does: commands
// are repeated until it does, and it stays live.
func TestEP4BrokerLearnsItsEpochLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a")
	w.active(1, soon)
	w.startBrokers(2)
	var slow etcdtest.Faults
	held := slow.Add(etcdtest.Rule{Effect: etcdtest.HoldReply, Method: "Register"})
	b := w.broker(2, withDial(slow.DialOptions()...))
	refused := func() (n int) {
		for _, o := range b.observed() {
			if o.Result == "UNAVAILABLE" {
				n++
			}
		}
		return n
	}
	w.await("the controller is refused and tries again", soon, func() bool { return refused() >= 3 })
	held.Remove()
	w.registered(b)
	w.create("orders", 4, 3)
	w.converged(limit)
	if n := refused(); n > 50 {
		t.Errorf("%d commands were refused meanwhile", n)
	}
}

// A broker claims to know a higher epoch than etcd: the controller looks, keeps
// the seat, serves the others, and tries that broker again now and then.
func TestEP5BrokerClaimsHigherEpoch(t *testing.T) {
	t.Parallel()
	t.Run("misled", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.daemon("a")
		w.active(1, soon)
		brokers := w.startBrokers(3)
		w.create("orders", 4, 3)
		w.converged(soon)
		var uuid string
		w.tape.look(func(im *cluster.Image) { uuid = im.Cluster.GetUuid() })
		stamp := &pb.Stamp{ClusterUuid: uuid, ControllerId: byHandSender, ControllerEpoch: 2, BrokerEpoch: int64(brokers[0].Epoch())}
		if ack := w.say(brokers[0], &pb.Command{Stamp: stamp, Sequence: 1, Body: &pb.Command_UpdateMetadata{UpdateMetadata: &pb.UpdateMetadata{}}}); ack.GetControllerEpoch() != 2 {
			t.Fatalf("the forged command: %v", ack)
		}
		w.create("payments", 4, 3)
		w.servesOthers(a, brokers[1:], "broker 0 gets no commands")
		refused := 0
		for _, o := range brokers[0].observed() {
			if o.Result == "STALE_CONTROLLER_EPOCH" {
				refused++
			}
		}
		if refused > 20 {
			t.Errorf("%d commands were sent in vain", refused)
		}
		w.resign()
		w.converged(soon)
	})
	t.Run("lying", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.daemon("a")
		w.active(1, soon)
		brokers := w.startBrokers(3)
		liar := w.fake(3, func(*pb.Command) *pb.CommandAck {
			return &pb.CommandAck{Refusal: pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH, ControllerEpoch: 1 << 31}
		})
		w.create("orders", 4, 3)
		w.servesOthers(a, brokers, "broker 3 gets no commands")
		if n := len(liar.commands()); n == 0 || n > 60 {
			t.Errorf("%d commands were sent to the liar", n)
		}
	})
	t.Run("right", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.daemon("a") // with a long lease, so that nothing else tells it soon
		w.active(1, soon)
		brokers := w.startBrokers(3)
		brokers[0].onApply(func(context.Context, broker.PartitionState) error { return errors.New("not now") }) // so that a has to say it again
		w.create("orders", 4, 3)
		w.converged(soon)
		b := w.daemon("b")
		w.candidateLease("b", 0)
		blind := a.faults.Add(etcdtest.Rule{Effect: etcdtest.HoldReply, Method: "Watch"})
		w.revoke(w.seatLease())
		w.obeyed(2, soon)
		if w.active(2, soon) != b {
			t.Error("b did not follow")
		}
		w.await("a has stepped down", 2*time.Second, func() bool { _, ok := a.active(); return !ok })
		blind.Remove()
		w.candidateLease("a", 0)
	})
}

// servesOthers lets some time pass in which a daemon must stay active, name
// the problem, and keep the other brokers up to date.
func (w *world) servesOthers(d *daemon, brokers []*node, problem string) {
	w.t.Helper()
	w.await("the problem is named", soon, func() bool { return d.names(problem) })
	pass(ttl)
	claim, ok := d.active()
	if !ok || claim.Epoch != 1 || len(d.history()) != 1 {
		w.t.Errorf("the daemon lost the seat: %+v", d.history())
	}
	for _, b := range brokers {
		w.await("the others hear what is new", soon, func() (same bool) {
			w.tape.look(func(im *cluster.Image) { same = compareBroker(im, b) == "" })
			return same
		})
	}
}
