package rpc

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// part is a partition of topic a.
func (h *hub) part(index int32) cluster.PartitionID {
	return cluster.PartitionID{Topic: h.topics["a"], Index: index}
}

// fails answers a LeaderAndIsr with a storage error.
func (h *hub) fails(id cluster.BrokerID, index, le int32) {
	h.t.Helper()
	h.result(id, "a", index, le, pb.PartitionResult_PARTITION_RESULT_STORAGE_ERROR)
}

// wantOffline checks which partitions of topic a, of the first ten, are offline
// on broker 1, and that a change of that was told.
func (h *hub) wantOffline(changed bool, want ...int32) {
	h.t.Helper()
	var got []int32
	for i := range int32(10) {
		if b := h.im.Brokers[1]; b != nil && h.p.Offline(b, h.part(i)) {
			got = append(got, i)
		}
	}
	if !slices.Equal(got, want) || h.p.OfflineReplicas(1) != len(want) {
		h.t.Errorf("offline %v, %d of them, want %v", got, h.p.OfflineReplicas(1), want)
	}
	if told := len(h.p.OfflineChanged()) > 0; told != changed {
		h.t.Errorf("a change was told: %v", told)
	}
}

func wire(h *hub, le cluster.LeaderEpoch, indices ...int32) []*pb.TopicReplicas {
	var out []fencing.HeldReplica
	for _, i := range indices {
		out = append(out, fencing.HeldReplica{Topic: "a", Partition: h.part(i), LeaderEpoch: le})
	}
	return fencing.WireReplicas(out)
}

func (h *hub) reports(r *pb.ReplicaReport) {
	h.t.Helper()
	h.says(1, &pb.CommandsResponse{Response: &pb.CommandsResponse_Report{Report: r}})
}

// A storage error takes a replica offline. It is tried again, but not often,
// and what was applied brings it back; nothing else waits for it.
func TestReplicaGoesOffline(t *testing.T) {
	h := connected(t, hostedBy(1, 2), hostedBy(1, 2))
	h.change("a", 0, elect(1))
	h.step()
	h.hears(1, "lai a/0@1", "meta a/0@1")
	h.fails(1, 0, 1)
	h.wantOffline(true, 0)
	h.step()
	if got := h.p.resumePoint(h.im, h.p.targets[1]); got != h.im.Rev || h.p.Pending() != 0 {
		t.Errorf("resume point %d of %d, %d pending", got, h.im.Rev, h.p.Pending())
	}
	h.applies(1) // what was sent before: newer than the failure or not, it is the same leader epoch
	h.wantOffline(true)

	h.change("a", 0, elect(2))
	h.step()
	h.fails(1, 0, 2)
	h.wantOffline(true, 0)
	h.hears(1, "lai a/0@2", "meta a/0@2")
	h.unacked[1] = nil
	tries := 0
	for range 24 { // 2 minutes
		h.after(PingInterval)
		for _, r := range h.sent[1] {
			if r.GetCommand().GetLeaderAndIsr() != nil {
				tries++
				h.fails(1, 0, 2)
			}
		}
		h.sent[1], h.unacked[1] = nil, nil
		h.p.targets[1].unacked = 0
		h.pong(1)
	}
	if tries < 3 || tries > 5 {
		t.Errorf("tried %d times in 2 minutes", tries)
	}
	h.wantOffline(false, 0)
	h.result(1, "a", 0, 1, pb.PartitionResult_PARTITION_RESULT_ALREADY) // of an older one
	h.result(1, "a", 0, 2, pb.PartitionResult_PARTITION_RESULT_FAILED)
	h.result(1, "a", 0, 2, pb.PartitionResult_PARTITION_RESULT_INCONSISTENT_TOPIC_ID)
	h.wantOffline(false, 0)
	h.result(1, "a", 0, 2, pb.PartitionResult_PARTITION_RESULT_ALREADY)
	h.wantOffline(true)
}

// The next hello of an incarnation decides, and the incarnation's end.
func TestOfflineOutlivesStreams(t *testing.T) {
	h := connected(t, hostedBy(1), hostedBy(1), hostedBy(1))
	h.reports(&pb.ReplicaReport{Offline: wire(h, 0, 0, 1)})
	h.wantOffline(true, 0, 1)
	h.closes(1, nil)
	h.wantOffline(false, 0, 1)
	h.after(MinRetry)
	h.greets(1, &pb.Hello{Offline: wire(h, 0, 1, 2)})
	h.wantOffline(true, 1, 2)
	h.broker(1, func(r *pb.BrokerRecord) { r.ControlAddress = "elsewhere:1" })
	h.step()
	h.wantOffline(false, 1, 2)
	h.gone(1)
	h.broker(1)
	h.wantOffline2(t)
	h.step()
	h.wantOffline(true)
}

