package cluster

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// fixture is an image with a store whose every write is seen at once.
type fixture struct {
	*history
	im *Image
}

func newFixture() *fixture { return &fixture{newHistory(0), NewImage(testKeys)} }

func (f *fixture) set(key string, m proto.Message) []Event { return f.raw(key, Encode(m)) }

func (f *fixture) raw(key string, value []byte) []Event {
	f.rev++
	return f.im.Apply(store.Batch{Rev: f.rev, Changes: []store.Change{f.put(key, value, 0)}})
}

func (f *fixture) unset(key string) []Event {
	f.rev++
	return f.im.Apply(store.Batch{Rev: f.rev, Changes: []store.Change{f.delete(key)}})
}

func kinds(events []Event) string {
	var out []string
	for _, e := range events {
		out = append(out, reflect.TypeOf(e).Name())
	}
	return strings.Join(out, " ")
}

var topicID1 = TopicID{1}

func topicRecord(made, blockSize int32) *pb.TopicRecord {
	return &pb.TopicRecord{TopicId: topicID1[:], PartitionsWanted: made, PartitionsMade: made, BlockSize: blockSize}
}

// blockOf has a record for each of the given partitions.
func blockOf(indexes ...int32) *pb.PartitionBlock {
	b := &pb.PartitionBlock{}
	for _, i := range indexes {
		b.Partitions = append(b.Partitions, &pb.PartitionRecord{Partition: i, Replicas: []int32{1, 2}, Isr: []int32{1}, Leader: 1})
	}
	return b
}

func (f *fixture) visible() []int32 {
	var out []int32
	for _, t := range f.im.SortedTopics() {
		f.im.Partitions(t, func(id PartitionID, p *Partition) {
			if p != nil {
				out = append(out, id.Index)
			}
		})
	}
	return out
}

