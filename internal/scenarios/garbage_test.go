package scenarios

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/localcluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// garbage is no record of any kind.
var garbage = []byte("\xff\xffgarbage")

// names reports whether a daemon has a problem that contains some words.
func (d *daemon) names(words string) bool {
	return slices.ContainsFunc(d.problems(), func(p string) bool { return strings.Contains(p, words) })
}

// Garbage in a key is skipped and named. The rest works, nothing is deleted,
// and what is repaired is picked up.
func TestGarbageIsSkipped(t *testing.T) {
	t.Parallel()
	keys := map[string]func(w *world, topic cluster.TopicID) string{
		"topic":              func(w *world, _ cluster.TopicID) string { return w.keys.Topic("orders") },
		"new topic":          func(w *world, _ cluster.TopicID) string { return w.keys.Topic("fresh") },
		"topic without name": func(w *world, _ cluster.TopicID) string { return w.keys.Prefix() + "topics/" },
		"block":              func(w *world, id cluster.TopicID) string { return w.keys.Block(cluster.BlockID{Topic: id}) },
		"stray block":        func(w *world, id cluster.TopicID) string { return w.keys.Block(cluster.BlockID{Topic: id, Index: 9}) },
		"block of no topic":  func(w *world, _ cluster.TopicID) string { return w.keys.Prefix() + "partitions/x/0" },
		"node":               func(w *world, _ cluster.TopicID) string { return w.keys.Node(1) },
		"broker that is not": func(w *world, _ cluster.TopicID) string { return w.keys.Broker(7) },
		"broker x":           func(w *world, _ cluster.TopicID) string { return w.keys.Prefix() + "brokers/x" },
		"term":               func(w *world, _ cluster.TopicID) string { return w.keys.Term(1) },
		"term at the limit":  func(w *world, _ cluster.TopicID) string { return w.keys.Term(cluster.MaxEpoch) },
		"candidate":          func(w *world, _ cluster.TopicID) string { return w.keys.Candidate(0xbad) },
		"unknown":            func(w *world, _ cluster.TopicID) string { return w.keys.Prefix() + "nonsense" },
		"unknown folder":     func(w *world, _ cluster.TopicID) string { return w.keys.Prefix() + "non/sense" },
	}
	for name, key := range keys {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a, b := w.daemon("a"), w.daemon("b")
			w.active(1, soon)
			brokers := w.startBrokers(3)
			id := w.create("orders", 20, 3)
			w.converged(soon)
			key := key(w, id)
			old, err := w.client.Get(w.call(), key)
			if err != nil {
				t.Fatal(err)
			}
			rev := w.put(key, garbage)
			w.await("both name the key", soon, func() bool { return a.names(key) && b.names(key) })
			w.await("they serve all the same", soon, func() bool { return a.serving("") && b.serving("") })
			for _, b := range brokers {
				if n := len(b.Partitions()); n != 20 {
					t.Errorf("broker %d hosts %d partitions", b.id, n)
				}
			}
			w.create("payments", 4, 3)
			w.resign() // the next one reads it too
			w.create("refunds", 4, 3)
			if c := w.tape.after(rev, func(k string) bool { return k == key }); len(c) > 0 {
				t.Errorf("the key was touched: %+v", c)
			}

			if len(old.Kvs) == 0 {
				w.remove(key)
			} else {
				w.put(key, old.Kvs[0].Value)
			}
			w.await("nobody names the key", soon, func() bool { return !a.names(key) && !b.names(key) })
			w.converged(soon)
			if w.epoch() != 2 {
				t.Errorf("epoch %d", w.epoch())
			}
		})
	}
}

// A live broker whose key cannot be read registers again.
func TestGarbageInBrokerKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a")
	w.active(1, soon)
	brokers := w.startBrokers(3)
	w.create("orders", 6, 3)
	w.converged(soon)
	old := brokers[1].Epoch()
	w.put(w.keys.Broker(1), garbage, clientv3.WithIgnoreLease())
	w.await("broker 1 has registered again", soon, func() bool { return brokers[1].Epoch() > old })
	w.await("every partition has a leader", soon, func() bool { return w.offline() == 0 })
	w.converged(soon)
}

