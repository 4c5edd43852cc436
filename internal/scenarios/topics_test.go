package scenarios

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// erase deletes a topic at whichever daemon answers, and waits until our own
// watch shows it.
func (w *world) erase(name string, id cluster.TopicID) {
	w.t.Helper()
	w.mu.Lock()
	delete(w.made, name)
	w.mu.Unlock()
	resp, err := w.someAdmin(0).DeleteTopics(w.call(), &pb.DeleteTopicsRequest{
		Reason: "test", Topics: []*pb.TopicToDelete{{Name: name, TopicId: id[:]}},
	})
	if err != nil || resp.GetResults()[0].GetError() != "" {
		w.t.Fatalf("delete topic %s: %v, %v", name, resp, err)
	}
	w.await("our own watch shows that the topic is gone", soon, func() (gone bool) {
		w.tape.look(func(im *cluster.Image) { gone = im.TopicByID(id) == nil })
		return gone
	})
}

func (w *world) tombstones() (n int) {
	w.tape.look(func(im *cluster.Image) { n = len(im.Tombstones) })
	return n
}

// stops are the partitions of a topic that the broker was told to delete.
func (n *node) stops(id cluster.TopicID) []int32 {
	var out []int32
	for _, o := range n.observed() {
		if o.Command == broker.StopReplica && o.TopicID == id && accepted(o) {
			out = append(out, o.Partition)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// A topic is deleted while one of its brokers is away: the live ones are told
// now, the name is free at once, and the one that was away is told when it is
// back, though another topic has the name by then.
func TestTopicDeletedWhileABrokerIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a")
	w.daemon("b")
	brokers := w.startBrokers(3)
	id := w.create("orders", 6, 3)
	w.converged(soon)
	if held := len(brokers[2].Partitions()); held != 6 {
		t.Fatalf("broker 2 hosts %d partitions", held)
	}
	brokers[2].kill()
	w.await("the broker is gone", limit, func() (gone bool) {
		w.tape.look(func(im *cluster.Image) { gone = im.Brokers[2] == nil })
		return gone
	})

	w.erase("orders", id)
	for _, b := range brokers[:2] {
		w.await("live brokers have deleted their replicas", soon, func() bool { return len(b.stops(id)) == 6 && len(b.Partitions()) == 0 })
		w.await("metadata is forgotten", soon, func() bool {
			_, known := b.Metadata(cluster.PartitionID{Topic: id})
			return !known
		})
	}
	w.await("the tombstone names the broker that is away", soon, func() (only bool) {
		w.tape.look(func(im *cluster.Image) {
			ts := im.Tombstones[id]
			only = ts != nil && !ts.Holds(0) && !ts.Holds(1) && len(ts.Partitions(2)) == 6
		})
		return only
	})

	if _, err := w.tryCreate(w.call(), "orders", 4, 2); err != nil {
		t.Fatalf("the name is not free: %v", err)
	}
	w.converged(soon)
	w.resign() // the next one knows it from etcd
	w.active(2, soon)

	back := w.broker(2)
	w.registered(back)
	w.await("the broker that was away is told", soon, func() bool { return len(back.stops(id)) == 6 })
	w.await("nothing is left", soon, func() bool { return w.tombstones() == 0 })
	w.converged(limit)
}

// A replica that cannot be deleted is tried again, and named meanwhile.
func TestDeletionThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.daemon("a")
	brokers := w.startBrokers(2)
	id := w.create("orders", 2, 2)
	w.converged(soon)
	brokers[1].onApply(func(_ context.Context, s broker.PartitionState) error {
		if s.Stop {
			return broker.ErrStorage
		}
		return nil
	})
	w.erase("orders", id)
	w.await("the problem is named", soon, func() bool {
		resp, err := a.admin.DescribeController(w.call(), &pb.DescribeControllerRequest{})
		return err == nil && strings.Contains(strings.Join(resp.GetProblems(), "\n"), "deletion of topic orders")
	})
	brokers[1].onApply(nil)
	w.await("nothing is left", limit, func() bool { return w.tombstones() == 0 })
}

// The record of a topic that somebody writes by hand is completed, and so is
// one whose number of partitions somebody raises.
func TestRecordByHandIsCompleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a")
	w.startBrokers(3)
	w.create("other", 1, 3)
	id := cluster.TopicID{1, 2, 3}
	key := w.keys.Topic("orders")
	write := func(made, wanted int32) {
		w.put(key, cluster.Encode(&pb.TopicRecord{
			TopicId: id[:], PartitionsMade: made, PartitionsWanted: wanted, ReplicationFactor: 3, BlockSize: 4,
		}))
	}
	complete := func(n int32) {
		w.await("the topic is complete", soon, func() (ok bool) {
			w.tape.look(func(im *cluster.Image) {
				t := im.Topics["orders"]
				ok = t != nil && t.Made() == n
				for i := range n {
					ok = ok && im.Partition(cluster.PartitionID{Topic: id, Index: i}) != nil
				}
			})
			return ok
		})
		w.converged(soon)
	}
	write(0, 6)
	complete(6)
	write(6, 11)
	complete(11)
}

// Blocks that no topic counts are swept by the next controller.
func TestHiddenBlocksAreSwept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a")
	w.daemon("b")
	w.startBrokers(3)
	id := w.create("orders", 4, 3)
	w.converged(soon)
	var value []byte
	w.tape.look(func(im *cluster.Image) { value = im.Block(cluster.BlockID{Topic: id}).Encode() })
	hidden := []string{
		w.keys.Block(cluster.BlockID{Topic: cluster.TopicID{9}}),
		w.keys.Block(cluster.BlockID{Topic: id, Index: 7}),
	}
	for _, key := range hidden {
		w.put(key, value)
	}
	w.resign()
	w.active(2, soon)
	w.await("the hidden blocks are gone", soon, func() (gone bool) {
		w.tape.look(func(im *cluster.Image) { gone = im.ModRev(hidden[0]) == 0 && im.ModRev(hidden[1]) == 0 })
		return gone
	})
	w.converged(soon)
}
