package scenarios

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// stored are brokers with a disk each.
type stored struct {
	*world
	disks   []*disk
	brokers []*node
}

// newStored has brokers 0 to n-1, whose disks outlive them.
func newStored(w *world, n int) *stored {
	w.t.Helper()
	s := &stored{world: w, brokers: make([]*node, n)}
	for range n {
		s.disks = append(s.disks, newDisk())
	}
	for i := range s.brokers {
		s.brokers[i] = w.broker(cluster.BrokerID(i), s.disks[i].on())
	}
	for _, b := range s.brokers {
		w.registered(b)
	}
	return s
}

// back starts a broker anew, on its disk.
func (s *stored) back(id cluster.BrokerID, opts ...brokerOption) {
	s.t.Helper()
	s.brokers[id] = s.broker(id, append([]brokerOption{s.disks[id].on()}, opts...)...)
	s.registered(s.brokers[id])
}

// down waits until a broker that was killed has lost its session.
func (s *stored) down(id cluster.BrokerID) {
	s.t.Helper()
	s.await(fmt.Sprintf("broker %d is gone", id), limit, func() (gone bool) {
		s.tape.look(func(im *cluster.Image) { gone = im.Brokers[id] == nil })
		return gone
	})
}

// held is how many replicas of a topic the disk holds.
func (d *disk) held(id cluster.TopicID) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for p := range d.has {
		if p.Topic == id {
			n++
		}
	}
	return n
}

// deletions are how many replicas the disk has deleted.
func (d *disk) deletions() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.deleted)
}

// mayHold are the brokers that a tombstone names, nil if there is none.
func (w *world) mayHold(id cluster.TopicID) (out []cluster.BrokerID) {
	w.tape.look(func(im *cluster.Image) {
		for b := range cluster.BrokerID(8) {
			if ts := im.Tombstones[id]; ts != nil && ts.Holds(b) {
				out = append(out, b)
			}
		}
	})
	return out
}

