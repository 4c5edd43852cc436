package statemachine

import (
	"math"
	"slices"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// kept is an image of what a test puts under keys.
type kept struct {
	*cluster.Image
	t *testing.T
}

func keeping(t *testing.T, brokers int32) kept {
	k := kept{cluster.NewImage(cluster.KeysOf("c")), t}
	for id := range brokers {
		k.put(k.Keys.Broker(cluster.BrokerID(id)), cluster.Encode(&pb.BrokerRecord{NodeUuid: "n", Nonce: "x"}))
	}
	return k
}

func (k kept) put(key string, value []byte) {
	rev := k.Rev + 1
	k.Apply(store.Batch{Rev: rev, Changes: []store.Change{{KV: store.KV{Key: key, Value: value, CreateRev: rev, ModRev: rev}}}})
}

var someTopic = cluster.TopicID{7}

func (k kept) topic(made, wanted int32, change func(*pb.TopicRecord)) *cluster.Topic {
	r := &pb.TopicRecord{TopicId: someTopic[:], PartitionsMade: made, PartitionsWanted: wanted, ReplicationFactor: 2, BlockSize: 4}
	if change != nil {
		change(r)
	}
	k.put(k.Keys.Topic("t"), cluster.Encode(r))
	return k.Topics["t"]
}

func (k kept) block(n int32, le cluster.LeaderEpoch, indices ...int32) {
	records := map[int32]*cluster.Partition{}
	for _, i := range indices {
		records[i] = &cluster.Partition{Replicas: []cluster.BrokerID{1, 2}, ISR: []cluster.BrokerID{1}, Leader: 1, LeaderEpoch: le}
	}
	k.put(k.Keys.Block(cluster.BlockID{Topic: someTopic, Index: n}), (*cluster.Block)(nil).With(records, nil).Encode())
}

func TestComplete(t *testing.T) {
	for _, tc := range []struct {
		name   string
		limit  int32
		topic  func(kept) *cluster.Topic
		made   int32
		parts  []int32
		reason cluster.Reason
	}{
		{"all of a new topic", 100, func(k kept) *cluster.Topic { return k.topic(0, 6, nil) }, 6, []int32{0, 1, 2, 3, 4, 5}, ""},
		{"a slice ends with a block", 5, func(k kept) *cluster.Topic { return k.topic(0, 20, nil) }, 4, []int32{0, 1, 2, 3}, ""},
		{"a slice is a block at least", 1, func(k kept) *cluster.Topic { return k.topic(0, 20, nil) }, 4, []int32{0, 1, 2, 3}, ""},
		{"further ones beside those in the block", 100, func(k kept) *cluster.Topic {
			k.block(0, 3, 0, 1)
			return k.topic(2, 5, nil)
		}, 5, []int32{2, 3, 4}, ""},
		{"records that were hidden are left", 100, func(k kept) *cluster.Topic {
			k.block(0, 3, 0, 2)
			return k.topic(0, 4, nil)
		}, 4, []int32{1, 3}, ""},
		{"next to a missing block", 100, func(k kept) *cluster.Topic { return k.topic(2, 5, nil) }, 0, nil, cluster.KafkaStorageError},
		{"over an unreadable block", 100, func(k kept) *cluster.Topic {
			k.put(k.Keys.Block(cluster.BlockID{Topic: someTopic, Index: 1}), []byte{0xff})
			return k.topic(0, 8, nil)
		}, 0, nil, cluster.KafkaStorageError},
		{"too few brokers", 100, func(k kept) *cluster.Topic {
			return k.topic(0, 4, func(r *pb.TopicRecord) { r.ReplicationFactor = 4 })
		}, 0, nil, cluster.InvalidReplicationFactor},
		{"blocks too large", 100, func(k kept) *cluster.Topic {
			return k.topic(0, 4, func(r *pb.TopicRecord) { r.BlockSize = MaxBlockSize + 1 })
		}, 0, nil, cluster.InvalidRequest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := keeping(t, 3)
			record, parts, rej := Complete(k.Image, Term{Epoch: 5}, tc.topic(k), tc.limit, 1)
			if tc.reason != "" {
				if rej == nil || rej.Reason != tc.reason {
					t.Errorf("%v, want %s", rej, tc.reason)
				}
				return
			}
			if rej != nil {
				t.Fatal(rej)
			}
			var made []int32
			for _, w := range parts {
				made = append(made, w.ID.Index)
				if err := CheckEdge(nil, &w.New); err != nil || len(w.New.Replicas) != 2 || w.New.ControllerEpoch != 5 {
					t.Errorf("partition %d: %+v, %v", w.ID.Index, w.New, err)
				}
			}
			if record.GetPartitionsMade() != tc.made || !slices.Equal(made, tc.parts) {
				t.Errorf("made %v up to %d, want %v up to %d", made, record.GetPartitionsMade(), tc.parts, tc.made)
			}
		})
	}
}

func TestBury(t *testing.T) {
	k := keeping(t, 3)
	topic := k.topic(3, 3, func(r *pb.TopicRecord) { r.Deleting, r.DeleteReason = true, "why" })
	k.block(0, 6, 0, 1, 2)
	r := Bury(k.Image, Term{Epoch: 5}, topic)
	if r.GetLeaderEpoch() != 7 || len(r.GetHolders()) != 2 || r.GetReason() != "why" || r.GetControllerEpoch() != 5 || r.GetPartitions() != 3 {
		t.Errorf("%v", r)
	}

	k.put(k.Keys.Block(cluster.BlockID{Topic: someTopic}), []byte{0xff})
	k.put(k.Keys.Node(9), []byte{0xff}) // nobody knows what it holds
	r = Bury(k.Image, Term{Epoch: 5}, topic)
	if r.GetLeaderEpoch() != math.MaxInt32 || len(r.GetHolders()) != 4 || len(r.GetHolders()[0].GetPartitionSteps()) != 0 {
		t.Errorf("of what is unreadable: %v", r)
	}
	if r := Bury(keeping(t, 1).Image, Term{}, &cluster.Topic{Name: "t", Record: &pb.TopicRecord{}}); r != nil {
		t.Errorf("of nothing: %v", r)
	}
}

// Nothing of a topic that is to be deleted is on the agenda, and it is itself.
func TestDeletingIsLeft(t *testing.T) {
	k := keeping(t, 1)
	k.topic(1, 1, nil)
	k.block(0, 6, 0)
	m := NewMachine(k.Image, nil)
	if m.Agenda() != 1 || m.TopicsDue() != 0 {
		t.Fatalf("agenda %d, topics %v", m.Agenda(), m.TopicsDue())
	}
	old := k.Topics["t"]
	k.topic(1, 1, func(r *pb.TopicRecord) { r.Deleting = true })
	m.Observe([]cluster.Event{cluster.TopicChanged{Old: old, New: k.Topics["t"]}})
	if writes := m.Step(Term{Epoch: 1}, 10, 1<<30); len(writes) != 0 { // before it was reviewed
		t.Errorf("writes %v", writes)
	}
	m.Continue(10)
	if m.Agenda() != 0 || m.TopicsDue() != 1 {
		t.Errorf("agenda %d, topics %v", m.Agenda(), m.TopicsDue())
	}
	if n := m.Reset(); n != 0 {
		t.Errorf("%d differ", n)
	}
}
