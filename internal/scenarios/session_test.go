package scenarios

import (
	"errors"
	"testing"
	"time"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
)

// A broker dies and comes back before anybody missed it: it is another
// incarnation, hears everything anew, and led nothing in between.
func TestBrokerBouncedInsideTTL(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a")
	w.active(1, soon)
	brokers := w.startBrokers(3)
	id := w.create("orders", 6, 3)
	w.converged(soon)
	led := w.ledBy(id, 6, 1)
	if len(led) == 0 {
		t.Fatal("broker 1 leads nothing")
	}
	lease, old := w.sessionLease(1), brokers[1].Epoch()

	brokers[1].kill()
	again := w.broker(1)
	w.registered(again)
	if again.Epoch() <= old {
		t.Errorf("broker epoch %d after %d", again.Epoch(), old)
	}
	w.await("the old session is gone", soon, func() bool { return !w.leaseLives(lease) })
	w.await("the partitions that it led had an election", soon, func() bool {
		for _, p := range led {
			if w.partition(p).LeaderEpoch == 0 {
				return false
			}
		}
		return w.offline() == 0
	})
	w.converged(soon)
}

// ledBy are the partitions of a topic that a broker leads.
func (w *world) ledBy(topic cluster.TopicID, partitions int32, leader cluster.BrokerID) (out []cluster.PartitionID) {
	for i := range partitions {
		if id := (cluster.PartitionID{Topic: topic, Index: i}); w.partition(id).Leader == leader {
			out = append(out, id)
		}
	}
	return out
}

// partition is what etcd holds of a partition.
func (w *world) partition(id cluster.PartitionID) (p cluster.Partition) {
	w.tape.look(func(im *cluster.Image) {
		if found := im.Partition(id); found != nil {
			p = found.Clone()
		}
	})
	return p
}

// A broker's session ends behind its back. It registers again by itself, as
// another incarnation, and keeps serving meanwhile.
func TestSessionLost(t *testing.T) {
	t.Parallel()
	losses := map[string]func(w *world){
		"lease revoked": func(w *world) { w.revoke(w.sessionLease(1)) },
		"key deleted":   func(w *world) { w.remove(w.keys.Broker(1)) },
	}
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.daemon("a")
			w.active(1, soon)
			brokers := w.startBrokers(3)
			id := w.create("orders", 6, 3)
			w.converged(soon)
			old := brokers[1].Epoch()
			lose(w)
			w.await("broker 1 has registered again", soon, func() bool { return brokers[1].Epoch() > old })
			w.await("every partition has a leader", soon, func() bool { return w.offline() == 0 })
			w.converged(soon)
			if _, ok := brokers[1].Partition(cluster.PartitionID{Topic: id}); !ok {
				t.Error("broker 1 has dropped its partitions")
			}
			w.await("no session is left over", 2*sessionTTL, func() bool {
				return len(w.etcd.Leases(w.call())) == 4 // three brokers, one daemon
			})
		})
	}
}

// A broker id belongs to one node. Another node is refused, whether the first
// one lives or not; a new process of the same node takes over from the old one,
// which stops and stays stopped.
func TestTwoBrokersWithOneID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a")
	w.active(1, soon)
	brokers := w.startBrokers(3)
	w.create("orders", 6, 3)
	w.converged(soon)

	intruder := w.broker(1, withNode("another"))
	if err := w.ends(intruder); !errors.Is(err, broker.ErrDuplicate) {
		t.Errorf("another node: %v", err)
	}
	w.converged(soon)

	second := w.broker(1)
	w.registered(second)
	if err := w.ends(brokers[1]); !errors.Is(err, broker.ErrReplaced) {
		t.Errorf("the older process: %v", err)
	}
	brokers[1].kill()
	w.await("every partition has a leader", soon, func() bool { return w.offline() == 0 })
	w.converged(soon)
	epoch := second.Epoch()
	pass(sessionTTL / 2)
	if second.Epoch() != epoch {
		t.Errorf("broker epoch %d after %d: the two take turns", second.Epoch(), epoch)
	}

	second.kill()
	w.await("broker 1 is gone", 2*sessionTTL, func() bool { return w.sessionLease(1) == 0 })
	late := w.broker(1, withNode("another"))
	if err := w.ends(late); !errors.Is(err, broker.ErrDuplicate) {
		t.Errorf("another node, of a dead broker: %v", err)
	}
	third := w.broker(1)
	w.registered(third)
	w.await("every partition has a leader", soon, func() bool { return w.offline() == 0 })
	w.converged(soon)
}

// ends waits until a broker has stopped by itself, and returns why.
func (w *world) ends(n *node) error {
	w.t.Helper()
	done := make(chan error, 1)
	go func() { done <- n.Wait() }()
	select {
	case err := <-done:
		n.kill() // it counts as ended
		return err
	case <-time.After(limit):
		w.t.Fatalf("broker %d does not stop", n.id)
		return nil
	}
}