// Something goes wrong at the last of the brokers that hold a topic while it is
// deleted. The others delete theirs at once, other topics come and go, and what
// is left on that one is deleted when it can be.
func TestTP1DeletionWithTrouble(t *testing.T) {
	t.Parallel()
	const partitions = 5
	for name, trouble := range map[string]struct {
		before func(*stored)                   // the deletion
		during func(*stored, cluster.TopicID)  // when the others are done
		after  func(*stored, cluster.BrokerID) // it is mended
		stuck  bool                            // until then the tombstone names the broker
	}{
		"down": {
			before: func(s *stored) { s.brokers[2].kill(); s.down(2) },
			after:  func(s *stored, id cluster.BrokerID) { s.back(id) },
			stuck:  true,
		},
		"killed when told": {
			before: func(s *stored) { s.diesWhenTold(2) },
			during: func(s *stored, _ cluster.TopicID) { s.down(2) },
			after:  func(s *stored, id cluster.BrokerID) { s.back(id) },
			stuck:  true,
		},
		"killed when told, back at once": {
			before: func(s *stored) { s.diesWhenTold(2) },
			after: func(s *stored, id cluster.BrokerID) {
				s.await("it has died", soon, func() bool { return !s.brokers[id].alive() })
				s.back(id)
			},
			stuck: true,
		},
		"an error once": {
			before: func(s *stored) { s.failsToStop(2, 1, nil) },
		},
		"a storage error once": {
			before: func(s *stored) { s.failsToStop(2, 1, broker.ErrStorage) },
		},
		"the controller is killed": {
			before: func(s *stored) { s.failsToStop(2, 1<<30, nil) },
			during: func(s *stored, id cluster.TopicID) {
				e := s.epoch()
				s.active(e, soon).kill()
				s.active(e+1, limit)
				if got := s.mayHold(id); !slices.Equal(got, []cluster.BrokerID{2}) {
					s.t.Errorf("after the change brokers %v may hold replicas", got)
				}
			},
			after: func(s *stored, id cluster.BrokerID) { s.brokers[id].onApply(s.disks[id].apply) },
			stuck: true,
		},
		"the controller is killed, and the broker is down": {
			before: func(s *stored) { s.brokers[2].kill(); s.down(2) },
			during: func(s *stored, _ cluster.TopicID) {
				e := s.epoch()
				s.active(e, soon).kill()
				s.active(e+1, limit)
			},
			after: func(s *stored, id cluster.BrokerID) { s.back(id) },
			stuck: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.daemon("a", brief)
			w.daemon("b", brief)
			w.active(1, soon)
			s := newStored(w, 3)
			id := w.create("orders", partitions, 3)
			kept := w.create("kept", partitions, 3)
			w.converged(soon)
			for i, d := range s.disks {
				w.await(fmt.Sprintf("broker %d has made its replicas", i), soon, func() bool { return d.held(id) == partitions })
			}
			trouble.before(s)
			w.erase("orders", id)
			w.await("the others have deleted theirs", soon, func() bool { return s.disks[0].held(id)+s.disks[1].held(id) == 0 })
			if trouble.stuck {
				w.await("the tombstone names the one that has not", soon, func() bool { return slices.Equal(w.mayHold(id), []cluster.BrokerID{2}) })
			}
			if trouble.during != nil {
				trouble.during(s, id)
			}
			if trouble.stuck && s.disks[2].held(id) != partitions {
				t.Errorf("broker 2 holds %d replicas", s.disks[2].held(id))
			}

			// Nothing else waits for it.
			other := w.assigned("other", []int32{0, 1}, []int32{1, 0})
			w.await("others are made", soon, func() bool { return s.disks[0].held(other) == 2 && s.disks[1].held(other) == 2 })
			w.erase("other", other)
			w.await("others are deleted", soon, func() bool { return s.disks[0].held(other)+s.disks[1].held(other) == 0 && w.mayHold(other) == nil })
			w.await("the rest is led", soon, func() bool { return w.offline() == 0 })

			if trouble.after != nil {
				trouble.after(s, 2)
			}
			w.await("nothing is left", limit, func() bool { return w.tombstones() == 0 && s.disks[2].held(id) == 0 })
			for i, d := range s.disks {
				if n := d.held(kept); n != partitions {
					t.Errorf("broker %d holds %d replicas of a topic that was not deleted", i, n)
				}
				if strays := s.brokers[i].Strays(); len(strays) > 0 {
					t.Errorf("broker %d has strays: %v", i, strays)
				}
			}
			w.converged(limit)
		})
	}
}

// diesWhenTold replaces a broker by one that is killed by the first StopReplica
// that it receives, before it has heard it.
func (s *stored) diesWhenTold(id cluster.BrokerID) {
	s.t.Helper()
	s.brokers[id].kill()
	var told atomic.Bool
	var self atomic.Pointer[node]
	s.back(id, bent(&bend{received: func(ctx context.Context, req *pb.CommandsRequest) error {
		if req.GetCommand().GetStopReplica() == nil {
			return nil
		}
		if told.CompareAndSwap(false, true) {
			go self.Load().kill()
		}
		<-ctx.Done()
		return ctx.Err()
	}}))
	self.Store(s.brokers[id])
	s.converged(limit)
}

// failsToStop lets the next attempts of a broker to delete a replica fail.
func (s *stored) failsToStop(id cluster.BrokerID, times int64, err error) {
	var failed atomic.Int64
	d := s.disks[id]
	s.brokers[id].onApply(func(ctx context.Context, p broker.PartitionState) error {
		if p.Stop && failed.Add(1) <= times {
			if err == nil {
				return fmt.Errorf("on purpose")
			}
			return err
		}
		return d.apply(ctx, p)
	})
}