// TestGarbage: a value that cannot be read is a fault and counts as missing,
// nothing else changes, and a repair is picked up.
func TestGarbage(t *testing.T) {
	k := testKeys
	block := k.Block(BlockID{topicID1, 0})
	for _, tt := range []struct {
		name    string
		key     string
		good    proto.Message
		bad     map[string][]byte
		present func(*Image) bool
	}{
		{
			"cluster", k.Cluster(), &pb.ClusterRecord{Uuid: "u"},
			map[string][]byte{"no uuid": Encode(&pb.ClusterRecord{Format: 1})},
			func(im *Image) bool { return im.Cluster != nil },
		},
		{
			"epoch", k.ControllerEpoch(), &pb.EpochRecord{Epoch: 3},
			map[string][]byte{"zero": Encode(&pb.EpochRecord{}), "negative": Encode(&pb.EpochRecord{Epoch: -1})},
			func(im *Image) bool { return im.Epoch == 3 },
		},
		{
			"candidate", k.Candidate(5), &pb.CandidateRecord{Id: "c"}, nil,
			func(im *Image) bool { return im.Candidates[5] != nil },
		},
		{
			"term", k.Term(4), &pb.TermRecord{Epoch: 4}, nil,
			func(im *Image) bool { return im.Terms[4] != nil },
		},
		{
			"broker", k.Broker(1), &pb.BrokerRecord{NodeUuid: "u", Nonce: "n"},
			map[string][]byte{"no uuid": Encode(&pb.BrokerRecord{Nonce: "n"}), "no nonce": Encode(&pb.BrokerRecord{NodeUuid: "u"})},
			func(im *Image) bool { return im.Brokers[1] != nil },
		},
		{
			"node", k.Node(1), &pb.NodeRecord{NodeUuid: "u"}, nil,
			func(im *Image) bool { return im.Nodes[1] != nil },
		},
		{
			"topic", k.Topic("t"), topicRecord(1, 16),
			map[string][]byte{
				"short id":     Encode(&pb.TopicRecord{TopicId: []byte{1}, BlockSize: 1}),
				"no block":     Encode(topicRecord(1, 0)),
				"negative":     Encode(topicRecord(-1, 1)),
				"too many":     Encode(topicRecord(MaxPartitions+1, 1)),
				"not UTF-8":    {0x42, 1, 0xff},
				"half a field": {0x0a, 16, 1},
			},
			func(im *Image) bool { return im.Topics["t"] != nil },
		},
		{
			"block", block, blockOf(0),
			map[string][]byte{
				"no records":      Encode(&pb.PartitionBlock{}),
				"no replicas":     spoilt(func(r *pb.PartitionRecord) { r.Replicas = nil }),
				"same replica":    spoilt(func(r *pb.PartitionRecord) { r.Replicas = []int32{1, 1} }),
				"negative broker": spoilt(func(r *pb.PartitionRecord) { r.Replicas = []int32{1, -2} }),
				"no ISR":          spoilt(func(r *pb.PartitionRecord) { r.Isr = nil }),
				"foreign ISR":     spoilt(func(r *pb.PartitionRecord) { r.Isr = []int32{1, 3} }),
				"same in ISR":     spoilt(func(r *pb.PartitionRecord) { r.Isr = []int32{1, 1} }),
				"leader outside":  spoilt(func(r *pb.PartitionRecord) { r.Leader = 2 }),
				"leader -2":       spoilt(func(r *pb.PartitionRecord) { r.Leader = -2 }),
				"leader epoch":    spoilt(func(r *pb.PartitionRecord) { r.LeaderEpoch = -1 }),
				"partition epoch": spoilt(func(r *pb.PartitionRecord) { r.PartitionEpoch = -1 }),
				"index":           spoilt(func(r *pb.PartitionRecord) { r.Partition = -1 }),
				"twice":           Encode(blockOf(0, 0)),
				"out of order":    Encode(blockOf(1, 0)),
			},
			func(im *Image) bool {
				return im.Block(BlockID{topicID1, 0}) != nil && im.Partition(PartitionID{topicID1, 0}) != nil
			},
		},
	} {
		bad := map[string][]byte{"empty": nil, "garbage": []byte("\xff\xff\xff garbage")}
		for name, value := range tt.bad {
			bad[name] = value
		}
		for name, value := range bad {
			t.Run(tt.name+" "+name, func(t *testing.T) {
				f := newFixture()
				f.set(k.Broker(9), &pb.BrokerRecord{NodeUuid: "u", Nonce: "n"})
				f.set(k.Topic("t"), topicRecord(1, 16))
				f.set(block, blockOf(0))
				f.set(tt.key, tt.good)
				before := dump(f.im)
				if !tt.present(f.im) || len(f.im.Faults) != 0 {
					t.Fatalf("the good value is not there; faults %v", f.im.Faults)
				}
				f.raw(tt.key, value)
				if tt.present(f.im) {
					t.Error("the bad value is there")
				}
				if fault, ok := f.im.Faults[tt.key]; !ok || len(f.im.Faults) != 1 || fault.ModRev != f.rev || fault.Key != tt.key || fault.Reason == "" {
					t.Errorf("faults %v", f.im.Faults)
				}
				if f.im.ModRev(tt.key) != f.rev {
					t.Errorf("mod revision %d: the key must be known to exist", f.im.ModRev(tt.key))
				}
				if f.im.Brokers[9] == nil {
					t.Error("another key was lost")
				}
				f.set(tt.key, tt.good)
				if !tt.present(f.im) || len(f.im.Faults) != 0 {
					t.Errorf("the repair is not seen; faults %v", f.im.Faults)
				}
				if after := dump(f.im); strings.Count(after, "\n") != strings.Count(before, "\n") {
					t.Errorf("before\n%safter\n%s", before, after)
				}
				f.raw(tt.key, value)
				if f.unset(tt.key); len(f.im.Faults) != 0 {
					t.Errorf("deleted, and still faults %v", f.im.Faults)
				}
			})
		}
	}
}

func spoilt(spoil func(*pb.PartitionRecord)) []byte {
	b := blockOf(0)
	spoil(b.Partitions[0])
	return Encode(b)
}

// TestGarbageSeat: an unreadable seat is taken all the same.
func TestGarbageSeat(t *testing.T) {
	f := newFixture()
	if got := kinds(f.raw(testKeys.Controller(), []byte("\xff"))); got != "LeaderChanged" {
		t.Errorf("events %s", got)
	}
	if c := f.im.Controller; c == nil || c.ModRev != f.rev || c.Record.GetNonce() != "" || len(f.im.Faults) != 1 {
		t.Errorf("controller %+v, faults %v", c, f.im.Faults)
	}
	f.unset(testKeys.Controller())
	if f.im.Controller != nil || len(f.im.Faults) != 0 {
		t.Errorf("controller %+v, faults %v", f.im.Controller, f.im.Faults)
	}
}

