package rpc

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// mirror is what a client knows, from what it was told.
type mirror struct {
	t         *testing.T
	rev       store.Rev
	live      []int32
	topics    map[string]string // name and partition count, by id
	parts     map[string]*pb.PartitionMetadata
	snapshots int
	responses int
}

func newMirror(t *testing.T) *mirror {
	return &mirror{t: t, topics: map[string]string{}, parts: map[string]*pb.PartitionMetadata{}}
}

func (m *mirror) learn(resp *pb.WatchMetadataResponse) {
	m.t.Helper()
	m.responses++
	if size := proto.Size(resp); size >= 1<<20 {
		m.t.Errorf("a response of %d bytes", size)
	}
	if resp.GetSnapshot() {
		m.snapshots++
		m.rev = 0
		m.live, m.topics, m.parts = nil, map[string]string{}, map[string]*pb.PartitionMetadata{}
	}
	if l := resp.GetLiveBrokers(); l != nil {
		m.live = nil
		for _, b := range l.GetBrokers() {
			m.live = append(m.live, b.GetId())
		}
	}
	for _, t := range resp.GetTopics() {
		id := string(t.GetTopicId())
		m.topics[id] = fmt.Sprint(t.GetTopic(), " ", t.GetPartitionCount())
		for _, p := range t.GetPartitions() {
			m.parts[id+fmt.Sprint(p.GetPartition())] = p
		}
		for _, i := range t.GetUnknown() {
			delete(m.parts, id+fmt.Sprint(i))
		}
	}
	for _, id := range resp.GetGone() {
		delete(m.topics, string(id))
		maps.DeleteFunc(m.parts, func(key string, _ *pb.PartitionMetadata) bool { return key[:16] == string(id) })
	}
	m.rev = cmp.Or(store.Rev(resp.GetRevision()), m.rev)
}

// differs says how the client knows something else than the image.
func (m *mirror) differs(im *cluster.Image, wants func(string) bool) string {
	topics, parts := 0, 0
	for _, t := range im.Topics {
		if !wants(t.Name) {
			continue
		}
		topics++
		if got := m.topics[string(t.ID[:])]; got != fmt.Sprint(t.Name, " ", t.Made()) {
			return fmt.Sprintf("topic %s with %d partitions, not %q", t.Name, t.Made(), got)
		}
		var differs string
		im.Partitions(t, func(id cluster.PartitionID, p *cluster.Partition) {
			got := m.parts[string(t.ID[:])+fmt.Sprint(id.Index)]
			if p != nil {
				parts++
			}
			if (p == nil) != (got == nil) || p != nil && (got.GetLeader() != int32(p.Leader) || got.GetLeaderEpoch() != int32(p.LeaderEpoch) ||
				got.GetPartitionEpoch() != int32(p.PartitionEpoch) || !slices.Equal(got.GetIsr(), cluster.WireIDs(p.ISR))) {
				differs = fmt.Sprintf("%s/%d: %+v, not %v", t.Name, id.Index, p, got)
			}
		})
		if differs != "" {
			return differs
		}
	}
	if topics != len(m.topics) || parts != len(m.parts) {
		return fmt.Sprintf("%d topics and %d partitions, not %d and %d", topics, parts, len(m.topics), len(m.parts))
	}
	var live []int32
	for _, b := range im.SortedBrokers() {
		live = append(live, int32(b.ID))
	}
	if !slices.Equal(live, m.live) {
		return fmt.Sprintf("brokers %v, not %v", live, m.live)
	}
	return ""
}

func everyTopic(string) bool { return true }

// feeding is a hub with a Feed.
type feeding struct {
	*hub
	f *Feed
}

func newFeeding(t *testing.T) *feeding {
	x := &feeding{hub: newHub(t), f: NewFeed()}
	x.f.Observe(x.im, nil)
	x.observers = append(x.observers, func(events []cluster.Event) { x.f.Observe(x.im, events) })
	return x
}

