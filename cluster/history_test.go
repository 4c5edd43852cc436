package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// history is a store that is written at random.
type history struct {
	rng *rand.Rand
	rev store.Rev
	kvs map[string]store.KV
}

func newHistory(seed uint64) *history {
	return &history{rng: rand.New(rand.NewPCG(seed, 0)), kvs: map[string]store.KV{}}
}

func (h *history) put(key string, value []byte, lease store.LeaseID) store.Change {
	kv := store.KV{Key: key, Value: value, CreateRev: h.rev, ModRev: h.rev, Lease: lease}
	if old, ok := h.kvs[key]; ok {
		kv.CreateRev = old.CreateRev
	}
	h.kvs[key] = kv
	return store.Change{KV: kv}
}

func (h *history) delete(key string) store.Change {
	delete(h.kvs, key)
	return store.Change{KV: store.KV{Key: key, ModRev: h.rev}, Deleted: true}
}

// list is the whole store.
func (h *history) list() store.Batch {
	b := store.Batch{Rev: h.rev, Reset: true}
	for _, key := range slices.Sorted(maps.Keys(h.kvs)) {
		b.Changes = append(b.Changes, store.Change{KV: h.kvs[key]})
	}
	return b
}

// batch is what the watch brings of some more writes.
func (h *history) batch() store.Batch {
	var b store.Batch
	for range 1 + h.rng.IntN(4) {
		h.rev++
		touched := map[string]bool{} // a transaction writes a key once
		for range 1 + h.rng.IntN(2) {
			key, value := h.write()
			if touched[key] {
				continue
			}
			touched[key] = true
			_, exists := h.kvs[key]
			switch {
			case exists && h.rng.IntN(4) == 0:
				b.Changes = append(b.Changes, h.delete(key))
			case h.rng.IntN(8) == 0:
				b.Changes = append(b.Changes, h.put(key, []byte("garbage"), 0))
			default:
				b.Changes = append(b.Changes, h.put(key, value, store.LeaseID(h.rng.IntN(3))))
			}
		}
	}
	b.Rev = h.rev
	return b
}

// write chooses a key and a readable value for it.
func (h *history) write() (string, []byte) {
	n := h.rng.IntN(3)
	switch h.rng.IntN(14) {
	case 0:
		return testKeys.Cluster(), Encode(&pb.ClusterRecord{Uuid: fmt.Sprint("uuid-", n)})
	case 1:
		return testKeys.Controller(), Encode(&pb.ControllerRecord{Id: fmt.Sprint("c", n)})
	case 2:
		return testKeys.ControllerEpoch(), Encode(&pb.EpochRecord{Epoch: int64(h.rev)})
	case 3:
		return testKeys.Candidate(store.LeaseID(n)), Encode(&pb.CandidateRecord{Id: fmt.Sprint("c", h.rev)})
	case 4:
		return testKeys.Term(Epoch(n + 1)), Encode(&pb.TermRecord{Epoch: int64(n + 1), Nonce: fmt.Sprint(h.rev)})
	case 5, 6:
		return testKeys.Broker(BrokerID(n)), Encode(&pb.BrokerRecord{NodeUuid: "u", Nonce: "n", State: pb.BrokerState(1 + h.rng.IntN(2))})
	case 7:
		return testKeys.Node(BrokerID(n)), Encode(&pb.NodeRecord{NodeUuid: fmt.Sprint("u", h.rev)})
	case 8, 9, 10:
		// Each of three names has two lives, under ids of its own.
		id := TopicID{byte(n), byte(h.rng.IntN(2))}
		return testKeys.Topic(fmt.Sprint("topic-", n)), Encode(&pb.TopicRecord{
			TopicId: id[:], PartitionsMade: int32(h.rng.IntN(8)), BlockSize: int32(2 + h.rng.IntN(2)),
		})
	case 11:
		return testKeys.Prefix() + "unheard-of", []byte("x")
	}
	block := BlockID{Topic: TopicID{byte(n), byte(h.rng.IntN(2))}, Index: int32(h.rng.IntN(4))}
	return testKeys.Block(block), h.block(block)
}

// block has records as a block size of 2 or 3 wants them, or any others.
func (h *history) block(id BlockID) []byte {
	records := map[int32]*Partition{}
	first := id.Index * int32(2+h.rng.IntN(2))
	for i := range int32(3) {
		if h.rng.IntN(4) == 0 {
			continue
		}
		replicas := []BrokerID{BrokerID(h.rng.IntN(2)), 2, 3}[:1+h.rng.IntN(3)]
		records[first+i] = &Partition{
			Replicas: replicas, ISR: replicas[:1], Leader: replicas[0],
			LeaderEpoch: LeaderEpoch(h.rng.IntN(2)), ControllerEpoch: Epoch(h.rng.IntN(5)),
		}
	}
	var none *Block
	return none.With(records, nil).Encode()
}