func TestUnknownKeys(t *testing.T) {
	f := newFixture()
	if events := f.unset(testKeys.Broker(7)); events != nil || f.im.Rev != f.rev {
		t.Errorf("delete of a key never seen: %v, revision %d", events, f.im.Rev)
	}
	if events := f.raw(testKeys.Prefix()+"other/thing", []byte("x")); events != nil || len(f.im.Faults) != 1 {
		t.Errorf("a key without meaning: %v, faults %v", events, f.im.Faults)
	}
	if events := f.unset(testKeys.Prefix() + "other/thing"); events != nil || len(f.im.Faults) != 0 {
		t.Errorf("its deletion: %v, faults %v", events, f.im.Faults)
	}
}

// TestHidden: blocks are invisible until a topic record counts their
// partitions.
func TestHidden(t *testing.T) {
	f := newFixture()
	steps := []struct {
		name    string
		do      func() []Event
		events  string
		visible []int32
	}{
		{"block", func() []Event { return f.set(testKeys.Block(BlockID{topicID1, 0}), blockOf(0, 1)) }, "", nil},
		{"topic", func() []Event { return f.set(testKeys.Topic("t"), topicRecord(1, 2)) }, "TopicAdded PartitionChanged", []int32{0}},
		{"next block", func() []Event { return f.set(testKeys.Block(BlockID{topicID1, 1}), blockOf(2, 3)) }, "", []int32{0}},
		{
			"expanded", func() []Event { return f.set(testKeys.Topic("t"), topicRecord(3, 2)) },
			"TopicChanged PartitionChanged PartitionChanged", []int32{0, 1, 2},
		},
		{"block lost", func() []Event { return f.unset(testKeys.Block(BlockID{topicID1, 0})) }, "PartitionChanged PartitionChanged", []int32{2}},
		{
			"a record missing", func() []Event { return f.set(testKeys.Block(BlockID{topicID1, 0}), blockOf(1)) },
			"PartitionChanged", []int32{1, 2},
		},
		{
			"rewritten the same", func() []Event { return f.set(testKeys.Block(BlockID{topicID1, 0}), blockOf(1)) },
			"", []int32{1, 2},
		},
		{"count lowered", func() []Event { return f.set(testKeys.Topic("t"), topicRecord(2, 2)) }, "TopicChanged PartitionChanged", []int32{1}},
		{
			"block size changed", func() []Event { return f.set(testKeys.Topic("t"), topicRecord(3, 1)) },
			"TopicChanged PartitionChanged", nil,
		},
		{
			"and back", func() []Event { return f.set(testKeys.Topic("t"), topicRecord(3, 2)) },
			"TopicChanged PartitionChanged PartitionChanged", []int32{1, 2},
		},
		{"topic gone", func() []Event { return f.unset(testKeys.Topic("t")) }, "PartitionChanged PartitionChanged TopicGone", nil},
		{"hidden change", func() []Event { return f.set(testKeys.Block(BlockID{topicID1, 0}), blockOf(0)) }, "", nil},
		{"another name", func() []Event { return f.set(testKeys.Topic("u"), topicRecord(1, 2)) }, "TopicAdded PartitionChanged", []int32{0}},
	}
	for _, s := range steps {
		if got := kinds(s.do()); got != s.events {
			t.Errorf("%s: events %q, want %q", s.name, got, s.events)
		}
		if got := f.visible(); !slices.Equal(got, s.visible) {
			t.Errorf("%s: visible %v, want %v", s.name, got, s.visible)
		}
	}
	if f.im.Block(BlockID{topicID1, 1}) == nil {
		t.Error("a hidden block is not there")
	}
}