// wantOffline2 checks that a new incarnation has nothing offline, even before
// the pusher has followed it.
func (h *hub) wantOffline2(t *testing.T) {
	t.Helper()
	if h.p.Offline(h.im.Brokers[1], h.part(1)) {
		t.Error("a new incarnation has an offline replica")
	}
}

// A new term knows nothing but what the hellos say.
func TestOfflineEndsWithTheTerm(t *testing.T) {
	h := connected(t, hostedBy(1), hostedBy(1))
	h.reports(&pb.ReplicaReport{Offline: wire(h, 0, 0)})
	h.p.OfflineChanged()
	h.note(h.p.End())
	h.wantOffline(true)
}

// Storage that is back is tried at once, and offline until that went well. An
// offline replica that a hello names is tried soon, since a stream that goes on
// would not say it again.
func TestRestoredReplica(t *testing.T) {
	h := connected(t, hostedBy(1), hostedBy(1))
	h.reports(&pb.ReplicaReport{Offline: wire(h, 0, 0)})
	h.step()
	h.hears(1)
	h.reports(&pb.ReplicaReport{Restored: wire(h, 0, 0, 1)})
	h.step()
	h.hears(1, "lai a/0@0! a/1@0!")
	h.wantOffline(true, 0, 1)
	h.result(1, "a", 1, 0, pb.PartitionResult_PARTITION_RESULT_APPLIED)
	h.wantOffline(true, 0)
	h.reports(&pb.ReplicaReport{Restored: wire(h, 0, 0)}) // while it is being tried
	h.fails(1, 0, 0)
	h.step()
	h.hears(1, "lai a/0@0!")
	h.fails(1, 0, 0)
	h.step()
	h.hears(1)
	h.reports(&pb.ReplicaReport{Restored: wire(h, 0, 0)})
	h.step()
	h.hears(1, "lai a/0@0!")
	h.fails(1, 0, 0)
	h.step()
	h.hears(1)
	h.reports(&pb.ReplicaReport{Restored: wire(h, 0, 0)})
	h.step()
	h.wantOffline(false, 0)
	h.applies(1)
	h.wantOffline(true)

	h, w := resumable(t)
	h.closes(1, nil)
	h.after(MinRetry)
	h.greets(1, &pb.Hello{Resume: w, Offline: wire(h, 0, 1)})
	h.after(2 * MinRetry)
	if h.p.Stats.Resumed != 1 || !slices.ContainsFunc(h.sent[1], func(r *pb.CommandsRequest) bool { return strings.HasPrefix(describe(r), "lai a/1@0") }) {
		t.Errorf("was sent %v", h.sent[1])
	}
	h.wantCovered("a") // by the first stream
}

// An offline replica that is being tried holds no resume point back, however
// long that takes: the next hello names it. Once it is online and fails
// otherwise, it does.
func TestResumePointOfAnOfflineReplica(t *testing.T) {
	h, _ := resumable(t)
	h.change("a", 0, elect(1))
	h.step()
	changed := h.im.Rev
	h.change("a", 1, elect(1))
	h.step()
	h.admits(1)
	h.fails(1, 0, 1)
	h.applies(1)
	h.reports(&pb.ReplicaReport{Offline: wire(h, 1, 0)})
	h.reports(&pb.ReplicaReport{Restored: wire(h, 1, 0)})
	h.step() // it is tried
	h.after(PingInterval)
	if got := store.Rev(h.lastProgress(1).GetResumePoint()); got != h.im.Rev {
		t.Errorf("resume point %d while an offline replica is tried, want %d", got, h.im.Rev)
	}
	h.p.cameBack(h.p.targets[1], h.part(0))
	h.result(1, "a", 0, 1, pb.PartitionResult_PARTITION_RESULT_FAILED)
	if got := h.p.resumePoint(h.im, h.p.targets[1]); got != changed-1 {
		t.Errorf("resume point %d after a failure, want %d", got, changed-1)
	}
}

// An offline replica of a partition that is not the broker's any more is
// forgotten.
func TestOfflineReplicaIsUnassigned(t *testing.T) {
	h := connected(t, hostedBy(1, 2), hostedBy(1))
	h.reports(&pb.ReplicaReport{Offline: wire(h, 0, 0, 1)})
	h.change("a", 0, func(p *cluster.Partition) { *p = hostedBy(2) })
	h.p.OfflineChanged()
	h.reports(&pb.ReplicaReport{Restored: wire(h, 0, 0)})
	h.step()
	h.wantOffline(true, 1)
}

