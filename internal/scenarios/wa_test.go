package scenarios

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/etcdtest"
	"github.com/controllerd/controllerd/internal/localcluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// putTopic writes a topic by hand: its record only, which the active completes.
func (w *world) putTopic(name string, id cluster.TopicID, partitions, rf int32) {
	w.t.Helper()
	w.put(w.keys.Topic(name), encode(w.t, &pb.TopicRecord{
		TopicId: id[:], PartitionsWanted: partitions, ReplicationFactor: rf, BlockSize: cluster.DefaultBlockSize,
	}))
}

// buryByHand deletes a topic as an active would.
func (w *world) buryByHand(name string) {
	w.t.Helper()
	var ops []clientv3.Op
	w.tape.look(func(im *cluster.Image) {
		t := im.Topics[name]
		ts := &pb.TombstoneRecord{Topic: name, Partitions: t.Made(), LeaderEpoch: 1 << 20}
		for id := range im.Brokers {
			ts.Holders = append(ts.Holders, &pb.TombstoneHolder{BrokerId: int32(id)})
		}
		slices.SortFunc(ts.Holders, func(a, b *pb.TombstoneHolder) int { return int(a.GetBrokerId() - b.GetBrokerId()) })
		ops = []clientv3.Op{
			clientv3.OpPut(w.keys.Tombstone(t.ID), string(encode(w.t, ts))), clientv3.OpDelete(w.keys.Topic(name)),
			clientv3.OpDelete(w.keys.Blocks(t.ID), clientv3.WithPrefix()),
		}
	})
	resp, err := w.client.Txn(w.call()).Then(ops...).Commit()
	if err != nil {
		w.t.Fatalf("delete topic %s by hand: %v", name, err)
	}
	w.tape.byHand(resp.Header.Revision)
	w.mu.Lock()
	delete(w.made, name)
	w.mu.Unlock()
}

// lists counts how often a daemon reads the whole prefix.
func (d *daemon) lists() *atomic.Int64 {
	var n atomic.Int64
	d.faults.Add(etcdtest.Rule{Effect: etcdtest.Refuse, Method: "Range", Match: func(msg any) bool {
		if r, ok := msg.(*etcdpb.RangeRequest); ok && !r.GetKeysOnly() {
			n.Add(1)
		}
		return false // it passes
	}})
	return &n
}

// While the daemons are cut off everything happens that can, and is compacted
// away. They list again, once, and handle all of it: what is gone too.
func TestWA1CompactionWhileCutOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const lease = 30 * time.Second
	a := w.daemon("a", withTTL(lease), proxied())
	w.active(1, soon)
	b := w.daemon("b", withTTL(lease), proxied())
	w.candidateLease("b", 0)
	brokers := w.startBrokers(4, withSession(2*lease))
	id := w.create("orders", 8, 3)
	w.create("old", 8, 3)
	w.converged(soon)
	moved := startProxy(t, brokers[3].ControlAddress())
	lists := []*atomic.Int64{a.lists(), b.lists()}

	a.proxy.Refuse()
	b.proxy.Refuse()
	brokers[2].kill()
	w.remove(w.keys.Broker(2))
	w.putTopic("fresh", cluster.TopicID{7}, 8, 3)
	w.buryByHand("old")
	w.editBroker(3, func(r *pb.BrokerRecord) {
		r.ControlAddress = moved.Addr()
		r.Endpoints = []*pb.Endpoint{{Listener: "data", Address: "moved:1"}}
	})
	w.compact()
	a.proxy.Heal()
	b.proxy.Heal()

	w.await("broker 2 leads nothing", soon, func() bool { return w.leads(2) == 0 && w.offline() == 0 })
	w.await("the new topic is complete", soon, func() (ok bool) {
		w.tape.look(func(im *cluster.Image) { t := im.Topics["fresh"]; ok = t != nil && t.Made() == 8 })
		return ok
	})
	for _, n := range []*node{brokers[0], brokers[1], brokers[3]} {
		w.await("replicas of the old topic are deleted", soon, func() bool {
			return !slices.ContainsFunc(n.Partitions(), func(p cluster.PartitionID) bool { return p.Topic != id && p.Topic != cluster.TopicID{7} })
		})
		w.await("everybody knows the address", soon, func() bool {
			return slices.ContainsFunc(n.Live(), func(l broker.LiveBroker) bool {
				return l.ID == 3 && len(l.Endpoints) == 1 && l.Endpoints[0].Address == "moved:1"
			})
		})
	}
	w.await("broker 3 is reached where it is", soon, func() bool { return moved.Dials() > 0 && brokers[3].streams.Load() == 1 })
	w.converged(soon)
	w.await("b knows as much", soon, func() bool {
		resp, err := b.admin.DescribeController(w.call(), &pb.DescribeControllerRequest{})
		return err == nil && resp.GetTopics() == 2 && resp.GetBrokers() == 3 && resp.GetEpoch() == 1
	})
	for i, n := range lists {
		if got := n.Load(); got != 1 {
			t.Errorf("daemon %d has listed %d times", i, got)
		}
	}
	if n := strings.Count(w.log.String(), "compacted"); n != 2 {
		t.Errorf("compaction was met %d times", n)
	}
	if h := a.history(); w.epoch() != 1 || len(h) != 1 || !h[0].ended.IsZero() {
		t.Errorf("epoch %d, terms %+v", w.epoch(), h)
	}
}