// TestBlockBeyondAllPartitions: no partition is in a block whose first one has
// a number beyond all limits.
func TestBlockBeyondAllPartitions(t *testing.T) {
	f := newFixture()
	f.set(testKeys.Topic("t"), topicRecord(2, 1<<30))
	f.set(testKeys.Block(BlockID{topicID1, 0}), blockOf(0, 1))
	events := f.set(testKeys.Block(BlockID{topicID1, 4}), blockOf(0)) // 4 << 30 is 0 in 32 bits
	if events != nil || !slices.Equal(f.visible(), []int32{0, 1}) {
		t.Errorf("events %v, visible %v", events, f.visible())
	}
}

// TestOneIDTwoNames: the second topic to claim an id is a fault.
func TestOneIDTwoNames(t *testing.T) {
	f := newFixture()
	f.set(testKeys.Topic("b"), topicRecord(1, 1))
	if events := f.set(testKeys.Topic("a"), topicRecord(1, 1)); events != nil || len(f.im.Faults) != 1 {
		t.Errorf("events %v, faults %v", events, f.im.Faults)
	}
	if topic := f.im.TopicByID(topicID1); topic == nil || topic.Name != "b" {
		t.Errorf("the id belongs to %v", topic)
	}
}

// TestNewIDUnderName: a topic that was deleted and made again unseen.
func TestNewIDUnderName(t *testing.T) {
	f := newFixture()
	f.set(testKeys.Block(BlockID{topicID1, 0}), blockOf(0))
	f.set(testKeys.Topic("t"), topicRecord(1, 1))
	other := TopicID{2}
	f.rev++
	f.put(testKeys.Topic("t"), Encode(&pb.TopicRecord{TopicId: other[:], PartitionsMade: 1, BlockSize: 1}), 0)
	if got := kinds(f.im.Apply(f.list())); got != "PartitionChanged TopicGone TopicAdded" {
		t.Errorf("events %s", got)
	}
	if f.im.TopicByID(topicID1) != nil || f.im.TopicByID(other) == nil {
		t.Error("the old id is still visible, or the new one is not")
	}
}

// TestRestart: a broker that was away is told from one that changed its
// record, however it is seen.
func TestRestart(t *testing.T) {
	record := &pb.BrokerRecord{NodeUuid: "u", Nonce: "n"}
	f := newFixture()
	f.set(testKeys.Broker(1), record)
	first := f.im.Brokers[1].Epoch
	if got := kinds(f.set(testKeys.Broker(1), record)); got != "BrokerChanged" || f.im.Brokers[1].Epoch != first {
		t.Errorf("rewritten: %s, epoch %d", got, f.im.Brokers[1].Epoch)
	}

	f.rev++
	down := f.delete(testKeys.Broker(1))
	f.rev++
	up := f.put(testKeys.Broker(1), Encode(record), 0)
	if got := kinds(f.im.Apply(store.Batch{Rev: f.rev, Changes: []store.Change{down, up}})); got != "BrokerDown BrokerUp" {
		t.Errorf("seen: %s", got)
	}

	f.rev++
	f.delete(testKeys.Broker(1))
	f.rev++
	f.put(testKeys.Broker(1), Encode(record), 0)
	old := f.im.Brokers[1]
	events := f.im.Apply(f.list())
	if got := kinds(events); got != "BrokerRestarted" {
		t.Fatalf("unseen: %s", got)
	}
	if e := events[0].(BrokerRestarted); e.Old != old || e.New != f.im.Brokers[1] || e.New.Epoch != BrokerEpoch(f.rev) {
		t.Errorf("%+v", e)
	}
}

// TestListIsNotNewer: a list does not undo what the image knows to be younger.
func TestListIsNotNewer(t *testing.T) {
	f := newFixture()
	f.set(testKeys.Node(1), &pb.NodeRecord{NodeUuid: "old"})
	list := f.list()
	f.set(testKeys.Node(1), &pb.NodeRecord{NodeUuid: "new"})
	f.set(testKeys.Node(2), &pb.NodeRecord{NodeUuid: "newer"})
	f.im.Apply(list)
	if f.im.Nodes[1].Record.GetNodeUuid() != "new" || f.im.Nodes[2] == nil || f.im.Rev != f.rev {
		t.Errorf("nodes %v, revision %d", f.im.Nodes, f.im.Rev)
	}
}

