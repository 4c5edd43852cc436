package scenarios

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/etcdtest"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// The lease is no child of any call: neither idleness nor callers that give up
// end it.
func TestSL1ShortContexts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.daemon("a")
	w.active(1, soon)
	w.daemon("b")
	w.startBrokers(3)
	claim, _ := w.seat()
	pass(longOr(5*time.Minute, patient))
	for i := range 100 {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		done := make(chan struct{})
		go func() {
			defer close(done)
			topic := &pb.NewTopic{Name: fmt.Sprint("topic-", i), Partitions: 1, ReplicationFactor: 3}
			_, _ = a.admin.CreateTopics(ctx, &pb.CreateTopicsRequest{Topics: []*pb.NewTopic{topic}})
		}()
		if i%2 == 0 {
			cancel()
		}
		<-done
		cancel()
	}
	pass(patient / 2)
	if now, _ := w.seat(); now != claim || len(a.history()) != 1 {
		t.Errorf("the seat changed: %+v, %+v", now, a.history())
	}
	w.converged(soon)
}

// The lease is revoked behind the back of a daemon that has nothing to do, or
// too much.
func TestSL2LeaseRevoked(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ blind, busy bool }{
		"idle":  {},
		"blind": {blind: true}, // the watch does not tell
		"busy":  {busy: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.daemon("a", brief)
			w.active(1, soon)
			brokers := w.startBrokers(3)
			w.create("orders", 4, 3)
			w.converged(soon)
			if c.busy {
				w.keepCreating("load", 8, 3)
				w.await("topics are created", soon, func() bool { return len(brokers[0].observed()) > 50 })
			}
			if c.blind {
				blind := a.faults.Add(etcdtest.Rule{Effect: etcdtest.HoldReply, Method: "Watch"})
				defer blind.Remove()
				defer time.AfterFunc(2*ttl, blind.Remove).Stop()
			}
			lease := w.seatLease()
			w.revoke(lease)
			revoked := time.Now()
			w.await("the first term has ended", soon, func() bool { return !a.history()[0].ended.IsZero() })
			if d := a.history()[0].ended.Sub(revoked); d > ttl/3+time.Second {
				t.Errorf("stepped down %v after the lease was revoked", d)
			}
			claim, _ := w.seat()
			w.active(2, takeover)
			if claim.Epoch > 2 || w.seatLease() == lease {
				t.Errorf("epoch %d on lease %x", claim.Epoch, w.seatLease())
			}
			for _, b := range brokers {
				for _, o := range b.observed() {
					if o.ControllerEpoch == 1 && accepted(o) && o.Time.After(revoked.Add(ttl/3+time.Second)) {
						t.Errorf("broker %d accepted %+v", b.id, o)
					}
				}
			}
			w.converged(limit)
		})
	}
}

// A daemon that is cut off from etcd only goes quiet before etcd can let its
// lease go: its last command arrives before the next one can have won.
func TestSL3SafetyMargin(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	t.Run("at any time", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		for _, id := range []string{"a", "b"} {
			w.daemon(id, proxied(), withTTL(lease))
		}
		w.active(1, soon)
		w.startBrokers(3)
		nagger := w.nagger()
		w.create("orders", 4, 3)
		for e := range cluster.Epoch(longOr(20, 2)) {
			d := w.active(e+1, soon)
			w.overlap(d, nagger, lease)
			d.proxy.Heal()
			w.candidateLease(d.ID, 0)
		}
	})
	t.Run("right after the grant", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.daemon("a", proxied(), withTTL(lease))
		w.active(1, soon)
		nagger := w.nagger()
		w.create("orders", 4, 1)
		w.revoke(w.seatLease())
		w.active(2, soon) // on a lease that was never renewed
		w.overlap(a, nagger, lease, "b")
	})
}

// nagger is a broker that refuses every second command, so that the sender
// never rests.
func (w *world) nagger() *fake {
	var n atomic.Int64
	return w.fake(3, func(*pb.Command) *pb.CommandAck {
		if n.Add(1)%2 == 0 {
			return &pb.CommandAck{Refusal: pb.Refusal_REFUSAL_UNAVAILABLE}
		}
		return &pb.CommandAck{}
	})
}

// overlap cuts the active off from etcd, starts other daemons, and compares
// when its last command arrived with when its seat was gone.
func (w *world) overlap(d *daemon, nagger *fake, lease time.Duration, others ...string) {
	w.t.Helper()
	claim, _ := d.active()
	w.await("the fake broker is kept busy", soon, func() bool { return !lastOf(nagger, claim.Epoch).IsZero() })
	cut := time.Now()
	d.proxy.Blackhole()
	for _, id := range others {
		w.daemon(id)
	}
	w.active(claim.Epoch+1, lease+3*time.Second)
	left, _ := w.tape.leftSeat(claim.Rev)
	last := lastOf(nagger, claim.Epoch)
	if last.Before(cut) {
		w.t.Error("nothing was sent while the daemon was cut off")
	}
	for _, b := range w.brokers {
		for _, o := range b.observed() {
			if o.ControllerEpoch == claim.Epoch && accepted(o) && o.Time.After(last) {
				last = o.Time
			}
		}
	}
	if !last.Before(left) {
		w.t.Errorf("the last command of epoch %d arrived %v after its seat was gone", claim.Epoch, last.Sub(left))
	}
}

// lastOf is when the last command of an epoch arrived.
func lastOf(f *fake, e cluster.Epoch) (last time.Time) {
	for _, c := range f.commands() {
		if cluster.Epoch(c.cmd.GetStamp().GetControllerEpoch()) == e {
			last = c.at
		}
	}
	return last
}

