package sim

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

var (
	testKeys  = cluster.KeysOf("test")
	testTopic = cluster.TopicID{1}
)

// story tells a Checker what happens, one second after the other.
type story struct {
	c   *Checker
	rev store.Rev
	at  time.Duration
}

// newStory begins with a cluster of one broker, one partition and epoch 1.
func newStory() *story {
	s := &story{c: NewChecker(testKeys, Bounds{Converge: 10 * time.Second, Elect: 5 * time.Second})}
	s.wins(1)
	s.txn(put(testKeys.Broker(1), &pb.BrokerRecord{NodeUuid: "n", Nonce: "p"}))
	s.c.Started(1)
	s.block(1, 0, 0, 1, 1)
	s.txn(put(testKeys.Topic("t"), &pb.TopicRecord{TopicId: testTopic[:], PartitionsMade: 1, BlockSize: 1}))
	s.accept(1, 0, 0, fencing.Admitted)
	s.alive(1)
	return s
}

func put(key string, m proto.Message) store.Change {
	return store.Change{KV: store.KV{Key: key, Value: cluster.Encode(m)}}
}

func del(key string) store.Change {
	return store.Change{KV: store.KV{Key: key}, Deleted: true}
}

func (s *story) txn(changes ...store.Change) {
	s.rev++
	for i := range changes {
		changes[i].KV.ModRev, changes[i].KV.CreateRev = s.rev, s.rev
	}
	s.c.Watched(s.at, store.Batch{Rev: s.rev, Changes: changes})
	s.pass(time.Second)
}

// pass lets time go by with an active controller.
func (s *story) pass(d time.Duration) {
	s.at += d
	s.c.Tick(s.at, []string{"c1"}, true)
}

func (s *story) wins(e cluster.Epoch) {
	s.txn(put(testKeys.Controller(), &pb.ControllerRecord{Id: "c1"}),
		put(testKeys.ControllerEpoch(), &pb.EpochRecord{Epoch: int64(e)}),
		put(testKeys.Term(e), &pb.TermRecord{Epoch: int64(e), Controller: "c1"}))
}

func blockOf(ce cluster.Epoch, le, pe int32, leader int32, isr ...int32) store.Change {
	return put(testKeys.Block(cluster.BlockID{Topic: testTopic}), &pb.PartitionBlock{Partitions: []*pb.PartitionRecord{{
		Replicas: []int32{1, 2}, Leader: leader, Isr: isr, LeaderEpoch: le, PartitionEpoch: pe, ControllerEpoch: int64(ce),
	}}})
}

// decided is a record of the first term that says from which revision it was
// decided.
func decided(at store.Rev, le, pe int32, leader int32, isr ...int32) store.Change {
	return put(testKeys.Block(cluster.BlockID{Topic: testTopic}), &pb.PartitionBlock{Partitions: []*pb.PartitionRecord{{
		Replicas: []int32{1, 2}, Leader: leader, Isr: isr, LeaderEpoch: le, PartitionEpoch: pe, ControllerEpoch: 1, DecidedRevision: int64(at),
	}}})
}

func (s *story) block(ce cluster.Epoch, le, pe int32, leader int32, isr ...int32) {
	s.txn(blockOf(ce, le, pe, leader, isr...))
}

func (s *story) accept(ce cluster.Epoch, le cluster.LeaderEpoch, pe cluster.PartitionEpoch, result fencing.Action) {
	s.c.Accepted(Accepted{At: s.at, Broker: 1, Observation: broker.Observation{
		Command: broker.LeaderAndIsr, Sender: "c1", ControllerEpoch: ce, BrokerEpoch: 2,
		Topic: "t", TopicID: testTopic, LeaderEpoch: le, PartitionEpoch: pe, Result: result.String(),
	}})
}

func (s *story) alive(ids ...cluster.BrokerID) {
	o := broker.Observation{Command: broker.UpdateMetadata, Sender: "c1", ControllerEpoch: s.c.history.epoch, BrokerEpoch: 2,
		Partition: broker.WholeCommand, Result: fencing.Admitted.String()}
	for _, id := range ids {
		o.Live = append(o.Live, broker.LiveBroker{ID: id, Epoch: 2})
	}
	s.c.Accepted(Accepted{At: s.at, Broker: 1, Observation: o})
}