// catchUp tells a client everything.
func (x *feeding) catchUp(r *reader, m *mirror) {
	x.t.Helper()
	for range 10_000 {
		resp := r.next(x.im, x.f)
		if resp == nil {
			return
		}
		m.learn(resp)
	}
	x.t.Fatal("it never knows enough")
}

func TestWatchBegins(t *testing.T) {
	x := newFeeding(t)
	x.broker(1)
	x.broker(2)
	parts := make([]cluster.Partition, 2500)
	for i := range parts {
		parts[i] = hostedBy(1, 2)
	}
	x.topic("a", parts...)
	x.topic("b", hostedBy(1))
	m, r := newMirror(t), &reader{}
	for range 2 { // brokers, a thousand partitions
		m.learn(r.next(x.im, x.f))
	}
	if m.rev != 0 || len(m.parts) != maxStates {
		t.Errorf("at revision %d, %d partitions", m.rev, len(m.parts))
	}
	x.change("a", 3, elect(2)) // told already
	x.change("a", 2400, elect(2))
	x.topic("c", hostedBy(2))
	x.write(store.Delete(keys.Topic("b")))
	x.gone(1)
	x.catchUp(r, m)
	if d := m.differs(x.im, everyTopic); d != "" || m.rev != x.im.Rev || m.snapshots != 1 {
		t.Errorf("%s; at revision %d of %d, %d snapshots", d, m.rev, x.im.Rev, m.snapshots)
	}
	if resp := r.next(x.im, x.f); resp != nil {
		t.Errorf("told what it knows: %v", resp)
	}
}

func TestWatchResumes(t *testing.T) {
	x := newFeeding(t)
	x.topic("a", hostedBy(1, 2, 3), hostedBy(1, 2, 3), hostedBy(1, 2, 3))
	m := newMirror(t)
	x.catchUp(&reader{}, m)
	x.change("a", 1, elect(2))
	x.change("a", 1, elect(3))
	x.broker(7)
	again := newMirror(t)
	again.topics, again.parts = m.topics, m.parts
	r := &reader{from: m.rev}
	x.catchUp(r, again)
	if d := again.differs(x.im, everyTopic); d != "" || again.snapshots != 0 || again.responses != 1 || again.rev != x.im.Rev {
		t.Errorf("%s; %d snapshots, %d responses", d, again.snapshots, again.responses)
	}
	// One that knows everything hears so; one that knows more waits.
	resp := (&reader{from: x.im.Rev}).next(x.im, x.f)
	if resp.GetRevision() != int64(x.im.Rev) || len(resp.GetTopics()) != 0 || resp.GetSnapshot() {
		t.Errorf("told %v", resp)
	}
	ahead := &reader{from: x.im.Rev + 1}
	if resp := ahead.next(x.im, x.f); resp != nil {
		t.Errorf("told %v by a daemon that is behind", resp)
	}
	x.change("a", 0, elect(2))
	if resp := ahead.next(x.im, x.f); resp.GetRevision() != int64(x.im.Rev) || len(resp.GetTopics()) != 0 {
		t.Errorf("told %v", resp)
	}
	// One from before the daemon's own list is told everything.
	if resp := (&reader{from: x.f.horizon - 1}).next(x.im, x.f); !resp.GetSnapshot() {
		t.Errorf("told %v", resp)
	}
}

// TestWatchTooSlow: a client that reads less than is forgotten begins anew,
// whether it follows or is still told everything.
func TestWatchTooSlow(t *testing.T) {
	x := newFeeding(t)
	x.f.most = 10
	parts := make([]cluster.Partition, 1500)
	for i := range parts {
		parts[i] = hostedBy(1, 2, 3)
	}
	x.topic("a", parts...)
	follows, walks := &reader{}, &reader{}
	one, two := newMirror(t), newMirror(t)
	x.catchUp(follows, one)
	for range 2 {
		two.learn(walks.next(x.im, x.f))
	}
	for i := range int32(30) {
		x.change("a", i, elect(2))
	}
	if n := x.f.changes.size; n > 10 {
		t.Errorf("%d changes are remembered", n)
	}
	x.catchUp(follows, one)
	x.catchUp(walks, two)
	for _, m := range []*mirror{one, two} {
		if d := m.differs(x.im, everyTopic); d != "" || m.snapshots != 2 {
			t.Errorf("%s; %d snapshots", d, m.snapshots)
		}
	}
	if resp := (&reader{from: x.f.horizon}).next(x.im, x.f); resp.GetSnapshot() {
		t.Error("a snapshot for who knows what was forgotten")
	}
}

