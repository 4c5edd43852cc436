package controller

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/memstore"
)

func remove(names ...string) rpc.DeleteTopics {
	r := &pb.DeleteTopicsRequest{Reason: "test"}
	for _, n := range names {
		r.Topics = append(r.Topics, &pb.TopicToDelete{Name: n})
	}
	return rpc.DeleteTopics{DeleteTopicsRequest: r}
}

// deleteResults are the errors of an answer, "ok" for none.
func (b *bench) deleteResults(id int64) string {
	b.t.Helper()
	a := b.answerOf(id)
	if a.Err != nil {
		return status.Code(a.Err).String()
	}
	out := ""
	for _, r := range a.Response.(*pb.DeleteTopicsResponse).GetResults() {
		if r.GetError() == "" {
			out += "ok "
		} else {
			out += r.GetError() + " "
		}
	}
	return out
}

// Deletion marks first, then takes everything away at once and leaves a
// tombstone; requests for one topic share it.
func TestDeleteTopics(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 40, 4)
	b.created("b", 1, 1)
	id := b.l.im.Topics["a"].ID
	ids := b.ask(remove("a"), remove("a", "none"), remove("b", "b"))
	b.run()
	for i, want := range []string{"ok ", "ok UNKNOWN_TOPIC_OR_PARTITION ", "INVALID_REQUEST INVALID_REQUEST "} {
		if got := b.deleteResults(ids[i]); got != want {
			t.Errorf("request %d: %q, want %q", i, got, want)
		}
	}
	im := b.l.im
	if im.Topics["a"] != nil || len(im.BlocksOf(id)) != 0 || im.Topics["b"] == nil {
		t.Error("not deleted, or too much")
	}
	ts := im.Tombstones[id]
	if ts == nil || len(ts.Record.GetHolders()) != 3 || ts.Record.GetReason() != "test" || ts.LeaderEpoch() != 1 {
		t.Fatalf("tombstone %+v", ts)
	}
	again := b.ask(create("", newTopic("a", 1, 1)))[0]
	b.run()
	if got := b.topicResult(again); got != "ok" || im.Topics["a"].ID == id {
		t.Errorf("created again: %s", got)
	}
}

// A topic that is marked is deleted by whoever is active.
func TestMarkedTopicIsDeleted(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 3, 2)
	r := b.l.im.Topics["a"].Record
	r = &pb.TopicRecord{TopicId: r.GetTopicId(), PartitionsWanted: 3, PartitionsMade: 3, ReplicationFactor: 3, BlockSize: 2, Deleting: true}
	b.hand(store.Put(keys.Topic("a"), cluster.Encode(r)))
	b.run()
	if b.l.im.Topics["a"] != nil || len(b.l.im.Tombstones) != 1 {
		t.Error("not deleted")
	}
}

// Without space nothing is deleted, and the caller hears so.
func TestDeleteWithoutSpace(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 1, 1)
	b.m.NoSpace = true
	id := b.ask(remove("a"))[0]
	b.run()
	if got := b.deleteResults(id); got != codes.ResourceExhausted.String() {
		t.Errorf("answered %s", got)
	}
	b.m.NoSpace = false
	b.pass(2 * storePause)
	if b.l.im.Topics["a"] == nil {
		t.Error("deleted after it was refused")
	}
}

// The active makes the partitions that a record wants, in slices whose count
// comes after their blocks.
func TestWantedPartitionsAreMade(t *testing.T) {
	b := newBench(t, 3)
	const wanted = 3 * maxCompleted
	id := cluster.TopicID{1}
	b.hand(store.Put(keys.Topic("a"), cluster.Encode(&pb.TopicRecord{
		TopicId: id[:], PartitionsWanted: wanted, ReplicationFactor: 3, BlockSize: 16,
	})))
	b.run()
	topic := b.l.im.Topics["a"]
	if topic.Made() != wanted || !b.l.Idle() {
		t.Fatalf("made %d", topic.Made())
	}
	b.l.im.Partitions(topic, func(id cluster.PartitionID, p *cluster.Partition) {
		if p == nil {
			t.Errorf("partition %d is missing", id.Index)
		}
	})
	b.hand(store.Put(keys.Topic("b"), cluster.Encode(&pb.TopicRecord{
		TopicId: make([]byte, 16), PartitionsWanted: 1, ReplicationFactor: 4, BlockSize: 16,
	})))
	b.run()
	if p := b.l.View().Problems(); len(p) != 1 || p[0] != "topic b has 0 of 1 partitions: replication factor 4 is more than the 3 brokers" {
		t.Errorf("problems %q", p)
	}
}