// dump is all that an image shows, in a fixed order.
func dump(im *Image) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("rev %d epoch %d at %d", im.Rev, im.Epoch, im.EpochRev)
	if im.Cluster != nil {
		line("cluster %x", Encode(im.Cluster))
	}
	if c := im.Controller; c != nil {
		line("controller %x at %d lease %d", Encode(c.Record), c.ModRev, c.Lease)
	}
	for _, key := range slices.Sorted(maps.Keys(im.keys)) {
		line("key %s created %d modified %d", key, im.CreateRev(key), im.ModRev(key))
	}
	for _, lease := range slices.Sorted(maps.Keys(im.Candidates)) {
		c := im.Candidates[lease]
		line("candidate %d %x at %d lease %d", lease, Encode(c.Record), c.CreateRev, c.Lease)
	}
	for _, e := range slices.Sorted(maps.Keys(im.Terms)) {
		line("term %d %x at %d", e, Encode(im.Terms[e].Record), im.Terms[e].ModRev)
	}
	for _, x := range im.SortedBrokers() {
		line("broker %d epoch %d at %d lease %d %x", x.ID, x.Epoch, x.ModRev, x.Lease, Encode(x.Record))
	}
	for _, id := range slices.Sorted(maps.Keys(im.Nodes)) {
		line("node %d at %d %x", id, im.Nodes[id].ModRev, Encode(im.Nodes[id].Record))
	}
	for _, t := range im.SortedTopics() {
		line("topic %s at %d %x, by id %v", t.Name, t.ModRev, Encode(t.Record), im.TopicByID(t.ID) == t)
		im.Partitions(t, func(id PartitionID, p *Partition) { line("  %d %s", id.Index, short(p)) })
	}
	for _, id := range slices.SortedFunc(maps.Keys(im.byID), func(a, b TopicID) int { return strings.Compare(a.Hex(), b.Hex()) }) {
		line("id %s of %v", id, im.byID[id].topic != nil)
		for _, n := range slices.Sorted(maps.Keys(im.byID[id].blocks)) {
			x := im.byID[id].blocks[n]
			line("block %s %d of %v at %d %x", id, n, x.ID, x.ModRev, x.Encode())
		}
	}
	for _, id := range slices.Sorted(maps.Keys(im.hosted.on)) {
		line("hosted on %d by %d blocks", id, len(im.hosted.of(id)))
		im.Hosted(id, func(t *Topic, id PartitionID, p *Partition) { line("  %s %v %s", t.Name, id, short(p)) })
	}
	for _, f := range im.SortedFaults() {
		line("fault %+v", f)
	}
	return b.String()
}

func short(p *Partition) string {
	if p == nil {
		return "unknown"
	}
	return fmt.Sprintf("%x", Encode(p.Record(0)))
}

// shadow is what one who believes the events knows.
type shadow struct {
	brokers    map[BrokerID]*Broker
	topics     map[string]*Topic
	partitions map[PartitionID]*Partition
}

func newShadow() *shadow {
	return &shadow{map[BrokerID]*Broker{}, map[string]*Topic{}, map[PartitionID]*Partition{}}
}

// learn takes in events, and reports one that does not follow from what was
// known before.
func (s *shadow) learn(events []Event) error {
	for _, e := range events {
		ok := true
		switch e := e.(type) {
		case BrokerUp:
			ok = s.brokers[e.Broker.ID] == nil
			s.brokers[e.Broker.ID] = e.Broker
		case BrokerDown:
			ok = s.brokers[e.Broker.ID] == e.Broker
			delete(s.brokers, e.Broker.ID)
		case BrokerRestarted:
			ok = s.brokers[e.Old.ID] == e.Old && e.Old.Epoch < e.New.Epoch
			s.brokers[e.New.ID] = e.New
		case BrokerChanged:
			ok = s.brokers[e.Old.ID] == e.Old && e.Old.Epoch == e.New.Epoch
			s.brokers[e.New.ID] = e.New
		case TopicAdded:
			ok = s.topics[e.Topic.Name] == nil
			s.topics[e.Topic.Name] = e.Topic
		case TopicChanged:
			ok = s.topics[e.Old.Name] == e.Old && e.Old.ID == e.New.ID
			s.topics[e.New.Name] = e.New
		case TopicGone:
			ok = s.topics[e.Topic.Name] == e.Topic
			delete(s.topics, e.Topic.Name)
		case PartitionChanged:
			ok = same(s.partitions[e.ID], e.Old) && !same(e.Old, e.New) && e.Topic.ID == e.ID.Topic
			s.partitions[e.ID] = e.New
			if e.New == nil {
				delete(s.partitions, e.ID)
			}
		}
		if !ok {
			return fmt.Errorf("%T does not follow: %+v", e, e)
		}
	}
	return nil
}