func TestMaxEpoch(t *testing.T) {
	f := newFixture()
	for _, step := range []struct {
		key  string
		m    proto.Message
		want Epoch
	}{
		{testKeys.Term(3), &pb.TermRecord{Epoch: 3}, 3},
		{testKeys.ControllerEpoch(), &pb.EpochRecord{Epoch: 5}, 5},
		{testKeys.ControllerEpoch(), &pb.EpochRecord{Epoch: 2}, 5},
		{testKeys.Block(BlockID{topicID1, 0}), &pb.PartitionBlock{Partitions: []*pb.PartitionRecord{
			{Replicas: []int32{1}, Isr: []int32{1}, Leader: 1, ControllerEpoch: 9},
		}}, 9},
	} {
		if f.set(step.key, step.m); f.im.MaxEpoch() != step.want {
			t.Errorf("after %s: %d, want %d", step.key, f.im.MaxEpoch(), step.want)
		}
	}
	f.unset(testKeys.ControllerEpoch())
	f.raw(testKeys.Term(12), []byte("\xff"))
	if f.im.Epoch != 0 || f.im.EpochRev != 0 || f.im.MaxEpoch() != 12 {
		t.Errorf("epoch %d at %d, highest %d", f.im.Epoch, f.im.EpochRev, f.im.MaxEpoch())
	}
}

func TestReached(t *testing.T) {
	f := newFixture()
	f.rev = 9
	f.set(testKeys.Node(1), &pb.NodeRecord{NodeUuid: "u"}) // at 10
	for _, tt := range []struct {
		name    string
		rev     store.Rev
		found   map[string]store.Rev
		missing []string
		want    bool
	}{
		{"the same", 20, map[string]store.Rev{testKeys.Node(1): 10}, nil, true},
		{"found older", 20, map[string]store.Rev{testKeys.Node(1): 9}, nil, true},
		{"found newer", 20, map[string]store.Rev{testKeys.Node(1): 15}, nil, false},
		{"found unknown", 20, map[string]store.Rev{testKeys.Node(2): 15}, nil, false},
		{"missing both", 20, nil, []string{testKeys.Node(2)}, true},
		{"deleted since", 20, nil, []string{testKeys.Node(1)}, false},
		{"put since", 9, nil, []string{testKeys.Node(1)}, true},
		{"nothing asked", 20, nil, nil, true},
	} {
		var found []store.KV
		for key, rev := range tt.found {
			found = append(found, store.KV{Key: key, ModRev: rev})
		}
		if got := f.im.Reached(tt.rev, found, tt.missing); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestDifferencesAndHeal(t *testing.T) {
	f := newFixture()
	f.set(testKeys.Node(1), &pb.NodeRecord{NodeUuid: "1"})
	f.set(testKeys.Node(2), &pb.NodeRecord{NodeUuid: "2"})
	f.set(testKeys.Node(3), &pb.NodeRecord{NodeUuid: "3"})
	f.rev++ // the watch misses these
	f.delete(testKeys.Node(1))
	f.put(testKeys.Node(2), Encode(&pb.NodeRecord{NodeUuid: "2b"}), 0)
	f.put(testKeys.Node(4), Encode(&pb.NodeRecord{NodeUuid: "4"}), 0)
	f.im.Apply(store.Batch{Rev: f.rev})
	list := store.Snapshot{Rev: f.rev}
	for _, c := range f.list().Changes {
		list.KVs = append(list.KVs, c.KV)
	}
	keys := f.im.Differences(list)
	if want := []string{testKeys.Node(1), testKeys.Node(2), testKeys.Node(4)}; !slices.Equal(keys, want) {
		t.Fatalf("differences %v, want %v", keys, want)
	}
	read := store.Snapshot{Rev: f.rev, KVs: []store.KV{f.kvs[keys[1]], f.kvs[keys[2]]}}
	f.im.Apply(Heal(keys, read))
	if left := f.im.Differences(list); left != nil {
		t.Errorf("after healing: %v", left)
	}
	if f.im.Nodes[1] != nil || f.im.Nodes[2].Record.GetNodeUuid() != "2b" || f.im.Nodes[4] == nil || f.im.Nodes[3] == nil {
		t.Errorf("nodes %v", f.im.Nodes)
	}
}

// TestUnknownFields: what a newer version has written into a block, its
// records and a change of one of them is still there after a rewrite.
func TestUnknownFields(t *testing.T) {
	const field = 900
	extra := func(s string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, field, protowire.BytesType), s)
	}
	m := blockOf(0, 1)
	m.ProtoReflect().SetUnknown(extra("of the block"))
	m.Partitions[0].ProtoReflect().SetUnknown(extra("of partition 0"))
	m.Partitions[1].ProtoReflect().SetUnknown(extra("of partition 1"))
	f := newFixture()
	key := testKeys.Block(BlockID{topicID1, 0})
	f.set(key, m)
	block := f.im.Block(BlockID{topicID1, 0})
	if !slices.Equal(block.Encode(), f.kvs[key].Value) {
		t.Error("encoded without a change it is another")
	}
	changed := block.Partition(1).Clone()
	changed.LeaderEpoch = 8
	f.raw(key, block.With(map[int32]*Partition{1: &changed, 2: {Replicas: []BrokerID{1}, ISR: []BrokerID{1}, Leader: 1}}, nil).Encode())

	var got pb.PartitionBlock
	if err := proto.Unmarshal(f.kvs[key].Value, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Partitions) != 3 || got.Partitions[1].GetLeaderEpoch() != 8 || len(f.im.Faults) != 0 {
		t.Fatalf("block %v, faults %v", &got, f.im.Faults)
	}
	for i, x := range map[int]proto.Message{-1: &got, 0: got.Partitions[0], 1: got.Partitions[1]} {
		want := extra([]string{"of the block", "of partition 0", "of partition 1"}[i+1])
		if unknown := x.ProtoReflect().GetUnknown(); !slices.Equal(unknown, want) {
			t.Errorf("%d: unknown fields %q, want %q", i, unknown, want)
		}
	}
}

