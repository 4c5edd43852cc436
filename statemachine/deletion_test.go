package statemachine

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// marked stores the mark of a topic that is to be deleted.
func (w *world) marked(t *cluster.Topic) {
	w.show(w.put(w.im.Keys.Topic(t.Name), cluster.Encode(MarkDeleting(t, "asked for"))))
}

// bury deletes a topic that is marked, as the active does in one transaction.
func (w *world) bury(t *cluster.Topic) {
	r := Bury(w.im, w.term, t)
	var changes []store.Change
	if r != nil {
		changes = append(changes, w.put(w.im.Keys.Tombstone(t.ID), cluster.Encode(r)))
	}
	changes = append(changes, w.del(w.im.Keys.Topic(t.Name)))
	for _, n := range w.im.BlocksOf(t.ID) {
		changes = append(changes, w.del(w.im.Keys.Block(cluster.BlockID{Topic: t.ID, Index: n})))
	}
	w.show(changes...)
}

// chores does what the active does for topics without being asked, and says
// what that was.
func (w *world) chores() string {
	var out strings.Builder
	for _, t := range slices.Collect(w.m.Topics()) {
		if t.Deleting() {
			w.bury(t)
			fmt.Fprintf(&out, "%s is deleted\n", t.Name)
			continue
		}
		record, writes, rej := Complete(w.im, w.term, t, 1000, 0)
		if rej != nil {
			out.WriteString(rej.line())
			continue
		}
		w.made(t.Name, record, writes)
		fmt.Fprintf(&out, "%s has %d partitions\n", t.Name, record.GetPartitionsMade())
	}
	return out.String()
}

// confirm takes brokers out of a tombstone: they have deleted what they held.
func (w *world) confirm(id cluster.TopicID, brokers ...cluster.BrokerID) {
	ts, key := w.im.Tombstones[id], w.im.Keys.Tombstone(id)
	if ts == nil {
		w.t.Fatalf("no tombstone of %s", id)
	}
	if r := ts.Without(func(b cluster.BrokerID) bool { return slices.Contains(brokers, b) }); r != nil {
		w.show(w.put(key, cluster.Encode(r)))
	} else {
		w.show(w.del(key))
	}
}

// holders are the brokers that a tombstone names, in order.
func holders(ts *cluster.Tombstone) []cluster.BrokerID {
	var out []cluster.BrokerID
	if ts != nil {
		for _, h := range ts.Record.GetHolders() {
			out = append(out, cluster.BrokerID(h.GetBrokerId()))
		}
	}
	return out
}

// playDeletion plays the commands that are about deletion.
func (s *scenario) playDeletion(t *testing.T, d *datadriven.TestData) string {
	name := ""
	if len(d.CmdArgs) > 0 {
		name, _, _ = strings.Cut(d.CmdArgs[0].Key, "/")
	}
	switch d.Cmd {
	case "delete-topic":
		asked := &pb.TopicToDelete{Name: strings.TrimPrefix(name, "-")}
		if arg, ok := d.Arg("id"); ok {
			id := topicID(arg.FirstVal(t))
			asked.TopicId = id[:]
		}
		topic, rej := FindTopic(s.im, asked)
		if rej != nil {
			return rej.line()
		}
		s.marked(topic)
	case "chores":
		if out := s.chores(); out != "" {
			return out
		}
		return "nothing\n"
	case "confirm":
		s.confirm(topicID(name), s.brokers(d)...)
	case "want":
		var n int32
		d.ScanArgs(t, "partitions", &n)
		s.want(name, n)
	case "spoil":
		key := s.im.Keys.Topic(name)
		if name != d.CmdArgs[0].Key {
			id := s.partitionID(t, d)
			key = s.im.Keys.Block(cluster.BlockOf(id, s.im.TopicByID(id.Topic).BlockSize()))
		}
		s.show(s.put(key, []byte("garbage")))
	case "tombstones":
	default:
		d.Fatalf(t, "unknown command")
	}
	return s.tombstones()
}

func (s *scenario) tombstones() string {
	var out strings.Builder
	for _, ts := range slices.SortedFunc(maps.Values(s.im.Tombstones), func(a, b *cluster.Tombstone) int { return bytes.Compare(a.ID[:], b.ID[:]) }) {
		fmt.Fprintf(&out, "tombstone of %s, below leader epoch %d:", ts.Record.GetTopic(), ts.LeaderEpoch())
		for _, b := range holders(ts) {
			fmt.Fprintf(&out, " broker %d %v", b, ts.Partitions(b))
		}
		out.WriteString("\n")
	}
	for _, topic := range s.im.SortedTopics() {
		if topic.Deleting() {
			fmt.Fprintf(&out, "topic %s is marked\n", topic.Name)
		}
	}
	if out.Len() == 0 {
		return "no tombstones\n"
	}
	return out.String()
}