func same(p, q *Partition) bool { return p == q || p != nil && q != nil && p.equal(q) }

// differs reports how the image is another than the events told.
func (s *shadow) differs(im *Image) error {
	if !maps.Equal(s.brokers, im.Brokers) {
		return fmt.Errorf("brokers %v, told %v", im.Brokers, s.brokers)
	}
	if !maps.Equal(s.topics, im.Topics) {
		return fmt.Errorf("topics %v, told %v", im.Topics, s.topics)
	}
	visible := map[PartitionID]*Partition{}
	for _, t := range im.Topics {
		im.Partitions(t, func(id PartitionID, p *Partition) {
			if p != nil {
				visible[id] = p
			}
		})
	}
	if !maps.EqualFunc(s.partitions, visible, same) {
		return fmt.Errorf("partitions %v, told %v", visible, s.partitions)
	}
	hidden := 0
	for _, t := range im.byID {
		for n := range t.blocks {
			if t.topic == nil || int64(n)*int64(t.topic.BlockSize()) >= int64(max(t.topic.Made(), t.topic.Wanted())) {
				hidden++
			}
		}
	}
	if got := im.HiddenBlocks(); len(got) != hidden {
		return fmt.Errorf("hidden blocks %v, not %d", got, hidden)
	}
	return countsDiffer(im)
}

// TestHistory: an image that was built change by change is the one that a list
// gives, its events tell all, and batches may come twice.
func TestHistory(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			h, im, told := newHistory(seed), NewImage(testKeys), newShadow()
			apply := func(b store.Batch) {
				t.Helper()
				a := im.Begin(b)
				for a.Next(1 + h.rng.IntN(3)) {
				}
				if err := told.learn(a.Events); err != nil {
					t.Fatalf("at revision %d: %v", im.Rev, err)
				}
				if err := told.differs(im); err != nil {
					t.Fatalf("at revision %d: %v", im.Rev, err)
				}
			}
			for range 40 {
				b := h.batch()
				switch h.rng.IntN(6) {
				case 0: // the watch broke
					apply(h.list())
				case 1:
					apply(b)
					apply(b)
				default:
					apply(b)
				}
				apply(store.Batch{Rev: im.Rev}) // progress
				fresh := NewImage(testKeys)
				fresh.Apply(h.list())
				if got, want := dump(im), dump(fresh); got != want {
					t.Fatalf("at revision %d the image is\n%swant\n%s", im.Rev, got, want)
				}
				if im.MaxEpoch() < fresh.MaxEpoch() {
					t.Fatalf("highest epoch %d, want at least %d", im.MaxEpoch(), fresh.MaxEpoch())
				}
				if diff := im.Differences(store.Snapshot{Rev: h.rev, KVs: slices.Collect(maps.Values(h.kvs))}); diff != nil {
					t.Fatalf("differences %v", diff)
				}
			}
			if im.Rev != h.rev {
				t.Errorf("revision %d, want %d", im.Rev, h.rev)
			}
		})
	}
}

// TestHealHistory: an image that missed changes is healed by what a comparison
// in slices finds.
func TestHealHistory(t *testing.T) {
	missed := 0
	for seed := range uint64(100) {
		h, im, told := newHistory(seed), NewImage(testKeys), newShadow()
		for range 20 {
			b := h.batch()
			if h.rng.IntN(3) == 0 {
				b.Changes = b.Changes[:h.rng.IntN(len(b.Changes))]
			}
			if err := told.learn(im.Apply(b)); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		list := store.Snapshot{Rev: h.rev, KVs: slices.Collect(maps.Values(h.kvs))}
		c := im.Compare(list)
		for c.Next(1) { // while the watch goes on
			if err := told.learn(im.Apply(h.batch())); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		keys := c.Missed()
		missed += len(keys)
		read := store.Snapshot{Rev: h.rev}
		for _, key := range keys {
			if kv, ok := h.kvs[key]; ok {
				read.KVs = append(read.KVs, kv)
			}
		}
		if err := told.learn(im.Apply(Heal(keys, read))); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := told.differs(im); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		fresh := NewImage(testKeys)
		fresh.Apply(h.list())
		if got, want := dump(im), dump(fresh); got != want {
			t.Fatalf("seed %d: healed to\n%swant\n%s", seed, got, want)
		}
	}
	if missed < 100 {
		t.Errorf("only %d changes were missed", missed)
	}
}