// TestWithLeavesTheOld: a block is never changed in place.
func TestWithLeavesTheOld(t *testing.T) {
	f := newFixture()
	f.set(testKeys.Block(BlockID{topicID1, 0}), blockOf(1))
	block := f.im.Block(BlockID{topicID1, 0})
	before := block.Encode()
	p := &Partition{Replicas: []BrokerID{5}, ISR: []BrokerID{5}, Leader: 5}
	next := block.With(map[int32]*Partition{1: p}, nil).With(map[int32]*Partition{0: p, 2: p}, nil)
	if !slices.Equal(block.Encode(), before) {
		t.Error("the old block changed")
	}
	for i := range int32(3) {
		if !next.Partition(i).equal(p) {
			t.Errorf("partition %d is %v", i, next.Partition(i))
		}
	}
	if next.Partition(3) != nil || next.ID != block.ID {
		t.Errorf("partition 3 is %v, block %v", next.Partition(3), next.ID)
	}
}

// TestPartitionChanged: an event tells of every change of a record but of what
// is in it for people.
func TestPartitionChanged(t *testing.T) {
	base := Partition{Replicas: []BrokerID{1, 2}, ISR: []BrokerID{1, 2}, Leader: 1}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Partition]()) {
		if !field.IsExported() {
			continue
		}
		f := newFixture()
		write := func(p Partition) []Event {
			return f.raw(testKeys.Block(BlockID{topicID1, 0}), (*Block)(nil).With(map[int32]*Partition{0: &p}, nil).Encode())
		}
		f.set(testKeys.Topic("t"), topicRecord(1, 1))
		write(base)
		p := base
		switch x := reflect.ValueOf(&p).Elem().FieldByIndex(field.Index); {
		case field.Name == "Leader":
			p.Leader = NoLeader
		case x.Kind() == reflect.Slice:
			x.Set(reflect.ValueOf([]BrokerID{2, 1}))
		default:
			x.SetInt(2)
		}
		want := "PartitionChanged"
		if field.Name == "Cause" || field.Name == "ChangedMs" {
			want = ""
		}
		if got := kinds(write(p)); got != want || len(f.im.Faults) != 0 {
			t.Errorf("%s: events %q, want %q; faults %v", field.Name, got, want, f.im.Faults)
		}
		if got := f.im.Partition(PartitionID{topicID1, 0}); !reflect.DeepEqual(*got, p) {
			t.Errorf("%s: read back as %+v, want %+v", field.Name, got, p)
		}
	}
}