// deletionInput is that of the vectors of kind topicDeletion.
type deletionInput struct {
	Brokers    []cluster.BrokerID
	Topics     []string
	Topic      string
	Partitions int
	RF         int
	ToDelete   []string
	Steps      []string
}

// playDeletionVector follows the steps of a vector, and says after each who has
// yet to confirm; of Kafka's states it takes those of replicas that are not
// deleted yet.
func playDeletionVector(t *testing.T, v vector) (got, want string) {
	in := read[deletionInput](t, v.Input)
	w := newWorld(t)
	if len(in.Brokers) == 0 {
		in.Brokers = ids(1, 2, 3)
	}
	w.up(in.Brokers...)
	topics := in.Topics
	if in.Topic != "" {
		topics = []string{in.Topic}
	}
	for _, name := range topics {
		var parts []cluster.Partition
		for range max(in.Partitions, 1) {
			parts = append(parts, newPartition(in.Brokers, ViewOf(w.im)))
		}
		w.topic(name, parts...)
	}
	if len(in.Steps) == 0 { // a new active takes in what is marked
		for _, name := range in.ToDelete {
			w.marked(w.im.Topics[name])
		}
		w.m.Reset()
		for topic := range w.m.Topics() {
			got += topic.Name + " "
		}
		expected := read[struct{ TopicsToBeDeleted []string }](t, v.Expected).TopicsToBeDeleted
		slices.Sort(expected)
		return strings.TrimSpace(got), strings.Join(expected, " ")
	}
	var states []string
	for _, step := range in.Steps {
		w.deletionStep(t, topics, step)
		states = append(states, w.waitingFor(topics))
	}
	return strings.Join(states, "; "), strings.Join(kafkaWaitsFor(t, v), "; ")
}

// deletionStep does one step of a vector.
func (w *world) deletionStep(t *testing.T, topics []string, step string) {
	t.Helper()
	everywhere := func(fn func(cluster.TopicID)) {
		for _, name := range topics {
			fn(topicID(name))
		}
	}
	switch {
	case strings.HasPrefix(step, "enqueue"):
		for _, name := range topics {
			w.marked(w.im.Topics[name])
		}
		w.chores()
	case strings.HasPrefix(step, "broker 2 dead"), strings.HasPrefix(step, "broker 2 fails"):
		w.down(2)
	case strings.HasPrefix(step, "broker 2 back"):
		w.up(2)
	case step == "all replicas report success":
		everywhere(func(id cluster.TopicID) { w.confirm(id, 1, 2, 3) })
	case step == "online replicas succeed":
		everywhere(func(id cluster.TopicID) { w.confirm(id, 1, 3) })
	case step == "its replicas succeed":
		everywhere(func(id cluster.TopicID) { w.confirm(id, 2) })
	default:
		t.Fatalf("unknown step %q", step)
	}
}

// waitingFor are the brokers whose replicas are not deleted yet.
func (w *world) waitingFor(topics []string) string {
	var left []cluster.BrokerID
	for _, name := range topics {
		if w.im.Topics[name] != nil {
			return "nobody was told"
		}
		left = append(left, holders(w.im.Tombstones[topicID(name)])...)
	}
	slices.Sort(left)
	return fmt.Sprint(slices.Compact(left))
}

// kafkaWaitsFor is the same of the states that Kafka expects: broker 2 is the
// one that goes away.
func kafkaWaitsFor(t *testing.T, v vector) []string {
	type states struct {
		All, Online, Offline, Replicas string
		Queued                         []string
	}
	in := read[struct {
		Steps        []*states
		AfterEnqueue *states
	}](t, v.Expected)
	all := in.Steps
	if in.AfterEnqueue != nil {
		all = []*states{in.AfterEnqueue, {}}
	}
	var out []string
	for _, s := range all {
		if s == nil {
			out = append(out, "nobody was told")
			continue
		}
		left := []cluster.BrokerID{}
		open := func(state string) bool { return state != "" && state != "ReplicaDeletionSuccessful" }
		if open(s.All) || open(s.Replicas) || open(s.Online) {
			left = append(left, 1, 3)
		}
		if open(s.All) || open(s.Replicas) || open(s.Offline) {
			left = append(left, 2)
		}
		slices.Sort(left)
		out = append(out, fmt.Sprint(left))
	}
	return out
}