// While a node's record cannot be read its broker id is given to nobody else.
func TestGarbageInNodeKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a")
	w.active(1, soon)
	brokers := w.startBrokers(3)
	w.create("orders", 6, 3)
	w.converged(soon)
	key := w.keys.Node(1)
	old, epoch := w.value(key), brokers[1].Epoch()
	w.put(key, garbage)
	intruder := w.broker(1, withNode("another"))
	pass(sessionTTL / 2)
	select {
	case <-intruder.Registered():
		t.Error("another node took the id")
	default:
	}
	if brokers[1].Epoch() != epoch || string(w.value(key)) != string(garbage) {
		t.Errorf("broker epoch %d after %d, the key holds %q", brokers[1].Epoch(), epoch, w.value(key))
	}
	w.put(key, old)
	if err := w.ends(intruder); !errors.Is(err, broker.ErrDuplicate) {
		t.Errorf("another node: %v", err)
	}
	w.converged(soon)
}

// The epoch key is spoiled or deleted: the term ends, and the next epoch is
// above all that were.
func TestGarbageInEpochKey(t *testing.T) {
	t.Parallel()
	spoil := map[string]func(w *world){
		"garbage": func(w *world) { w.put(w.keys.ControllerEpoch(), garbage) },
		"empty":   func(w *world) { w.put(w.keys.ControllerEpoch(), nil) },
		"zero":    func(w *world) { w.put(w.keys.ControllerEpoch(), encode(w.t, &pb.EpochRecord{})) },
		"lower":   func(w *world) { w.put(w.keys.ControllerEpoch(), encode(w.t, &pb.EpochRecord{Epoch: 1})) },
		"deleted": func(w *world) { w.remove(w.keys.ControllerEpoch()) },
		"at the limit": func(w *world) {
			w.put(w.keys.ControllerEpoch(), encode(w.t, &pb.EpochRecord{Epoch: int64(cluster.MaxEpoch)}))
		},
	}
	for name, spoil := range spoil {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.daemon("a")
			w.active(1, soon)
			w.daemon("b")
			w.startBrokers(3)
			w.create("orders", 4, 3)
			w.resign()
			w.active(2, soon)
			spoil(w)
			w.active(3, soon)
			w.create("payments", 4, 3)
			w.converged(soon)
		})
	}
}

// forgeBlock writes the record of a topic's first partition in the name of a
// term.
func (w *world) forgeBlock(topic cluster.TopicID, e cluster.Epoch) {
	w.t.Helper()
	key := w.keys.Block(cluster.BlockID{Topic: topic})
	b := &pb.PartitionBlock{}
	if err := proto.Unmarshal(w.value(key), b); err != nil {
		w.t.Fatal(err)
	}
	b.GetPartitions()[0].ControllerEpoch = int64(e)
	b.GetPartitions()[0].PartitionEpoch++
	w.put(key, encode(w.t, b))
}

// A key names an epoch that nobody has won: the term ends, and the next one is
// above it, also if the key is gone by then. Brokers obey.
func TestForgedEpoch(t *testing.T) {
	t.Parallel()
	const forged = 7
	forge := map[string]func(w *world, topic cluster.TopicID){
		"term": func(w *world, _ cluster.TopicID) {
			w.put(w.keys.Term(forged), encode(w.t, &pb.TermRecord{Epoch: forged, Controller: "x"}))
		},
		"block": func(w *world, topic cluster.TopicID) { w.forgeBlock(topic, forged) },
		"epoch key": func(w *world, _ cluster.TopicID) {
			w.put(w.keys.ControllerEpoch(), encode(w.t, &pb.EpochRecord{Epoch: forged}))
		},
		"epoch key, which is then deleted": func(w *world, _ cluster.TopicID) {
			w.put(w.keys.ControllerEpoch(), encode(w.t, &pb.EpochRecord{Epoch: forged}))
			w.remove(w.keys.ControllerEpoch())
		},
	}
	for name, forge := range forge {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.daemon("a")
			w.active(1, soon)
			w.daemon("b")
			brokers := w.startBrokers(3)
			id := w.create("orders", 4, 3)
			w.converged(soon)
			forge(w, id)
			w.active(forged+1, soon)
			w.create("payments", 4, 3)
			w.converged(soon)
			late := w.broker(3)
			w.registered(late)
			w.converged(soon)
			for _, b := range append(brokers, late) {
				if e := b.ControllerEpoch(); e < forged+1 || e != w.epoch() {
					t.Errorf("broker %d obeys epoch %d, etcd holds %d", b.id, e, w.epoch())
				}
			}
		})
	}
}