func TestWatchSomeTopics(t *testing.T) {
	x := newFeeding(t)
	x.topic("a", hostedBy(1, 2, 3))
	x.topic("b", hostedBy(1, 2, 3))
	m, r := newMirror(t), &reader{topics: map[string]bool{"b": true, "later": true}}
	x.catchUp(r, m)
	wanted := func(name string) bool { return name != "a" }
	before := m.responses
	x.change("a", 0, elect(2))
	x.catchUp(r, m)
	if m.responses != before {
		t.Error("told of another topic")
	}
	x.topic("later", hostedBy(2, 1, 3))
	x.write(store.Delete(keys.Topic("b")))
	x.catchUp(r, m)
	if d := m.differs(x.im, wanted); d != "" || m.rev != x.im.Rev {
		t.Error(d)
	}
	for range maxStates {
		x.change("a", 0, elect(2))
		x.catchUp(r, m)
	}
	if m.rev <= x.im.Rev-maxStates {
		t.Errorf("at revision %d of %d: it would have to be told everything again", m.rev, x.im.Rev)
	}
}

// TestWatchHistory: whatever happens, and however slow clients are, each of
// them comes to know what is. Some come back with their revision.
func TestWatchHistory(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		x := newFeeding(t)
		x.f.most = 20 + rng.IntN(100)
		var readers []*reader
		var mirrors []*mirror
		for range 4 {
			readers, mirrors = append(readers, &reader{}), append(mirrors, newMirror(t))
		}
		made, n := []string{}, 0
		live := map[cluster.BrokerID]bool{}
		for range 200 {
			switch k := rng.IntN(10); {
			case k == 0 || len(made) == 0:
				n++
				name := fmt.Sprint("t", n)
				x.topic(name, hostedBy(1, 2, 3), hostedBy(2, 1, 3), hostedBy(3, 1, 2))
				made = append(made, name)
			case k == 1:
				i := rng.IntN(len(made))
				x.write(store.Delete(keys.Topic(made[i])))
				made = slices.Delete(made, i, i+1)
			case k == 2:
				if id := cluster.BrokerID(rng.IntN(50)); !live[id] {
					x.broker(id)
					live[id] = true
				}
			case k == 3: // unreadable for a while
				name, index := made[rng.IntN(len(made))], rng.Int32N(3)
				key, p := keys.Block(cluster.BlockID{Topic: x.topics[name], Index: index}), hostedBy(1, 2, 3)
				x.write(store.Put(key, []byte("garbage")))
				if rng.IntN(2) == 0 {
					readers[0].next(x.im, x.f)
					readers[0] = &reader{} // its answer was lost
				}
				p.LeaderEpoch = 1000
				x.write(x.block(x.topics[name], index, &p))
			default:
				x.change(made[rng.IntN(len(made))], rng.Int32N(3), elect(cluster.BrokerID(1+rng.IntN(3))))
			}
			i := rng.IntN(len(readers))
			switch rng.IntN(8) {
			case 0: // reconnects
				readers[i] = &reader{from: mirrors[i].rev}
			case 1, 2, 3:
				if resp := readers[i].next(x.im, x.f); resp != nil {
					mirrors[i].learn(resp)
				}
			}
		}
		for i := range readers {
			x.catchUp(readers[i], mirrors[i])
			if d := mirrors[i].differs(x.im, everyTopic); d != "" || mirrors[i].rev > x.im.Rev {
				t.Fatalf("seed %d, client %d: %s", seed, i, d)
			}
		}
	}
}