// deletionStories are the vectors of kind topicDeletion.scenario: what is done,
// and, in the words of left, what Kafka's outcome comes to here.
var deletionStories = map[string]struct {
	play    func(*world) string
	outcome string
	want    string
}{
	"testDeleteTopicWithAllAliveReplicas": {func(w *world) string {
		w.marked(w.im.Topics["t"])
		return w.chores() + w.left(1, 2, 3)
	}, "topic key, config key and delete marker gone; logs gone", "t is deleted\n[0] gone"},
	"testResumeDeleteTopicWithRecoveredFollower": {func(w *world) string {
		w.down(3)
		w.marked(w.im.Topics["t"])
		out := w.chores() + w.left(1, 2)
		w.up(3)
		return out + ", " + w.left(3)
	}, "live replicas delete their logs, marker stays until the follower is back, then deletion completes",
		"t is deleted\n[0] on [3], [0] gone"},
	"testIncreasePartitionCountDuringDeleteTopic": {func(w *world) string {
		w.down(3)
		w.marked(w.im.Topics["t"])
		w.want("t", 3)
		w.m.Reset()
		out := w.chores() + w.left(1, 2)
		w.up(3)
		return out + ", " + w.left(3)
	}, "new partitions are not created; deletion completes (partition-count write undone)",
		"t is deleted\n[0] on [3], [0] gone"},
	"testDeleteTopicDuringAddPartition": {func(w *world) string {
		w.up(4)
		w.down(3)
		w.want("t", 3)
		out := w.chores()
		w.marked(w.im.Topics["t"])
		w.up(3)
		return out + w.chores() + w.left(1, 2, 3, 4)
	}, "everything deleted incl. new partitions", "t has 3 partitions\nt is deleted\n[0 1 2] gone"},
	"testAddPartitionDuringDeleteTopic": {func(w *world) string {
		w.marked(w.im.Topics["t"])
		w.want("t", 3)
		return w.chores() + w.left(1, 2, 3)
	}, "topic deleted, no log for the new partitions", "t is deleted\n[0] gone"},
	"testRecreateTopicAfterDeletion": {func(w *world) string {
		w.marked(w.im.Topics["t"])
		out := w.chores() + w.left(1, 2, 3)
		record, writes, rej := createTopic(w.im, w.term, &pb.NewTopic{Name: "t", Partitions: 1, ReplicationFactor: 3}, topicID("u"), "again", 1)
		if rej != nil {
			return rej.line()
		}
		w.made("t", record, writes)
		return fmt.Sprintf("%s, again on %d brokers", out, len(w.partition(topicID("u")).Replicas))
	}, "new logs created on all replicas", "t is deleted\n[0] gone, again on 3 brokers"},
}

// playDeletionStory plays one of them on a topic of one partition on three
// brokers.
func playDeletionStory(t *testing.T, v vector) (got, want string) {
	story, ok := deletionStories[v.Name]
	if outcome := read[struct{ Outcome string }](t, v.Expected).Outcome; !ok || outcome != story.outcome {
		t.Fatalf("no story of the outcome %q", outcome)
	}
	w := newWorld(t)
	w.up(1, 2, 3)
	record, writes, rej := createTopic(w.im, w.term, &pb.NewTopic{Name: "t", Partitions: 1, ReplicationFactor: 3}, topicID("t"), "first", 1)
	if rej != nil {
		t.Fatal(rej.Message)
	}
	w.made("t", record, writes)
	return story.play(w), story.want
}

// want has a topic's record want partitions, by hand.
func (w *world) want(name string, partitions int32) {
	r := proto.Clone(w.im.Topics[name].Record).(*pb.TopicRecord)
	r.PartitionsWanted = partitions
	w.show(w.put(w.im.Keys.Topic(name), cluster.Encode(r)))
}

// left says which partitions of the deleted topic t were to be stopped, and what
// is left of it when brokers have confirmed.
func (w *world) left(confirm ...cluster.BrokerID) string {
	id := topicID("t")
	ts := w.im.Tombstones[id]
	if ts == nil || w.im.TopicByID(id) != nil || len(w.im.BlocksOf(id)) > 0 {
		return "not deleted"
	}
	w.confirm(id, confirm...)
	out := fmt.Sprint(ts.Partitions(confirm[0]))
	if left := holders(w.im.Tombstones[id]); len(left) > 0 {
		return fmt.Sprintf("%s on %v", out, left)
	}
	return out + " gone"
}