// The leases of the active and of all brokers are revoked at once, though all
// of them are well: one new term, and everything is online again by itself.
func TestSL4AllLeasesRevoked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a")
	w.active(1, soon)
	w.daemon("b")
	brokers := w.startBrokers(3)
	w.create("orders", 12, 3)
	w.converged(soon)
	epochs := map[cluster.BrokerID]cluster.BrokerEpoch{}
	leases := []store.LeaseID{w.seatLease()}
	for _, b := range brokers {
		epochs[b.id] = b.Epoch()
		leases = append(leases, w.sessionLease(b.id))
	}
	var all sync.WaitGroup
	for _, l := range leases {
		all.Go(func() { _ = w.store.Revoke(w.call(), l) })
	}
	all.Wait()
	w.active(2, soon)
	w.await("the brokers registered again, and every partition has a leader", limit, func() bool {
		for _, b := range brokers {
			if b.Epoch() == epochs[b.id] {
				return false
			}
		}
		return w.offline() == 0
	})
	w.converged(limit)
	if w.epoch() != 2 {
		t.Errorf("epoch %d", w.epoch())
	}
}

// Failed and successful campaigns, again and again: no lease, goroutine, watch
// or stream is left behind, and in the end none at all.
func TestSL5NothingLeaks(t *testing.T) {
	// Not parallel: it counts goroutines.
	w := newWorld(t)
	daemons := []*daemon{w.daemon("a", brief), w.daemon("b", brief)}
	w.active(1, soon)
	for _, d := range daemons {
		w.candidateLease(d.ID, 0)
	}
	w.startBrokers(3)
	w.create("orders", 12, 3)
	w.converged(soon)
	base := w.resources()
	rounds := cluster.Epoch(longOr(300, 60))
	for e := range rounds {
		var refused []*etcdtest.Fault
		for _, d := range daemons {
			if e%3 == 0 { // a failed campaign first
				rule := etcdtest.Rule{Effect: etcdtest.Refuse, Method: "Txn", Times: 1, Match: writes(w.keys.ControllerEpoch())}
				refused = append(refused, d.faults.Add(rule))
			}
		}
		w.active(e+1, soon)
		w.revoke(w.seatLease())
		w.active(e+2, soon)
		for _, f := range refused {
			f.Remove()
		}
	}
	if w.epoch() != rounds+1 {
		t.Errorf("epoch %d after %d fail-overs", w.epoch(), rounds)
	}
	w.backTo(base, 20)
	w.converged(soon)

	for _, b := range w.brokers {
		b.kill()
	}
	daemons[0].kill()
	daemons[1].stop()
	w.await("no lease is left", 2*max(ttl, sessionTTL), func() bool { return len(w.etcd.Leases(w.call())) == 0 })
	w.await("no watch is left but our own", soon, func() bool { return w.etcd.Watchers() == 1 })
}

// Times that other machines wrote, or that an operator set, are for people:
// nothing is decided by them.
func TestSL6AbsurdTimes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a")
	w.active(1, soon)
	w.daemon("b")
	w.candidateLease("b", 0)
	w.startBrokers(3)
	w.create("orders", 4, 3)
	w.converged(soon)
	claim, _ := w.seat()
	past, future := time.Unix(0, 1).UnixMilli(), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	for _, ms := range []int64{past, future, -future} {
		w.setTimes(ms)
		w.converged(soon)
	}
	pass(patient / 2)
	if now, _ := w.seat(); now != claim || w.offline() != 0 {
		t.Errorf("seat %+v after %+v, %d partitions offline", now, claim, w.offline())
	}
	w.resign()
	w.create("payments", 4, 3)
	w.converged(soon)
	resp, err := w.someAdmin(0).ListTerms(w.call(), &pb.ListTermsRequest{})
	if err != nil || len(resp.GetTerms()) != 2 {
		t.Errorf("terms: %v, %v", resp, err)
	}
}

// setTimes writes a time into every record that has one, except into the seat,
// where a write would end the term.
func (w *world) setTimes(ms int64) {
	w.t.Helper()
	type record struct {
		key string
		m   proto.Message
	}
	var all []record
	w.tape.look(func(im *cluster.Image) {
		add := func(key string, m proto.Message, set func(proto.Message)) {
			m = proto.Clone(m)
			set(m)
			all = append(all, record{key, m})
		}
		for id, b := range im.Brokers {
			add(w.keys.Broker(id), b.Record, func(m proto.Message) { m.(*pb.BrokerRecord).RegisteredMs = ms })
		}
		for lease, c := range im.Candidates {
			add(w.keys.Candidate(lease), c.Record, func(m proto.Message) { m.(*pb.CandidateRecord).StartedMs = ms })
		}
		for e, t := range im.Terms {
			add(w.keys.Term(e), t.Record, func(m proto.Message) {
				m.(*pb.TermRecord).BeganMs, m.(*pb.TermRecord).EndedMs = ms, -ms
			})
		}
		for name, t := range im.Topics {
			add(w.keys.Topic(name), t.Record, func(m proto.Message) { m.(*pb.TopicRecord).CreatedMs = ms })
			block := &pb.PartitionBlock{}
			im.Partitions(t, func(id cluster.PartitionID, p *cluster.Partition) {
				r := p.Record(id.Index)
				r.ChangedMs = ms
				block.Partitions = append(block.Partitions, r)
			})
			all = append(all, record{w.keys.Block(cluster.BlockID{Topic: t.ID}), block})
		}
	})
	for _, r := range all {
		w.put(r.key, encode(w.t, r.m), clientv3.WithIgnoreLease())
	}
}