// A record in the name of an epoch at the limit is garbage. One below it is
// believed, and then there is no room: daemons say so and wait for a person.
func TestEpochAtLimit(t *testing.T) {
	t.Parallel()
	t.Run("block", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.daemon("a")
		w.active(1, soon)
		w.startBrokers(3)
		id := w.create("orders", 4, 3)
		w.converged(soon)
		key := w.keys.Block(cluster.BlockID{Topic: id})
		old := w.value(key)
		w.forgeBlock(id, cluster.MaxEpoch)
		w.await("it is named", soon, func() bool { return a.names(key) })
		w.create("payments", 4, 3)
		w.put(key, old)
		w.await("nobody names the key", soon, func() bool { return !a.names(key) })
		w.converged(soon)
		if w.epoch() != 1 {
			t.Errorf("epoch %d", w.epoch())
		}
	})
	t.Run("no room", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.daemon("a"), w.daemon("b")
		w.active(1, soon)
		last := w.keys.Term(cluster.MaxEpoch - 1)
		w.put(last, encode(t, &pb.TermRecord{Epoch: int64(cluster.MaxEpoch - 1), Controller: "x"}))
		for _, d := range []*daemon{a, b} {
			w.await(d.ID+" says so", soon, func() bool {
				_, active := d.active()
				return !active && d.names("there is none above it")
			})
		}
		if e := w.epoch(); e != 1 {
			t.Errorf("epoch %d", e)
		}
	})
}

// The key that names the cluster is gone, or names another. Daemons stop, say
// so, and touch nothing; brokers go on with what they know. Once it is back so
// are they.
func TestClusterKeySpoiled(t *testing.T) {
	t.Parallel()
	spoil := map[string]func(w *world){
		"deleted":        func(w *world) { w.remove(w.keys.Cluster()) },
		"garbage":        func(w *world) { w.put(w.keys.Cluster(), garbage) },
		"another":        func(w *world) { w.put(w.keys.Cluster(), encode(w.t, &pb.ClusterRecord{Uuid: "another", Format: 1})) },
		"newer format":   func(w *world) { w.reformat() },
		"prefix emptied": func(w *world) { w.remove(w.keys.Prefix(), clientv3.WithPrefix()) },
	}
	for name, spoil := range spoil {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			daemons := []*daemon{w.daemon("a"), w.daemon("b")}
			w.active(1, soon)
			w.candidateLease("a", 0)
			w.candidateLease("b", 0)
			brokers := w.startBrokers(3)
			id := w.create("orders", 6, 3)
			w.converged(soon)
			old := w.value(w.keys.Cluster())

			spoil(w)
			rev := w.tape.rev()
			for _, d := range daemons {
				w.await(d.ID+" says so", soon, func() bool {
					_, active := d.active()
					return !active && d.names("not campaigning") && !d.serving("")
				})
			}
			pass(sessionTTL * 3 / 2) // sessions outlive it too
			// What may change are leases that end and the end of the term.
			untouched := func(key string) bool {
				return !strings.HasPrefix(key, w.keys.Prefix()+"candidates/") && key != w.keys.Controller() && key != w.keys.Term(1)
			}
			for _, c := range w.tape.after(rev, untouched) {
				if !w.tape.wasByHand(c.KV.ModRev) {
					t.Errorf("touched: %+v", c)
				}
			}
			for _, b := range brokers {
				if _, ok := b.Partition(cluster.PartitionID{Topic: id}); !ok || b.ControllerEpoch() != 1 {
					t.Errorf("broker %d dropped what it had, or heard of epoch %d", b.id, b.ControllerEpoch())
				}
			}

			w.put(w.keys.Cluster(), old)
			w.active(2, soon)
			if name == "prefix emptied" {
				w.mu.Lock()
				clear(w.made) // that was the operator
				w.mu.Unlock()
			}
			w.await("the brokers are back", limit, func() bool { return w.apart() == "" })
			w.create("payments", 6, 3)
			w.converged(soon)
			for _, d := range daemons {
				w.await(d.ID+" is well", soon, func() bool { return len(d.problems()) == 0 && d.serving("") })
			}
		})
	}
}