func TestChecker(t *testing.T) {
	k := testKeys
	for _, tc := range []struct {
		name string
		tell func(*story)
		want error
	}{
		{"a quiet run", func(s *story) { s.pass(time.Minute) }, nil},
		{"a new term, an election, an ISR that its leader hears of by answer", func(s *story) {
			s.txn(del(k.Controller()))
			s.wins(2)
			s.block(2, 1, 1, 1, 1)
			s.block(2, 1, 2, 1, 1, 2)
			s.accept(2, 1, 1, fencing.Admitted)
			s.accept(2, 1, 2, fencing.Already)
			s.pass(time.Minute)
		}, nil},
		{"an edit by hand", func(s *story) {
			s.c.Edited(s.rev + 1)
			s.block(0, 0, 0, 2, 2)
			s.block(1, 1, 1, -1, 2)
		}, nil},
		{"a list after a gap", func(s *story) {
			b := blockOf(7, 3, 9, 1, 1)
			b.KV.ModRev = 90
			topic := put(k.Topic("t"), &pb.TopicRecord{TopicId: testTopic[:], PartitionsMade: 1})
			epoch := put(k.ControllerEpoch(), &pb.EpochRecord{Epoch: 7})
			s.c.Watched(s.at, store.Batch{Rev: 99, Reset: true, Changes: []store.Change{b, topic, epoch}})
		}, nil},
		{"another sender", func(s *story) {
			s.c.Accepted(Accepted{Broker: 1, Observation: broker.Observation{Sender: "c2", ControllerEpoch: 1, Result: "STALE_CONTROLLER_EPOCH"}})
		}, ErrTwoSenders},
		{"another process with the same id", func(s *story) {
			s.c.Accepted(Accepted{Broker: 1, Process: "x", Observation: broker.Observation{Sender: "c1", ControllerEpoch: 1}})
		}, ErrTwoSenders},
		{"a sender that never won", func(s *story) {
			s.c.Accepted(Accepted{Broker: 1, Observation: broker.Observation{Sender: "c2", ControllerEpoch: 2}})
			s.txn(del(k.Controller()))
			s.wins(2)
		}, ErrTwoSenders},
		{"the epoch falls", func(s *story) { s.txn(del(k.Controller())); s.wins(3); s.txn(del(k.Controller())); s.wins(2) }, ErrEpochFell},
		{"the epoch rises without a term", func(s *story) { s.txn(put(k.ControllerEpoch(), &pb.EpochRecord{Epoch: 2})) }, ErrEpochFell},
		{"the seat without an epoch", func(s *story) {
			s.txn(del(k.Controller()))
			s.txn(put(k.Controller(), &pb.ControllerRecord{Id: "c1"}))
		}, ErrEpochFell},
		{"a seat taken from its holder", func(s *story) { s.wins(2) }, ErrEpochFell},
		{"a lower controller epoch obeyed", func(s *story) { s.accept(2, 1, 1, fencing.Admitted); s.accept(1, 2, 2, fencing.Admitted) }, ErrStaleAccepted},
		{"a lower controller epoch obeyed by the next process", func(s *story) {
			s.accept(2, 1, 1, fencing.Admitted)
			s.c.Started(1)
			s.accept(1, 1, 1, fencing.Admitted)
		}, ErrStaleAccepted},
		{"a command for the incarnation before obeyed", func(s *story) { s.c.Registered(1, 9); s.accept(1, 1, 1, fencing.Admitted) }, ErrStaleAccepted},
		{"a lower leader epoch obeyed", func(s *story) { s.accept(1, 1, 1, fencing.Admitted); s.accept(1, 0, 0, fencing.Admitted) }, ErrStaleAccepted},
		{"a lower partition epoch obeyed", func(s *story) { s.accept(1, 1, 2, fencing.Admitted); s.accept(1, 1, 1, fencing.IsrAdopted) }, ErrStaleAccepted},
		{"a write while the seat is empty", func(s *story) { s.txn(del(k.Controller())); s.block(1, 1, 1, 1, 1) }, ErrLateWrite},
		{"a write of the term before", func(s *story) { s.txn(del(k.Controller())); s.wins(2); s.block(1, 1, 1, 1, 1) }, ErrLateWrite},
		{"the history of the term before", func(s *story) {
			s.txn(del(k.Controller()))
			s.wins(2)
			s.txn(put(k.Term(1), &pb.TermRecord{Epoch: 1, Controller: "c1"}))
		}, ErrLateWrite},
		{"a leader outside the ISR", func(s *story) { s.block(1, 1, 1, 2, 1) }, ErrPartitionState},
		{"an empty ISR", func(s *story) { s.block(1, 1, 1, -1) }, ErrPartitionState},
		{"an ISR outside the replicas", func(s *story) { s.block(1, 1, 1, -1, 3) }, ErrPartitionState},
		{"the leader epoch falls", func(s *story) { s.block(1, 2, 1, 1, 1); s.block(1, 1, 2, 1, 1) }, ErrPartitionState},
		{"a leader without an epoch", func(s *story) { s.block(1, 0, 1, 1, 1, 2); s.block(1, 0, 2, 2, 1, 2) }, ErrPartitionState},
		{"a leader that is in controlled shutdown", func(s *story) {
			s.txn(put(k.Broker(2), &pb.BrokerRecord{State: pb.BrokerState_BROKER_STATE_DRAINING}))
			s.txn(decided(s.rev, 1, 1, 2, 1, 2))
		}, ErrPartitionState},
		{"one that joins the ISR though it is unreachable", func(s *story) {
			s.block(1, 1, 1, 1, 1)
			s.txn(put(k.Broker(2), &pb.BrokerRecord{Unreachable: true}))
			s.txn(decided(s.rev, 1, 2, 1, 1, 2))
		}, ErrPartitionState},
		{"decided before it was draining, or after", func(s *story) {
			s.txn(put(k.Broker(2), &pb.BrokerRecord{Unreachable: true}))
			s.txn(decided(s.rev-1, 1, 1, 2, 1, 2))
			s.txn(put(k.Broker(2), &pb.BrokerRecord{}))
			s.txn(decided(s.rev, 2, 2, 1, 1))
			s.txn(decided(s.rev, 3, 3, 1, 1, 2))
		}, nil},
		{"a change without a partition epoch", func(s *story) { s.block(1, 1, 0, 1, 1) }, ErrPartitionState},
		{"a state that the broker has not heard", func(s *story) { s.block(1, 1, 1, 1, 1); s.pass(11 * time.Second) }, ErrNotConverged},
		{"a process that has heard nothing", func(s *story) { s.c.Started(1); s.pass(11 * time.Second) }, ErrNotConverged},
		{"a dead broker in the metadata", func(s *story) { s.alive(1, 2); s.pass(11 * time.Second) }, ErrNotConverged},
		{"a topic that is deleted in order", func(s *story) {
			r := &pb.TopicRecord{TopicId: testTopic[:], PartitionsMade: 1, BlockSize: 1, Deleting: true}
			s.txn(put(k.Topic("t"), r))
			s.txn(del(k.Topic("t")), del(k.Block(cluster.BlockID{Topic: testTopic})))
		}, nil},
		{"a topic that vanishes", func(s *story) { s.txn(del(k.Topic("t"))) }, ErrDataLost},
		{"a topic that vanishes while its record is unreadable", func(s *story) {
			c := put(k.Topic("t"), &pb.TopicRecord{})
			c.KV.Value = []byte(unreadable)
			s.txn(c)
			s.txn(del(k.Topic("t")))
		}, ErrDataLost},
		{"a block that vanishes", func(s *story) { s.txn(del(k.Block(cluster.BlockID{Topic: testTopic}))) }, ErrDataLost},
		{"a block that nothing counts is swept", func(s *story) {
			s.txn(del(k.Block(cluster.BlockID{Topic: testTopic, Index: 1})))
			s.txn(del(k.Block(cluster.BlockID{Topic: cluster.TopicID{9}})))
		}, nil},
		{"no controller", func(s *story) { s.at += 20 * time.Second; s.c.Tick(s.at, []string{"c1"}, false) }, ErrNoController},
		{"no controller, but no way to etcd either", func(s *story) { s.at += 20 * time.Second; s.c.Tick(s.at, nil, false) }, nil},
		{"no controller over many faults", func(s *story) {
			for range 6 {
				s.at += time.Second
				s.c.Faulted(s.at)
				s.c.Tick(s.at, []string{"c1"}, false)
			}
		}, ErrNoController},
		{"no controller, but every daemon is gone before it could be one", func(s *story) {
			for _, process := range []string{"c2", "c1", "c2", "c1"} {
				for range 4 {
					s.at += time.Second
					s.c.Tick(s.at, []string{process}, false)
				}
			}
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStory()
			tc.tell(s)
			found := s.c.Violations()
			switch {
			case tc.want == nil && len(found) > 0:
				t.Errorf("found %v", found)
			case tc.want != nil && (len(found) == 0 || !errors.Is(found[0], tc.want)):
				t.Errorf("found %v, want %v", found, tc.want)
			}
		})
	}
}

// What is too early to judge is no look.
func TestLooks(t *testing.T) {
	s := newStory()
	looked := func(what string, converged, elected bool) {
		t.Helper()
		was := s.c.Looks()
		s.c.Tick(s.at, []string{"c1"}, elected)
		now := s.c.Looks()
		if now.Converged > was.Converged != converged || now.Elected > was.Elected != elected {
			t.Errorf("%s: looks %+v after %+v", what, now, was)
		}
	}
	looked("at the begin", false, true)
	s.pass(11 * time.Second)
	looked("at rest", true, true)
	looked("the seat was just lost", true, false)
	s.c.Faulted(s.at)
	looked("after a fault", false, true)
	s.pass(11 * time.Second)
	s.block(1, 1, 1, 1, 1)
	looked("after a change", false, true)
	s.accept(1, 1, 1, fencing.Admitted)
	s.pass(11 * time.Second)
	looked("at rest again", true, true)
	s.txn(del(testKeys.Broker(1)))
	s.pass(11 * time.Second)
	looked("without brokers", false, true)
	if found := s.c.Violations(); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}