// FuzzImageApply applies any value to any key of an image that holds
// something, then lists it all: no panic, and events and image agree.
func FuzzImageApply(f *testing.F) {
	add := func(key string, m proto.Message) { f.Add(strings.TrimPrefix(key, testKeys.Prefix()), Encode(m)) }
	add(testKeys.Cluster(), &pb.ClusterRecord{Uuid: "u"})
	add(testKeys.Controller(), &pb.ControllerRecord{Id: "c"})
	add(testKeys.ControllerEpoch(), &pb.EpochRecord{Epoch: 1 << 60})
	add(testKeys.Candidate(1), &pb.CandidateRecord{Id: "c"})
	add(testKeys.Term(1), &pb.TermRecord{Epoch: 1})
	add(testKeys.Broker(1), &pb.BrokerRecord{NodeUuid: "u", Nonce: "n"})
	add(testKeys.Node(1), &pb.NodeRecord{NodeUuid: "u"})
	add(testKeys.Topic("t"), topicRecord(4, 3))
	add(testKeys.Topic("u"), topicRecord(2, 1<<30))
	add(testKeys.Block(BlockID{topicID1, 0}), blockOf(0, 2, 1<<30))
	add(testKeys.Block(BlockID{topicID1, MaxPartitions - 1}), blockOf(0))
	f.Fuzz(func(t *testing.T, name string, value []byte) {
		x, told := newFixture(), newShadow()
		learn := func(events []Event) {
			if err := told.learn(events); err != nil {
				t.Fatal(err)
			}
			if err := told.differs(x.im); err != nil {
				t.Fatal(err)
			}
			dump(x.im)
		}
		learn(x.set(testKeys.Broker(1), &pb.BrokerRecord{NodeUuid: "u", Nonce: "n"}))
		learn(x.set(testKeys.Block(BlockID{topicID1, 0}), blockOf(0, 1)))
		learn(x.set(testKeys.Topic("t"), topicRecord(2, 2)))
		learn(x.raw(testKeys.Prefix()+name, value))
		learn(x.im.Apply(x.list()))
		learn(x.set(testKeys.Block(BlockID{topicID1, 1}), blockOf(2, 3)))
		learn(x.unset(testKeys.Prefix() + name))
	})
}

// An image that holds writes which the store has lost knows it: from a list
// that begins it anew, or that it is compared with. One that is merely ahead of
// a list, or behind, does not.
func TestRewound(t *testing.T) {
	held := func() *fixture {
		f := newFixture()
		f.set(testKeys.ControllerEpoch(), &pb.EpochRecord{Epoch: 1}) // 1
		f.set(testKeys.ControllerEpoch(), &pb.EpochRecord{Epoch: 2}) // 2
		return f
	}
	list := func(rev, mod store.Rev) store.Snapshot {
		value := Encode(&pb.EpochRecord{Epoch: int64(mod)})
		return store.Snapshot{Rev: rev, KVs: []store.KV{{Key: testKeys.ControllerEpoch(), Value: value, CreateRev: 1, ModRev: mod}}}
	}
	cases := []struct {
		name       string
		list       store.Snapshot
		wants      bool
		wantsReset bool // of a list that begins the image anew, which is never behind it
	}{
		{"the same", list(2, 2), false, false},
		{"later", list(9, 2), false, false},
		{"written since", list(9, 3), false, false},
		{"from before the last write", list(1, 1), false, true},
		{"without the last write", list(2, 1), true, true},
		{"restored, and its revision bumped", list(1000, 1), true, true},
		{"of another key", store.Snapshot{Rev: 1000, KVs: []store.KV{{Key: testKeys.Term(1), ModRev: 1}}}, false, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := held()
			if f.im.Differences(c.list); (f.im.Rewound != "") != c.wants {
				t.Errorf("compared: %q", f.im.Rewound)
			}
			f = held()
			b := store.Batch{Rev: c.list.Rev, Reset: true}
			for _, kv := range c.list.KVs {
				b.Changes = append(b.Changes, store.Change{KV: kv})
			}
			if f.im.Apply(b); (f.im.Rewound != "") != c.wantsReset {
				t.Errorf("begun anew: %q", f.im.Rewound)
			}
		})
	}
}