func TestStraysAreKnown(t *testing.T) {
	h := connected(t, hostedBy(1))
	strays := func(want ...int32) {
		t.Helper()
		var got []int32
		for _, r := range h.p.Strays(1) {
			got = append(got, r.Partition.Index)
		}
		if !slices.Equal(got, want) {
			t.Errorf("strays %v, want %v", got, want)
		}
	}
	h.reports(&pb.ReplicaReport{Strays: wire(h, 3, 5, 4)})
	strays(4, 5)
	h.reports(&pb.ReplicaReport{FormerStrays: wire(h, 3, 4)})
	strays(5)
	h.closes(1, nil)
	strays(5)
	h.after(MinRetry)
	h.greets(1, &pb.Hello{Strays: wire(h, 3, 6)})
	strays(6)
	h.gone(1)
	h.step()
	strays()
	if h.p.Stats.Strays != 2 {
		t.Errorf("counts %d", h.p.Stats.Strays)
	}
}

// covered are the topics that broker 1 was told a sync covers, by name.
func (h *hub) covered() []string {
	var names []string
	for _, fs := range h.synced[1] {
		for _, raw := range fs.GetTopicIds() {
			name := "unknown"
			if t := h.im.TopicByID(cluster.TopicID(raw)); t != nil {
				name = t.Name
			}
			names = append(names, name)
		}
	}
	h.synced[1] = nil
	slices.Sort(names)
	return names
}

func (h *hub) wantCovered(want ...string) {
	h.t.Helper()
	if got := h.covered(); !slices.Equal(got, want) {
		h.t.Errorf("covered %v, want %v", got, want)
	}
}

// A sync from nothing ends with the topics that were read in full. One that goes
// on from an earlier one covers nothing.
func TestSyncCovers(t *testing.T) {
	h := newHub(t)
	h.broker(1)
	h.topic("a", hostedBy(1), hostedBy(2))
	h.topic("missing block", hostedBy(1), hostedBy(1))
	h.topic("unreadable block", hostedBy(1), hostedBy(1))
	h.topic("unreadable record", hostedBy(1))
	h.topic("empty")
	block := func(topic string, i int32) string {
		return keys.Block(cluster.BlockID{Topic: h.topics[topic], Index: i})
	}
	h.write(store.Delete(block("missing block", 0)))
	h.write(store.Put(block("unreadable block", 1), []byte("garbage")))
	h.write(store.Put(keys.Topic("unreadable record"), []byte("garbage")))
	h.begin(1)
	h.step()
	h.opens(1)
	h.step()
	since := h.im.Rev
	if fs := h.synced[1]; len(fs) != 1 || fs[0].GetSinceRevision() != int64(since) {
		t.Fatalf("sync ends with %v", fs)
	}
	if last := h.unacked[1][len(h.unacked[1])-1]; last.GetFullSync() == nil || store.Rev(last.GetStamp().GetRevision()) < since {
		t.Errorf("the last command is %v", last)
	}
	h.wantCovered("a", "empty")
	h.applies(1)
	h.topic("later", hostedBy(1))
	h.after(3 * PingInterval / 2)
	h.wantCovered()

	h.closes(1, nil)
	h.after(MinRetry)
	h.resumes(1, &pb.ResumePoint{ControllerEpoch: 1, ClaimRevision: 1, Revision: int64(h.im.Rev)})
	h.step()
	if h.p.Stats.Resumed != 0 {
		t.Fatal("the point should not be believed")
	}
	h.wantCovered("a", "empty", "later")
}

// While something is unsaid no topic is covered; what changes during a sync is
// said before its end, and the end is by what is there then.
func TestSyncEndsLast(t *testing.T) {
	h := newHub(t)
	h.broker(1)
	many := make([]cluster.Partition, maxStates*window)
	for i := range many {
		many[i] = hostedBy(1)
	}
	h.topic("a", many...)
	h.topic("deleted", hostedBy(1))
	h.topic("broken", hostedBy(1))
	h.begin(1)
	h.step()
	h.opens(1)
	h.step()
	since := h.im.Rev
	h.wantCovered() // the window is full
	h.topic("created", hostedBy(1))
	h.write(store.Delete(keys.Topic("deleted")))
	broken := keys.Block(cluster.BlockID{Topic: h.topics["broken"], Index: 0})
	h.write(store.Put(broken, []byte("garbage")))
	h.applies(1)
	if n := len(h.synced[1]); n != 1 || h.synced[1][0].GetSinceRevision() != int64(since) {
		t.Fatalf("ended %d times", n)
	}
	h.wantCovered("a", "created")
	told := map[string]bool{}
	for _, r := range h.sent[1] {
		for _, topic := range r.GetCommand().GetLeaderAndIsr().GetTopics() {
			told[topic.GetTopic()] = true
		}
	}
	if !told["created"] || !told["a"] {
		t.Errorf("told of %v", told)
	}
}