// reformat marks the cluster as one that this version does not know.
func (w *world) reformat() {
	w.t.Helper()
	var r *pb.ClusterRecord
	w.tape.look(func(im *cluster.Image) { r = &pb.ClusterRecord{Uuid: im.Cluster.GetUuid(), Format: 1000} })
	w.put(w.keys.Cluster(), encode(w.t, r))
}

// lossy is a store whose watch loses changes.
type lossy struct {
	store.Store
	mu   sync.Mutex
	lose func(store.Change) bool
	lost int
}

// losing makes a daemon's watch lose the next change of a key.
func losing(l *lossy) daemonOption {
	return func(_ *daemon, cfg *localcluster.DaemonConfig) {
		cfg.Compare = 300 * time.Millisecond
		cfg.Wrap = func(s store.Store) store.Store {
			l.Store = s
			return l
		}
	}
}

func (l *lossy) loseNext(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose = func(c store.Change) bool { return c.KV.Key == key }
}

func (l *lossy) Watch(ctx context.Context, w store.Watch, fn func(store.Batch)) error {
	return l.Store.Watch(ctx, w, func(b store.Batch) {
		l.mu.Lock()
		b.Changes = slices.DeleteFunc(b.Changes, func(c store.Change) bool {
			lose := l.lose != nil && l.lose(c)
			if lose {
				l.lose = nil
				l.lost++
			}
			return lose
		})
		l.mu.Unlock()
		fn(b)
	})
}

func (l *lossy) losses() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// The watch loses one change. A comparison of keys and revisions finds it.
func TestLostEventIsHealed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var l lossy
	a := w.daemon("a", losing(&l))
	w.active(1, soon)
	brokers := w.startBrokers(3)
	id := w.create("orders", 6, 3)
	w.converged(soon)
	block := w.keys.Block(cluster.BlockID{Topic: id})

	l.loseNext(w.keys.Broker(2)) // a broker that goes
	brokers[2].kill()
	w.revoke(w.sessionLease(2))
	w.await("broker 2 leads nothing", soon, func() bool { return w.leads(2) == 0 })
	l.loseNext(w.keys.Broker(2)) // and one that comes
	again := w.broker(2)
	w.await("broker 2 gets commands", limit, func() bool { return len(again.Partitions()) == 6 })
	w.registered(again)
	w.converged(soon)

	l.loseNext(block) // what it wrote itself
	if r, err := w.shrink(w.call(), brokers, cluster.PartitionID{Topic: id, Index: 0}); err != nil || r[0].Reason != "" {
		t.Errorf("alter the ISR: %+v, %v", r, err)
	}
	w.converged(soon)
	l.loseNext(w.keys.Topic("payments"))
	w.create("payments", 6, 3)
	w.converged(soon)
	if n := l.losses(); n != 4 {
		t.Errorf("%d changes were lost", n)
	}
	if claim, ok := a.active(); !ok || claim.Epoch != 1 {
		t.Errorf("the seat was lost: %+v", a.history())
	}
}