// compact forgets all history.
func (w *world) compact() {
	w.t.Helper()
	resp, err := w.client.Get(w.call(), w.keys.Controller())
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.etcd.Compact(store.Rev(resp.Header.Revision)); err != nil {
		w.t.Fatal(err)
	}
}

// The seat becomes free while a standby is cut off, and that is compacted away.
// It takes the seat all the same. If somebody else took it, it stands by.
func TestWA1StandbyMissesTheEndOfATerm(t *testing.T) {
	t.Parallel()
	for name, taken := range map[string]bool{"free": false, "taken again": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.daemon("a")
			w.active(1, soon)
			b := w.daemon("b", withTTL(30*time.Second), proxied())
			w.candidateLease("b", 0)
			w.startBrokers(3, withSession(limit))
			w.create("orders", 6, 3)
			w.converged(soon)
			lists := b.lists()

			b.proxy.Refuse()
			if taken {
				w.resign()
				w.active(2, soon)
			} else {
				a.stop() // in order: the key is deleted
				w.await("the seat is free", soon, func() bool { claim, _ := w.seat(); return claim.Epoch == 0 })
			}
			w.compact()
			b.proxy.Heal()
			if !taken {
				if w.active(2, soon) != b {
					t.Error("b is not active")
				}
				w.create("payments", 6, 3)
			} else {
				w.await("b knows the term", soon, func() bool {
					resp, err := b.admin.DescribeController(w.call(), &pb.DescribeControllerRequest{})
					return err == nil && resp.GetEpoch() == 2 && resp.GetControllerId() == "a" && len(resp.GetProblems()) == 0
				})
			}
			w.converged(soon)
			if n := lists.Load(); n != 1 || w.epoch() != 2 {
				t.Errorf("listed %d times, epoch %d", n, w.epoch())
			}
		})
	}
}

// A broker dies while the active is cut off for half a lease. Once it is back
// the partitions move, without a nudge, and the seat was kept.
func TestWA2ChangeDuringDisconnect(t *testing.T) {
	t.Parallel()
	cuts := map[string]func(*daemon){
		"broken": func(d *daemon) { d.proxy.Refuse() },
		"silent": func(d *daemon) { d.proxy.Blackhole() },
	}
	for name, cut := range cuts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			const lease = patient
			a := w.daemon("a", withTTL(lease), proxied())
			w.active(1, soon)
			brokers := w.startBrokers(3, withSession(limit))
			w.create("orders", 9, 3)
			w.converged(soon)
			if w.leads(2) == 0 {
				t.Fatal("broker 2 leads nothing")
			}
			renewal := a.faults.Add(etcdtest.Rule{Effect: etcdtest.Slow, Method: "LeaseKeepAlive", Times: 1})
			<-renewal.Hit()
			w.await("the lease is fresh", soon, func() bool {
				resp, err := w.client.TimeToLive(w.call(), clientv3.LeaseID(w.seatLease()))
				return err == nil && resp.TTL >= int64(lease/time.Second)-2
			})
			begin := time.Now()
			cut(a)
			brokers[2].kill()
			w.revoke(w.sessionLease(2))
			pass(lease/2 - time.Since(begin))
			rev := w.tape.rev()
			a.proxy.Heal()
			w.await("broker 2 leads nothing", soon/2, func() bool { return w.leads(2) == 0 && w.offline() == 0 })
			w.converged(soon)
			if w.epoch() != 1 {
				t.Errorf("epoch %d", w.epoch())
			}
			others := func(key string) bool { return !strings.HasPrefix(key, w.keys.Prefix()+"partitions/") }
			if c := w.tape.after(rev, others); len(c) > 0 {
				t.Errorf("something else happened: %+v", c)
			}
		})
	}
}