// Topics that cannot be completed hold up no other, however many they are.
func TestStuckTopicsHoldUpNone(t *testing.T) {
	b := newBench(t, 3)
	write := func(n int, rf int32) {
		id := cluster.TopicID{byte(n >> 8), byte(n)}
		b.hand(store.Put(keys.Topic(fmt.Sprint("t", n)), cluster.Encode(&pb.TopicRecord{
			TopicId: id[:], PartitionsWanted: 1, ReplicationFactor: rf, BlockSize: 16,
		})))
	}
	for n := range maxChores + 1 {
		write(n, 4)
	}
	write(1000, 3)
	b.run()
	if topic := b.l.im.Topics["t1000"]; topic.Made() != 1 || b.l.machine.TopicsDue() != maxChores+1 || len(b.l.aside) != maxChores+1 {
		t.Errorf("made %d, %d due, %d set aside", topic.Made(), b.l.machine.TopicsDue(), len(b.l.aside))
	}
	if got := b.l.problems(); len(got) != maxNamed+1 || got[maxNamed] != fmt.Sprintf("and %d more such topics", maxChores+1-maxNamed) {
		t.Errorf("problems %q", got)
	}
	b.broker(4)
	b.pass(asideFor)
	if n := b.l.machine.TopicsDue(); n != 0 {
		t.Errorf("with a fourth broker %d are due", n)
	}
}

// Blocks that a term before has made are counted, though there is nothing else
// to write.
func TestMadePartitionsAreCounted(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 4, 2)
	r := proto.Clone(b.l.im.Topics["a"].Record).(*pb.TopicRecord)
	r.PartitionsMade = 2
	b.hand(store.Put(keys.Topic("a"), cluster.Encode(r)))
	b.run()
	if topic := b.l.im.Topics["a"]; topic.Made() != 4 || !b.l.Idle() {
		t.Errorf("made %d", topic.Made())
	}
}

// A hidden block goes with the second list that the image agrees with, not with
// the first: what would count it may be on its way. While a topic record is
// unreadable, none goes.
func TestSweep(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 2, 2)
	key := keys.Block(cluster.BlockID{Topic: cluster.TopicID{9}})
	b.hand(store.Put(key, b.l.im.Block(cluster.BlockID{Topic: b.l.im.Topics["a"].ID}).Encode()))
	list := func() bool {
		b.run()
		b.step(Listed{b.m.List(keys.Prefix(), true)})
		b.run()
		return b.l.im.ModRev(key) == 0
	}
	if list() {
		t.Fatal("swept at the first list")
	}
	b.hand(store.Put(keys.Topic("x"), []byte{0xff}))
	if list() {
		t.Fatal("swept while a topic record is unreadable")
	}
	b.hand(store.Delete(keys.Topic("x")))
	if !list() || b.l.Stats.Hidden != 1 {
		t.Error("not swept")
	}
}

func TestLimitsAndDryRuns(t *testing.T) {
	b := newBench(t, 3)
	b.l.cfg.Limits = Limits{PerTopic: 10, PerRequest: 15, PerCluster: 20}
	dry := create("", newTopic("a", 10, 1))
	dry.ValidateOnly = true
	for i, tc := range []struct {
		r    rpc.CreateTopics
		want string
	}{
		{dry, "ok"},
		{create("", newTopic("a", 11, 1)), "POLICY_VIOLATION"},
		{create("", newTopic("a", 8, 1), newTopic("b", 8, 1)), "POLICY_VIOLATION"},
		{create("", newTopic("a", 10, 1)), "ok"},
		{create("", newTopic("b", 9, 1)), "ok"},
		{create("", newTopic("c", 2, 1)), "POLICY_VIOLATION"},
		{create("", newTopic("c", 1, 1)), "ok"},
	} {
		id := b.ask(tc.r)[0]
		b.run()
		if got := b.answerOf(id).Response.(*pb.CreateTopicsResponse).GetResults()[0].GetError(); got != tc.want && (got != "" || tc.want != "ok") {
			t.Errorf("request %d: %q, want %s", i, got, tc.want)
		}
	}
	if n := len(b.l.im.Topics); n != 3 {
		t.Errorf("%d topics", n)
	}
	if err := (Limits{PerTopic: -1}).Validate(); err == nil {
		t.Error("a negative limit is valid")
	}
	cfg := Config{Store: memstore.New(), Cluster: "c", ID: "a", Endpoint: "h:1"}
	for _, tc := range []struct{ given, want *Limits }{{nil, &DefaultLimits}, {new(Limits{}), new(Limits{})}} {
		cfg.Limits = tc.given
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.loop.cfg.Limits; got != *tc.want {
			t.Errorf("limits %v became %v", tc.given, got)
		}
	}
}

