package cluster

import (
	"slices"
	"testing"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

func TestTombstone(t *testing.T) {
	id := TopicID{1}
	topic := &Topic{Name: "t", ID: id, Record: &pb.TopicRecord{PartitionsMade: 70}}
	many := make([]int32, 70)
	for i := range many {
		many[i] = int32(i)
	}
	r := NewTombstone(topic, map[BrokerID][]int32{3: {0, 5, 69}, 1: many, 2: nil})
	r.LeaderEpoch = 4
	im := NewImage(KeysOf("c"))
	events := im.Apply(store.Batch{Rev: 7, Changes: []store.Change{{KV: store.KV{
		Key: im.Keys.Tombstone(id), Value: Encode(r), CreateRev: 7, ModRev: 7,
	}}}})
	ts := im.Tombstones[id]
	if ts == nil || len(events) != 1 || len(im.Faults) != 0 {
		t.Fatalf("events %v, faults %v", events, im.Faults)
	}
	for b, want := range map[BrokerID][]int32{1: many, 2: many, 3: {0, 5, 69}, 4: nil} {
		if got := ts.Partitions(b); !slices.Equal(got, want) || ts.Holds(b) != (want != nil) {
			t.Errorf("broker %d holds %v, want %v", b, got, want)
		}
	}
	left := ts.Without(func(b BrokerID) bool { return b != 3 })
	if len(left.GetHolders()) != 1 || left.GetHolders()[0].GetBrokerId() != 3 {
		t.Errorf("left %v", left)
	}
	if r := ts.Without(func(BrokerID) bool { return true }); r != nil {
		t.Errorf("left %v", r)
	}
}

// A tombstone that is too large names the brokers only.
func TestLargeTombstone(t *testing.T) {
	topic := &Topic{Name: "t", Record: &pb.TopicRecord{PartitionsMade: MaxPartitions}}
	held := map[BrokerID][]int32{}
	for b := range BrokerID(3) {
		for i := int32(b); i < MaxPartitions; i += 3 {
			held[b] = append(held[b], i)
		}
	}
	r := NewTombstone(topic, held)
	if n := len(Encode(r)); n > maxTombstoneBytes || len(r.GetHolders()) != 3 {
		t.Errorf("%d bytes for %d brokers", n, len(r.GetHolders()))
	}
}

func TestUnreadableTombstones(t *testing.T) {
	im := NewImage(KeysOf("c"))
	good := func() *pb.TombstoneRecord {
		return &pb.TombstoneRecord{Topic: "t", Partitions: 2, LeaderEpoch: 1, Holders: []*pb.TombstoneHolder{{BrokerId: 1, PartitionSteps: []int32{1, 1}}}}
	}
	for i, spoil := range []func(*pb.TombstoneRecord){
		func(r *pb.TombstoneRecord) { r.Partitions = -1 },
		func(r *pb.TombstoneRecord) { r.LeaderEpoch = 0 },
		func(r *pb.TombstoneRecord) { r.Holders = nil },
		func(r *pb.TombstoneRecord) { r.Holders[0].PartitionSteps = []int32{1, 0} },
		func(r *pb.TombstoneRecord) { r.Holders[0].PartitionSteps = []int32{1, 2} },
	} {
		r := good()
		spoil(r)
		id := TopicID{byte(i)}
		im.Apply(store.Batch{Rev: store.Rev(i + 1), Changes: []store.Change{{KV: store.KV{Key: im.Keys.Tombstone(id), Value: Encode(r), ModRev: store.Rev(i + 1)}}}})
		if im.Tombstones[id] != nil || im.Faults[im.Keys.Tombstone(id)].Key == "" {
			t.Errorf("%v was read", r)
		}
	}
}

func TestHiddenAndMissingBlocks(t *testing.T) {
	im := NewImage(KeysOf("c"))
	counted, unknown := TopicID{1}, TopicID{2}
	block := func(first int32) []byte {
		return (*Block)(nil).With(map[int32]*Partition{first: {Replicas: []BrokerID{1}, ISR: []BrokerID{1}, Leader: 1}}, nil).Encode()
	}
	put := func(key string, value []byte) {
		im.Apply(store.Batch{Rev: im.Rev + 1, Changes: []store.Change{{KV: store.KV{Key: key, Value: value, CreateRev: im.Rev + 1, ModRev: im.Rev + 1}}}})
	}
	put(im.Keys.Topic("t"), Encode(&pb.TopicRecord{TopicId: counted[:], PartitionsMade: 5, PartitionsWanted: 7, BlockSize: 2}))
	put(im.Keys.Block(BlockID{counted, 0}), block(0))
	put(im.Keys.Block(BlockID{counted, 2}), []byte{0xff}) // unreadable, not missing
	put(im.Keys.Block(BlockID{counted, 3}), block(6))     // wanted
	put(im.Keys.Block(BlockID{counted, 4}), block(8))
	put(im.Keys.Block(BlockID{unknown, 0}), block(0))
	var hidden []BlockID
	for _, b := range im.HiddenBlocks() {
		hidden = append(hidden, b.ID)
	}
	if !slices.Equal(hidden, []BlockID{{counted, 4}, {unknown, 0}}) {
		t.Errorf("hidden: %v", hidden)
	}
	put(im.Keys.Block(BlockID{counted, 5}), block(10))
	if n := im.MissingBlocks(im.Topics["t"]); n != 1 {
		t.Errorf("%d blocks are missing", n)
	}
	if im.UnreadableTopics() {
		t.Error("a topic record is unreadable")
	}
	put(im.Keys.Topic("u"), []byte{0xff})
	if !im.UnreadableTopics() {
		t.Error("no topic record is unreadable")
	}
}

// Partitions above the count of a topic are its own if they have been counted,
// or cannot be what an expansion has left.
func TestHad(t *testing.T) {
	id := TopicID{1}
	created := &Partition{Replicas: []BrokerID{1}, ISR: []BrokerID{1}, Leader: 1, Cause: pb.ChangeCause_CHANGE_CAUSE_CREATED}
	expanded, lived := *created, *created
	expanded.Cause, lived.Cause = pb.ChangeCause_CHANGE_CAUSE_EXPANDED, pb.ChangeCause_CHANGE_CAUSE_EXPANDED
	lived.PartitionEpoch = 1
	for name, c := range map[string]struct {
		seen         int32 // partitions that were counted before
		made, wanted int32
		records      []*Partition
		want         int32
	}{
		"all are counted":                   {0, 3, 3, []*Partition{created, created, created}, 3},
		"more are wanted":                   {0, 1, 5, []*Partition{created}, 5},
		"made before":                       {0, 1, 1, []*Partition{created, created, created}, 3},
		"of an expansion that did not end":  {0, 1, 1, []*Partition{created, &expanded, &expanded}, 1},
		"of an expansion, and changed":      {0, 1, 1, []*Partition{created, &lived, &expanded}, 2},
		"of an expansion that was counted":  {3, 1, 1, []*Partition{created, &expanded, &expanded, &expanded}, 3},
		"wanted up to the middle of others": {0, 1, 2, []*Partition{created, created, created, created}, 4},
		"a gap":                             {0, 1, 1, []*Partition{created, nil, created}, 1},
	} {
		for _, size := range []int32{1, 2, 16} {
			im := NewImage(KeysOf("c"))
			put := func(key string, value []byte) {
				im.Apply(store.Batch{Rev: im.Rev + 1, Changes: []store.Change{{KV: store.KV{Key: key, Value: value, CreateRev: im.Rev + 1, ModRev: im.Rev + 1}}}})
			}
			count := func(made, wanted int32) {
				put(im.Keys.Topic("t"), Encode(&pb.TopicRecord{TopicId: id[:], PartitionsMade: made, PartitionsWanted: wanted, BlockSize: size}))
			}
			blocks := map[int32]map[int32]*Partition{}
			for i, p := range c.records {
				if p != nil {
					n := int32(i) / size
					if blocks[n] == nil {
						blocks[n] = map[int32]*Partition{}
					}
					blocks[n][int32(i)] = p
				}
			}
			for n, b := range blocks {
				put(im.Keys.Block(BlockID{id, n}), (*Block)(nil).With(b, nil).Encode())
			}
			if c.seen > 0 {
				count(c.seen, c.seen)
			}
			count(c.made, c.wanted)
			if got := im.Had(im.Topics["t"]); got != c.want {
				t.Errorf("%s, in blocks of %d: %d, want %d", name, size, got, c.want)
			}
		}
	}
}