// An image without topics covers nothing: but metadata, of which etcd holds all
// there is.
func TestSyncOfNothing(t *testing.T) {
	h := connected(t)
	h.after(2 * PingInterval)
	if fs := h.synced[1]; len(fs) != 1 || len(fs[0].GetTopicIds()) != 0 || !fs[0].GetEverything() {
		t.Errorf("it covers %v", fs)
	}
}

// Metadata is forgotten once everything could be read, not before.
func TestGhosts(t *testing.T) {
	h := newHub(t)
	h.broker(1)
	h.topic("a", hostedBy(1))
	h.topic("b", hostedBy(1))
	h.write(store.Put(keys.Topic("b"), []byte("garbage")))
	h.begin(1)
	h.step()
	h.opens(1)
	h.step()
	since := int64(h.im.Rev)
	if fs := h.synced[1]; len(fs) != 1 || fs[0].GetEverything() {
		t.Fatalf("sync ends with %v", fs)
	}
	h.after(MinRetry)
	h.applies(1)
	h.write(store.Delete(keys.Topic("b")))
	h.after(MinRetry)
	if fs := h.synced[1]; len(fs) != 2 || !fs[1].GetEverything() || fs[1].GetSinceRevision() != since {
		t.Errorf("after the repair: %v", fs)
	}
	h.after(PingInterval)
	if n := len(h.synced[1]); n != 2 {
		t.Errorf("said %d times", n)
	}
}

// A replica that is being added may be created, in any term; others may not.
func TestAddingReplicaIsNew(t *testing.T) {
	old := hostedBy(1, 2, 3)
	old.LeaderEpoch, old.PartitionEpoch, old.ISR = 4, 4, []cluster.BrokerID{1, 3}
	old.Adding = []cluster.BrokerID{2, 3}
	for id, want := range map[cluster.BrokerID]string{1: "lai a/0@4", 2: "lai a/0@4!", 3: "lai a/0@4"} {
		h := newHub(t)
		h.broker(id)
		h.topic("a", old)
		h.begin(7)
		h.step()
		h.opens(id)
		h.step()
		h.hears(id, "live "+string(rune('0'+id)), "meta a/0@4", want)
	}
}

// The vectors on what Kafka's controller does with the errors of a LeaderAndIsr.
func TestVectorLogDirResponse(t *testing.T) {
	data, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Name, Kind string
		Input      struct {
			PreviouslyOffline []string
			Response          map[string]string
			Top               string
		}
		Expected json.RawMessage
	}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	index := map[string]int32{"t-0": 0, "t-1": 1, "t-2": 2}
	results := map[string]pb.PartitionResult{
		"NONE": pb.PartitionResult_PARTITION_RESULT_APPLIED, "KAFKA_STORAGE_ERROR": pb.PartitionResult_PARTITION_RESULT_STORAGE_ERROR,
		"STALE_CONTROLLER_EPOCH": pb.PartitionResult_PARTITION_RESULT_ALREADY, // of a partition, in Kafka: the leader epoch is not newer
	}
	ran := 0
	for _, v := range all {
		if v.Kind != "logDir.response" {
			continue
		}
		ran++
		t.Run(v.Name, func(t *testing.T) {
			h := connected(t, hostedBy(1, 2), hostedBy(1, 2), hostedBy(1, 2))
			for _, name := range v.Input.PreviouslyOffline {
				h.reports(&pb.ReplicaReport{Offline: wire(h, 0, index[name])})
			}
			h.p.OfflineChanged()
			if v.Input.Top != "" {
				h.change("a", 0, elect(1))
				h.step()
				h.acks(1, pb.Refusal_REFUSAL_STALE_BROKER_EPOCH, 0)
				h.wantOffline(false)
				return
			}
			var want struct{ OfflineNow, NewlyOffline []string }
			if err := json.Unmarshal(v.Expected, &want); err != nil {
				t.Fatal(err)
			}
			for name, r := range v.Input.Response {
				h.result(1, "a", index[name], 0, results[r])
			}
			var now []int32
			for _, name := range want.OfflineNow {
				now = append(now, index[name])
			}
			h.wantOffline(true, now...)
		})
	}
	if ran == 0 {
		t.Fatal("no vectors")
	}
}