// A topic whose mark is taken back while its deletion is on its way stays.
func TestDeletionComparesTheRecord(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 1, 1)
	record := b.l.im.Topics["a"].Record
	b.ask(remove("a"))
	b.do(commits) // the mark
	b.see()
	b.hand(store.Put(keys.Topic("a"), cluster.Encode(record)))
	b.do(commits)
	if read, err := b.m.Get(keys.Topic("a")); err != nil || len(read.KVs) != 1 {
		t.Errorf("found %v, %v", read, err)
	}
}

// A broker that is added to a tombstone by hand, while another's confirmation is
// on its way, stays there.
func TestTombstoneIsCompared(t *testing.T) {
	b := newBench(t, 0)
	b.listening(1)
	b.run()
	id := b.ask(create("", &pb.NewTopic{Name: "a", Partitions: 1, ReplicationFactor: 1}))[0]
	b.run()
	if got := b.topicResult(id); got != "ok" {
		t.Fatal(got)
	}
	b.ask(remove("a"))
	b.run()
	tombstones := slices.Collect(maps.Values(b.l.im.Tombstones))
	if len(tombstones) != 1 {
		t.Fatalf("%d tombstones", len(tombstones))
	}
	ts := tombstones[0]
	b.step(Pushed{rpc.Received{Stream: b.streams[1], Response: &pb.CommandsResponse{Response: &pb.CommandsResponse_Results{
		Results: &pb.PartitionResults{Outcomes: []*pb.PartitionOutcome{{
			TopicId: ts.ID[:], LeaderEpoch: int32(ts.LeaderEpoch()), Result: pb.PartitionResult_PARTITION_RESULT_APPLIED, Stop: true,
		}}},
	}}}})
	record := proto.Clone(ts.Record).(*pb.TombstoneRecord)
	record.Holders = append(record.Holders, &pb.TombstoneHolder{BrokerId: 2})
	b.hand(store.Put(keys.Tombstone(ts.ID), cluster.Encode(record)))
	b.do(commits)
	b.run()
	if left := b.l.im.Tombstones[ts.ID]; left == nil || left.Holds(1) || !left.Holds(2) {
		t.Errorf("left %+v", left)
	}
}

// A hidden block stays if the record that would count it comes while its
// deletion is on its way.
// A list that shows what the watch has missed vouches for nothing: that may be
// the record which counts the block.
func TestSweepNeedsAnImageThatAgrees(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 2, 2)
	id := cluster.TopicID{9}
	b.hand(store.Put(keys.Block(cluster.BlockID{Topic: id}), b.l.im.Block(cluster.BlockID{Topic: b.l.im.Topics["a"].ID}).Encode()))
	b.run()
	b.step(Listed{b.m.List(keys.Prefix(), true)})
	b.run()
	record := proto.Clone(b.l.im.Topics["a"].Record).(*pb.TopicRecord)
	record.TopicId = id[:]
	b.hand(store.Put(keys.Topic("b"), cluster.Encode(record)))
	b.miss()
	b.step(Listed{b.m.List(keys.Prefix(), true)})
	b.run()
	if topic := b.l.im.Topics["b"]; topic == nil || b.l.im.Health(topic).Unknown != 0 || b.l.Stats.Hidden != 0 {
		t.Errorf("topic %v, %d blocks were swept", topic, b.l.Stats.Hidden)
	}
}

func TestSweepComparesTheRecord(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 2, 2)
	topic := b.l.im.Topics["a"]
	key := keys.Block(cluster.BlockID{Topic: topic.ID, Index: 1})
	b.hand(store.Put(key, b.l.im.Block(cluster.BlockID{Topic: topic.ID}).Encode()))
	b.held = commits
	for range 2 {
		b.run()
		b.step(Listed{b.m.List(keys.Prefix(), true)})
	}
	record := proto.Clone(topic.Record).(*pb.TopicRecord)
	record.PartitionsWanted = 4
	b.hand(store.Put(keys.Topic("a"), cluster.Encode(record)))
	b.do(commits)
	if read, err := b.m.Get(key); err != nil || len(read.KVs) != 1 {
		t.Errorf("found %v, %v", read, err)
	}
}