// A deletion says nothing but the key: of keys that were fine, of some that
// never were, and of those that are only missing in a list.
func TestWA4DeletionHasNoValue(t *testing.T) {
	t.Parallel()
	for name, cutOff := range map[string]bool{"seen": false, "missed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.daemon("a", withTTL(limit), proxied())
			w.active(1, soon)
			brokers := w.startBrokers(3, withSession(limit))
			w.create("orders", 6, 3)
			w.create("old", 6, 3)
			bad := []string{w.keys.Topic("bad"), w.keys.Broker(9), w.keys.Node(9), w.keys.Prefix() + "brokers/x", w.keys.Tombstone(cluster.TopicID{8})}
			for _, key := range bad {
				w.put(key, garbage)
			}
			w.put(w.keys.Topic("void"), nil)
			bad = append(bad, w.keys.Topic("void"))
			w.await("they are named", soon, func() bool { return len(a.problems()) == len(bad) })
			w.converged(soon)
			w.compact()

			if cutOff {
				a.proxy.Refuse()
			}
			brokers[2].kill()
			w.remove(w.keys.Broker(2))
			w.buryByHand("old")
			for _, key := range bad {
				w.remove(key)
			}
			w.remove(w.keys.Topic("never-was"))
			w.compact()
			a.proxy.Heal()

			w.await("broker 2 leads nothing", soon, func() bool { return w.leads(2) == 0 && w.offline() == 0 })
			w.await("nothing is wrong", soon, func() bool { return len(a.problems()) == 0 })
			for _, n := range brokers[:2] {
				w.await("replicas are deleted", soon, func() bool { return len(n.Partitions()) == 6 })
			}
			w.converged(soon)
			if w.epoch() != 1 {
				t.Errorf("epoch %d", w.epoch())
			}
		})
	}
}

// The watch loses one event, on the wire: of a broker that goes, then of a topic
// that comes. Nothing else happens. A comparison finds each, which is logged
// and counted.
func TestWA6EventLostOnTheWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const compare = 2 * time.Second
	a := w.daemon("a", func(_ *daemon, cfg *localcluster.DaemonConfig) { cfg.Compare = compare })
	w.active(1, soon)
	brokers := w.startBrokers(3, withSession(limit))
	w.create("orders", 6, 3)
	w.converged(soon)
	lose := func(key string, kind mvccpb.Event_EventType) *etcdtest.Fault {
		return a.faults.Add(etcdtest.Rule{Effect: etcdtest.LoseReply, Method: "Watch", Times: 1, Match: func(msg any) bool {
			resp, ok := msg.(*etcdpb.WatchResponse)
			return ok && len(resp.Events) == 1 && string(resp.Events[0].Kv.Key) == key && resp.Events[0].Type == kind
		}})
	}
	healed := func(lost *etcdtest.Fault, what string, cond func() bool) {
		t.Helper()
		before := a.counters()["keys_healed"]
		w.await(what, compare+soon, cond)
		if lost.Hits() != 1 {
			t.Errorf("%s: %d events were lost", what, lost.Hits())
		}
		w.await("it is counted", soon, func() bool { return a.counters()["keys_healed"] > before })
		w.converged(soon)
	}

	lost := lose(w.keys.Broker(2), mvccpb.Event_DELETE)
	brokers[2].kill()
	w.revoke(w.sessionLease(2))
	<-lost.Hit()
	healed(lost, "broker 2 leads nothing", func() bool { return w.leads(2) == 0 })

	lost = lose(w.keys.Topic("payments"), mvccpb.Event_PUT)
	w.putTopic("payments", cluster.TopicID{7}, 6, 2)
	<-lost.Hit()
	healed(lost, "the topic is complete", func() (ok bool) {
		w.tape.look(func(im *cluster.Image) { t := im.Topics["payments"]; ok = t != nil && t.Made() == 6 })
		return ok
	})

	if !strings.Contains(w.log.String(), "missed changes") {
		t.Error("nothing is logged")
	}
	if h := a.history(); w.epoch() != 1 || len(h) != 1 {
		t.Errorf("epoch %d, terms %+v", w.epoch(), h)
	}
}