// A broker is away while a topic is deleted and made again under its name, and
// deleted and made once more. It comes back with what it held of the first: that
// is deleted, and nothing of it gets into the topic that has the name now, also
// when the broker is given replicas of it.
func TestDeletedAndMadeAgainWhileABrokerIsAway(t *testing.T) {
	t.Parallel()
	const partitions = 4
	w := newWorld(t)
	w.daemon("a", brief)
	w.daemon("b", brief)
	w.active(1, soon)
	s := newStored(w, 3)
	first := w.create("orders", partitions, 3)
	w.converged(soon)
	w.await("broker 2 has made its replicas", soon, func() bool { return s.disks[2].held(first) == partitions })
	for n := range int32(3) { // the stale replicas have high leader epochs
		if _, err := w.someAdmin(0).ElectLeaders(w.call(), &pb.ElectLeadersRequest{
			Type: pb.ElectionType_ELECTION_TYPE_DESIGNATED, Leader: n, Topics: []*pb.TopicPartitions{{Topic: "orders"}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	w.converged(soon)
	s.brokers[2].kill()
	s.down(2)

	again := func() cluster.TopicID {
		id, err := cluster.TopicID{}, error(nil)
		req := &pb.CreateTopicsRequest{Topics: []*pb.NewTopic{{Name: "orders", Partitions: partitions, ReplicationFactor: 2}}}
		resp, err := w.someAdmin(0).CreateTopics(w.call(), req)
		if err != nil || resp.GetResults()[0].GetError() != "" {
			t.Fatalf("create again: %v, %v", resp, err)
		}
		if id, err = cluster.TopicIDFrom(resp.GetResults()[0].GetTopicId()); err != nil {
			t.Fatal(err)
		}
		w.await("our own watch shows it", soon, func() (ok bool) {
			w.tape.look(func(im *cluster.Image) { ok = im.TopicByID(id) != nil })
			return ok
		})
		return id
	}
	w.erase("orders", first)
	second := again()
	w.await("the second is made", soon, func() bool { return s.disks[0].held(second)+s.disks[1].held(second) == 2*partitions })
	w.erase("orders", second)
	third := again()
	w.converged(soon)
	if got := w.mayHold(first); !slices.Equal(got, []cluster.BrokerID{2}) {
		t.Fatalf("brokers %v may hold the first", got)
	}
	w.await("the second is gone for good", soon, func() bool { return w.mayHold(second) == nil && s.disks[0].held(second)+s.disks[1].held(second) == 0 })
	e := w.epoch()
	w.active(e, soon).kill() // the next one knows it from etcd alone
	w.active(e+1, limit)

	// What it is told of the third before the first is deleted, and after.
	s.back(2)
	w.reassign("orders", partitions, []int32{0, 1, 2}, nil)
	w.await("the first is deleted", limit, func() bool { return s.disks[2].held(first) == 0 && w.tombstones() == 0 })
	w.await("it has its replicas of the third", limit, func() bool { return s.disks[2].held(third) == partitions })
	w.converged(limit)
	for i := range int32(partitions) {
		p := w.record(cluster.PartitionID{Topic: third, Index: i})
		if slices.Contains(p.ISR, 2) || p.Leader == 2 {
			t.Errorf("partition %d: broker 2 is in sync without having been let in: %+v", i, p)
		}
		if held, _ := s.brokers[2].Partition(cluster.PartitionID{Topic: third, Index: i}); held.LeaderEpoch != p.LeaderEpoch {
			t.Errorf("partition %d: broker 2 holds it under leader epoch %d, it is %d", i, held.LeaderEpoch, p.LeaderEpoch)
		}
	}
	if strays := s.brokers[2].Strays(); len(strays) > 0 {
		t.Errorf("strays: %v", strays)
	}
	s.disks[2].mu.Lock()
	defer s.disks[2].mu.Unlock()
	if slices.ContainsFunc(s.disks[2].deleted, func(id cluster.PartitionID) bool { return id.Topic != first }) {
		t.Errorf("deleted was %v", s.disks[2].deleted)
	}
}
