package rpc

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// connected is a hub in a term, with one broker that has applied everything.
func connected(t *testing.T, parts ...cluster.Partition) *hub {
	t.Helper()
	h := newHub(t)
	h.broker(1)
	if len(parts) > 0 {
		h.topic("a", parts...)
	}
	h.begin(1)
	h.step()
	h.opens(1)
	h.step()
	h.applies(1)
	if n := h.p.Pending(); n != 0 {
		t.Fatalf("%d states pending", n)
	}
	h.done, h.sent[1] = nil, nil
	return h
}

// A broker hears of the live brokers, then of the partitions that it hosts,
// then of all, in commands that are stamped and numbered.
func TestPushOrder(t *testing.T) {
	h := newHub(t)
	h.broker(1)
	h.broker(2)
	h.topic("b", hostedBy(2, 1))
	h.topic("a", hostedBy(1, 2), hostedBy(2), hostedBy(1))
	h.begin(1)
	h.step()
	h.wants("dial 1 at b1:1", "dial 2 at b2:1")
	h.hears(1)
	h.opens(1)
	h.step()
	h.wants()
	commands := h.sent[1]
	h.hears(1, "live 1 2", "meta a/0@0! a/1@0! a/2@0! b/0@0!", "lai a/0@0! a/2@0! b/0@0!")
	for i, r := range commands {
		want := &pb.Stamp{
			ClusterUuid: "u", ControllerId: "c1", ControllerEpoch: 1, BrokerId: 1, BrokerEpoch: int64(h.im.Brokers[1].Epoch), Revision: int64(h.im.Rev),
		}
		if c := r.GetCommand(); !proto.Equal(c.GetStamp(), want) || c.GetSequence() != int64(i+1) {
			t.Errorf("command %d: stamp %v, sequence %d", i, c.GetStamp(), c.GetSequence())
		}
	}
	h.opens(2)
	h.step()
	h.hears(2, "live 1 2", "meta a/0@0! a/1@0! a/2@0! b/0@0!", "lai a/0@0! a/1@0! b/0@0!")
}

// Later a broker hears only of what changed; of a new broker first.
func TestPushChanges(t *testing.T) {
	h := connected(t, hostedBy(1, 2), hostedBy(2))
	h.change("a", 0, elect(2))
	h.change("a", 1, elect(2))
	h.broker(2)
	h.step()
	h.hears(1, "live 1 2", "lai a/0@1", "meta a/0@1 a/1@1")
	h.applies(1)
	h.gone(2)
	h.step()
	h.hears(1, "live 1")
	h.applies(1)
	h.after(time.Second)
	h.hears(1, "ping") // which says that it knows everything now
	h.after(time.Second)
	h.hears(1)
}

// A slow broker hears of the newest state only, and holds nobody up.
func TestPushNewestOnly(t *testing.T) {
	h := connected(t, hostedBy(1, 2), hostedBy(1, 2))
	h.broker(2)
	h.step()
	h.applies(1)
	h.opens(2)
	h.step()
	h.applies(2)
	h.sent[1], h.sent[2] = nil, nil
	for range 50 {
		h.change("a", 0, elect(2))
		h.step()
		if n := len(h.unacked[1]); n > window {
			t.Fatalf("%d commands unanswered", n)
		}
		h.applies(2)
	}
	if n := len(h.sent[1]); n != window {
		t.Errorf("the slow broker was sent %d commands", n)
	}
	h.sent[1] = nil
	if n := len(h.sent[2]); n != 100 {
		t.Errorf("the other broker was sent %d commands", n)
	}
	h.change("a", 1, elect(2))
	h.admits(1)
	h.step()
	h.hears(1)
	h.admits(1)
	h.step()
	h.hears(1, "lai a/0@50 a/1@1", "meta a/0@50 a/1@1")
}

// However many partitions there are and however long their names, commands
// stay below 1 MiB, few are unanswered, and each state is sent once.
func TestPushChunks(t *testing.T) {
	many := make([]cluster.Partition, 12_000)
	for i := range many {
		many[i] = hostedBy(1, 2, 3)
	}
	huge := cluster.Partition{
		Replicas: []cluster.BrokerID{1, math.MaxInt32, math.MaxInt32 - 1}, ISR: []cluster.BrokerID{1, math.MaxInt32, math.MaxInt32 - 1},
		Leader: cluster.NoLeader, LeaderEpoch: math.MaxInt32 - 1, PartitionEpoch: math.MaxInt32 - 1, ControllerEpoch: cluster.MaxEpoch - 1,
		Adding: []cluster.BrokerID{math.MaxInt32}, Removing: []cluster.BrokerID{math.MaxInt32}, Recovery: pb.RecoveryState_RECOVERY_STATE_RECOVERING,
	}
	cases := []struct {
		name string
		make func(h *hub)
		want int
	}{
		{"one topic", func(h *hub) { h.topic("a", many...) }, 12_000},
		{"long names, large numbers", func(h *hub) {
			for i := range 6000 {
				h.topic(fmt.Sprintf("%0249d", i), huge)
			}
		}, 6000},
		{"short names, large numbers", func(h *hub) {
			for i := range 12_000 {
				h.topic(fmt.Sprint(i), huge)
			}
		}, 12_000},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := newHub(t)
			h.broker(1)
			c.make(h)
			h.begin(1)
			h.step()
			h.opens(1)
			h.step()
			told, known, commands := 0, 0, 0
			for len(h.unacked[1]) > 0 {
				if n := len(h.unacked[1]); n > window {
					t.Fatalf("%d commands unanswered", n)
				}
				cmd := h.admits(1)
				commands++
				if n := proto.Size(cmd); n >= 1<<20 {
					t.Errorf("a command of %d bytes", n)
				}
				for _, topic := range cmd.GetLeaderAndIsr().GetTopics() {
					told += len(topic.GetPartitions())
				}
				for _, topic := range cmd.GetUpdateMetadata().GetTopics() {
					known += len(topic.GetPartitions())
				}
				h.step()
			}
			if told != c.want || known != c.want || h.p.Stats.Sent != int64(c.want) {
				t.Errorf("LeaderAndIsr of %d, metadata of %d, counted %d, want %d", told, known, h.p.Stats.Sent, c.want)
			}
			if commands < 5 {
				t.Errorf("only %d commands", commands)
			}
		})
	}
}

// A state that no chunk has room for goes alone. It does not hold up others.
func TestPushHugeState(t *testing.T) {
	h := newHub(t)
	h.broker(1)
	huge := hostedBy(1)
	huge.Removing = make([]cluster.BrokerID, 200_000)
	for i := range huge.Removing {
		huge.Removing[i] = cluster.BrokerID(1000 + i)
	}
	h.topic("a", hostedBy(1), huge, hostedBy(1))
	h.begin(1)
	h.step()
	h.opens(1)
	h.step()
	h.applies(1)
	h.hears(1, "live 1", "meta a/0@0!", "lai a/0@0!", "meta a/1@0!", "lai a/1@0!", "meta a/2@0!", "lai a/2@0!")
}

// A partition that fails is tried again alone, after 100 ms, doubling to 30 s,
// in its newest state; the others go on.
func TestPushRetries(t *testing.T) {
	failed := pb.PartitionResult_PARTITION_RESULT_FAILED
	h := connected(t, hostedBy(1), hostedBy(1))
	h.change("a", 0, elect(1))
	h.step()
	h.admits(1)
	h.admits(1)
	h.hears(1, "lai a/0@1", "meta a/0@1")
	wait := MinRetry
	for i := range 12 {
		h.result(1, "a", 0, 1, failed)
		if got := h.stuck(); len(got) != 1 || got[0] != "broker 1 a/0: because" {
			t.Fatalf("stuck: %q", got)
		}
		h.change("a", 1, elect(1)) // goes on
		h.step()
		h.hears(1, fmt.Sprintf("lai a/1@%d", i+1), fmt.Sprintf("meta a/1@%d", i+1))
		h.applies(1)
		for left := wait - time.Millisecond; left > 0; left -= min(left, 4*time.Second) {
			h.pong(1)
			h.after(min(left, 4*time.Second))
		}
		if strings.Contains(fmt.Sprint(h.sent[1]), "leader_and_isr") {
			t.Fatalf("tried again before %v", wait)
		}
		h.sent[1] = nil
		h.pong(1)
		h.after(time.Millisecond)
		h.hears(1, "lai a/0@1")
		h.admits(1)
		wait = min(2*wait, MaxRetry)
	}
	h.change("a", 0, elect(1))
	h.step()
	h.hears(1, "lai a/0@2", "meta a/0@2")
	h.result(1, "a", 0, 1, failed) // of the older state
	h.applies(1)
	if h.p.Pending() != 0 || len(h.stuck()) != 0 {
		t.Errorf("pending %d, stuck %q", h.p.Pending(), h.stuck())
	}
	if s := h.p.Stats; s.Failed != 13 {
		t.Errorf("stats %+v", s)
	}
}

// However many partitions are tried again at once, commands stay below 1 MiB.
func TestPushRetriesInChunks(t *testing.T) {
	many := make([]cluster.Partition, 12_000)
	for i := range many {
		many[i] = hostedBy(1, 2, 3)
	}
	h := newHub(t)
	h.broker(1, scope(pb.MetadataScope_METADATA_SCOPE_NONE))
	h.topic("a", many...)
	h.begin(1)
	h.step()
	h.opens(1)
	h.step()
	fail := func() (told int) {
		for len(h.unacked[1]) > 0 {
			c := h.admits(1)
			if n := proto.Size(c); n >= 1<<20 {
				t.Errorf("a command of %d bytes", n)
			}
			for _, topic := range c.GetLeaderAndIsr().GetTopics() {
				for _, p := range topic.GetPartitions() {
					h.result(1, "a", p.GetPartition(), 0, pb.PartitionResult_PARTITION_RESULT_FAILED)
					told++
				}
			}
			h.step()
		}
		return told
	}
	for range 2 {
		if n := fail(); n != len(many) {
			t.Fatalf("%d states were told, want %d", n, len(many))
		}
		h.now += time.Second
		h.step()
	}
}

// Very many replicas that are tried again, as failed or as offline ones, go in
// commands and steps that are short, and hold up no change.
func TestRetriesHoldUpNoChange(t *testing.T) {
	const n = (window + 1) * maxStates
	many := make([]cluster.Partition, n)
	for i := range many {
		many[i] = hostedBy(1)
	}
	for what, failure := range map[string]pb.PartitionResult{
		"failed": pb.PartitionResult_PARTITION_RESULT_FAILED, "offline": pb.PartitionResult_PARTITION_RESULT_STORAGE_ERROR,
	} {
		t.Run(what, func(t *testing.T) {
			h := newHub(t)
			h.broker(1, scope(pb.MetadataScope_METADATA_SCOPE_NONE))
			h.topic("b", hostedBy(1))
			h.topic("a", many...)
			h.begin(1)
			h.step()
			h.opens(1)
			told := func(topic string) (told int) { // and answered
				c := h.admits(1)
				for _, ts := range c.GetLeaderAndIsr().GetTopics() {
					if len(ts.GetPartitions()) > maxStates {
						t.Fatalf("%d states in a command", len(ts.GetPartitions()))
					}
					if ts.GetTopic() == topic {
						told = len(ts.GetPartitions())
					}
					for _, p := range ts.GetPartitions() {
						if ts.GetTopic() == "a" {
							h.result(1, "a", p.GetPartition(), p.GetLeaderEpoch(), failure)
						}
					}
				}
				return told
			}
			send := func() {
				for h.step(); h.p.More(); h.step() {
				}
			}
			all := func() (sum int) {
				for send(); len(h.unacked[1]) > 0; send() {
					sum += told("a")
				}
				return sum
			}
			if sum := all(); sum != n {
				t.Fatalf("%d of %d told", sum, n)
			}
			h.now += MaxRetry
			h.p.targets[1].ping, h.p.targets[1].pong = h.now, h.now
			send()
			if got := h.p.Wake(h.now); len(h.unacked[1]) < window/2 || got <= h.now {
				t.Fatalf("%d commands are unanswered, wakes at %v, it is %v", len(h.unacked[1]), got, h.now)
			}
			before := len(h.unacked[1])
			h.change("b", 0, elect(1))
			send()
			if got := len(h.unacked[1]); got != before+1 {
				t.Errorf("the change waits for what is tried again: %d commands, then %d", before, got)
			}
			if sum := all(); sum != n {
				t.Errorf("%d of %d tried again", sum, n)
			}
		})
	}
}

// Results that arrive late do not undo what is known of a newer state.
func TestPushLateResults(t *testing.T) {
	h := connected(t, hostedBy(1))
	h.change("a", 0, elect(1))
	h.step()
	h.change("a", 0, elect(1))
	h.step()
	h.result(1, "a", 0, 1, pb.PartitionResult_PARTITION_RESULT_FAILED)
	if len(h.stuck()) != 0 {
		t.Error("an older failure is to be tried again, although a newer state is on its way")
	}
	h.result(1, "a", 0, 1, pb.PartitionResult_PARTITION_RESULT_APPLIED)
	if h.p.Pending() != 1 {
		t.Error("an older result has settled a newer state")
	}
	h.result(1, "a", 0, 2, pb.PartitionResult_PARTITION_RESULT_STORAGE_ERROR)
	h.result(1, "a", 0, 1, pb.PartitionResult_PARTITION_RESULT_ALREADY)
	if len(h.stuck()) != 1 {
		t.Error("an older result has settled a newer failure")
	}
	h.result(1, "a", 0, 2, pb.PartitionResult_PARTITION_RESULT_ALREADY)
	if h.p.Pending() != 0 {
		t.Error("still pending")
	}
	h.says(1, &pb.CommandsResponse{Response: &pb.CommandsResponse_Results{Results: &pb.PartitionResults{Outcomes: []*pb.PartitionOutcome{{TopicId: []byte{1}}}}}})
	h.says(1, &pb.CommandsResponse{})
}

// A partition that left the broker, or was deleted, is not tried again.
func TestPushForgetsRetries(t *testing.T) {
	for name, then := range map[string]func(h *hub){
		"moved":   func(h *hub) { h.change("a", 0, func(p *cluster.Partition) { *p = hostedBy(2) }) },
		"deleted": func(h *hub) { h.write(store.Delete(keys.Topic("a"))) },
	} {
		t.Run(name, func(t *testing.T) {
			h := connected(t, hostedBy(1))
			h.change("a", 0, elect(1))
			h.step()
			h.admits(1)
			h.admits(1)
			h.result(1, "a", 0, 1, pb.PartitionResult_PARTITION_RESULT_FAILED)
			then(h)
			h.step()
			h.applies(1)
			h.sent[1] = nil
			h.after(time.Second)
			for _, r := range h.sent[1] {
				if r.GetPing() == nil {
					t.Errorf("was sent %s", describe(r))
				}
			}
			if h.p.Pending() != 0 {
				t.Errorf("%d pending", h.p.Pending())
			}
		})
	}
}

// As long as the window is full, a retry that is due is no reason to wake.
func TestPushDoesNotSpin(t *testing.T) {
	h := connected(t, hostedBy(1), hostedBy(1))
	h.change("a", 1, elect(1))
	h.step()
	h.admits(1)
	h.admits(1)
	h.result(1, "a", 1, 1, pb.PartitionResult_PARTITION_RESULT_FAILED)
	for range window {
		h.change("a", 0, elect(1))
		h.step()
	}
	if len(h.unacked[1]) != window {
		t.Fatalf("%d commands unanswered", len(h.unacked[1]))
	}
	h.now += time.Second
	h.step()
	if got := h.p.Wake(h.now) - h.now; got < time.Second {
		t.Errorf("wakes after %v", got)
	}
}

// A gate that refuses a command hears everything again, after a while, on the
// same stream. What was sent before that is of no interest any more.
func TestPushRefusals(t *testing.T) {
	cases := []struct {
		refusal pb.Refusal
		highest cluster.Epoch
		doubts  []string
	}{
		{pb.Refusal_REFUSAL_UNAVAILABLE, 1, nil},
		{pb.Refusal_REFUSAL_STALE_BROKER_EPOCH, 1, []string{"reread 1"}},
		{pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH, 7, []string{"doubt 1 knows 7"}},
	}
	for _, c := range cases {
		t.Run(c.refusal.String(), func(t *testing.T) {
			h := newHub(t)
			h.broker(1)
			h.topic("a", hostedBy(1))
			h.begin(1)
			h.step()
			h.opens(1)
			h.step()
			h.wants("dial 1 at b1:1")
			all := []string{"live 1", "meta a/0@0!", "lai a/0@0!"}
			h.hears(1, all...)
			wait := MinRetry
			for range 12 {
				h.acks(1, c.refusal, c.highest)
				h.wants(c.doubts...)
				h.acks(1, c.refusal, c.highest) // those on their way are refused too
				h.acks(1, c.refusal, c.highest)
				h.acks(1, c.refusal, c.highest)
				h.wants()
				if got := h.p.Problems()[1]; got != refusalWords(c.refusal) {
					t.Fatalf("problem %q", got)
				}
				for left := wait - time.Millisecond; left > 0; left -= min(left, 4*time.Second) {
					h.pong(1)
					h.after(min(left, 4*time.Second))
				}
				for _, r := range h.sent[1] {
					if r.GetPing() == nil {
						t.Fatalf("said again before %v", wait)
					}
				}
				h.sent[1] = nil
				h.pong(1)
				h.after(time.Millisecond)
				h.hears(1, all...)
				wait = min(2*wait, MaxRetry)
			}
			h.applies(1)
			h.wants() // the same stream
			if h.p.Pending() != 0 || len(h.p.Problems()) != 0 || h.p.Stats.Refused != 12 {
				t.Errorf("pending %d, problems %v, stats %+v", h.p.Pending(), h.p.Problems(), h.p.Stats)
			}
		})
	}
}

// A hello with a higher epoch is a reason for doubt at once.
func TestPushDoubtsAtHello(t *testing.T) {
	h := newHub(t)
	h.broker(1)
	h.begin(3)
	h.step()
	h.done = nil
	h.take(Opened{h.streams[1], &pb.Hello{BrokerId: 1, ControllerEpoch: 3}})
	h.wants()
	h.take(Opened{h.streams[1], &pb.Hello{BrokerId: 1, ControllerEpoch: 4}})
	h.wants("doubt 1 knows 4")
}

// A stream on which a ping is unanswered for 10 s is given up.
func TestPushPings(t *testing.T) {
	h := connected(t, hostedBy(1))
	h.after(PingInterval - time.Millisecond)
	h.hears(1)
	h.after(time.Millisecond)
	h.hears(1, "ping")
	h.pong(1)
	h.after(PingTimeout - time.Millisecond)
	h.hears(1, "ping")
	h.wants()
	h.after(time.Millisecond)
	h.wants("hangup 1")
	old := h.streams[1]
	if h.p.Open() != 1 || h.p.Connected() != 0 {
		t.Errorf("open %d, connected %d", h.p.Open(), h.p.Connected())
	}
	if got := h.p.Problems()[1]; got != "ping unanswered" {
		t.Errorf("problem %q", got)
	}
	h.after(MinRetry)
	h.wants("dial 1 at b1:1")
	if h.p.Open() != 2 {
		t.Errorf("open %d while the old stream is being closed", h.p.Open())
	}
	h.take(Opened{old, &pb.Hello{ControllerEpoch: 9}}) // whatever the old stream still says
	h.take(Received{old, &pb.CommandsResponse{Response: &pb.CommandsResponse_Ack{Ack: &pb.CommandAck{Sequence: 99, Refusal: 1, ControllerEpoch: 9}}}})
	h.take(Closed{Stream: old, Err: errors.New("cancelled")})
	h.wants()
	h.opens(1)
	h.step()
	h.hears(1, "live 1", "meta a/0@0!", "lai a/0@0!")
	if h.p.Open() != 1 || h.p.Connected() != 1 || len(h.p.Problems()) != 0 {
		t.Errorf("open %d, connected %d, problems %v", h.p.Open(), h.p.Connected(), h.p.Problems())
	}
}

// A broker that cannot be reached is dialed again after 100 ms, doubling to 2 s;
// once it has admitted a command it begins anew.
func TestPushRedials(t *testing.T) {
	h := newHub(t)
	h.broker(1)
	h.begin(1)
	h.step()
	wait := MinRetry
	for range 8 {
		h.wants("dial 1 at b1:1")
		if wait == maxRedial {
			h.opens(1) // that alone is not enough
		}
		h.closes(1, errors.New("refused"))
		h.after(wait - time.Millisecond)
		h.wants()
		h.after(time.Millisecond)
		wait = min(2*wait, maxRedial)
	}
	if got := h.p.Problems()[1]; got != "refused" {
		t.Errorf("problem %q", got)
	}
	h.opens(1)
	h.step()
	h.applies(1)
	h.closes(1, errors.New("cut"))
	h.done = nil
	h.after(MinRetry)
	h.wants("dial 1 at b1:1")
}

// Everything is said again on a new stream.
func TestPushAnewOnEachStream(t *testing.T) {
	h := connected(t, hostedBy(1), hostedBy(2))
	h.change("a", 0, elect(1))
	h.closes(1, nil)
	h.after(MinRetry)
	h.wants("dial 1 at b1:1")
	h.hears(1)
	h.opens(1)
	h.step()
	h.hears(1, "live 1", "meta a/0@1 a/1@0!", "lai a/0@1")
}

// A changed address is followed, a new incarnation gets a stream of its own,
// and a broker that is gone gets nothing any more.
func TestPushFollowsBrokers(t *testing.T) {
	t.Run("address", func(t *testing.T) {
		h := connected(t, hostedBy(1))
		h.broker(1, func(r *pb.BrokerRecord) { r.ControlAddress = "elsewhere:1" })
		h.step()
		h.wants("hangup 1", "dial 1 at elsewhere:1")
		h.opens(1)
		h.step()
		h.hears(1, "live 1", "meta a/0@0!", "lai a/0@0!")
	})
	t.Run("restart", func(t *testing.T) {
		h := connected(t, hostedBy(1))
		old := h.streams[1]
		h.gone(1)
		h.broker(1)
		h.change("a", 0, elect(1))
		h.step()
		h.wants("hangup 1", "dial 1 at b1:1")
		h.hears(1)
		h.take(Received{old, &pb.CommandsResponse{}})
		h.take(Closed{Stream: old})
		h.opens(1)
		h.step()
		if got := h.sent[1][0].GetCommand().GetStamp().GetBrokerEpoch(); got != int64(h.im.Brokers[1].Epoch) || got == int64(old.Epoch) {
			t.Errorf("stamped for epoch %d", got)
		}
		h.hears(1, "live 1", "meta a/0@1", "lai a/0@1")
	})
	t.Run("gone", func(t *testing.T) {
		h := connected(t, hostedBy(1))
		h.gone(1)
		h.change("a", 0, elect(1))
		h.step()
		h.wants("hangup 1")
		h.hears(1)
		if h.p.Open() != 1 {
			t.Errorf("open %d", h.p.Open())
		}
		h.closes(1, nil)
		if h.p.Open() != 0 || h.p.Pending() != 0 {
			t.Errorf("open %d, pending %d", h.p.Open(), h.p.Pending())
		}
	})
	t.Run("without an address", func(t *testing.T) {
		h := newHub(t)
		h.broker(1, func(r *pb.BrokerRecord) { r.ControlAddress = "" })
		h.begin(1)
		h.step()
		h.wants()
	})
	t.Run("draining", func(t *testing.T) {
		h := connected(t, hostedBy(1))
		h.broker(1, func(r *pb.BrokerRecord) { r.State = pb.BrokerState_BROKER_STATE_DRAINING })
		h.step()
		h.wants()
		h.hears(1) // it is as live as before
	})
}

// The end of a term hangs up everything. Nothing is open once all streams have
// closed, and the next term begins anew.
func TestPushEnds(t *testing.T) {
	h := connected(t, hostedBy(1), hostedBy(2))
	h.broker(2)
	h.step()
	h.wants("dial 2 at b2:1")
	h.note(h.p.End())
	h.wants("hangup 1", "hangup 2")
	for open := 2; open > 0; open-- {
		if h.p.Open() != open || h.p.Connected() != 0 {
			t.Fatalf("open %d, connected %d, want %d", h.p.Open(), h.p.Connected(), open)
		}
		h.closes(cluster.BrokerID(open), nil)
	}
	h.sent[1] = nil
	h.change("a", 0, elect(1)) // as a standby it follows what changes
	h.begin(2)
	h.step()
	slices.Sort(h.done)
	h.wants("dial 1 at b1:1", "dial 2 at b2:1")
	h.opens(1)
	h.step()
	if got := h.sent[1][0].GetCommand().GetStamp().GetControllerEpoch(); got != 2 {
		t.Errorf("stamped with epoch %d", got)
	}
	h.hears(1, "live 1 2", "meta a/0@1 a/1@0", "lai a/0@1") // not new in this term
}

// A broker may create a replica only for a partition that was made in this
// term and never written since.
func TestPushIsNew(t *testing.T) {
	cases := []struct {
		change func(*cluster.Partition)
		isNew  bool
	}{
		{func(*cluster.Partition) {}, true},
		{func(p *cluster.Partition) { p.ControllerEpoch = 1 }, false},
		{func(p *cluster.Partition) { p.ControllerEpoch = 3 }, false},
		{func(p *cluster.Partition) { p.LeaderEpoch = 1 }, false},
		{func(p *cluster.Partition) { p.PartitionEpoch = 1 }, false},
	}
	for i, c := range cases {
		h := newHub(t)
		h.begin(2)
		p := hostedBy(1)
		p.ControllerEpoch = 2
		c.change(&p)
		if got := h.p.isNew(&p); got != c.isNew {
			t.Errorf("case %d: %v", i, got)
		}
	}
}

// A broker hears of all partitions, of those that it hosts, or of none; of the
// live brokers in any case.
func TestPushScopes(t *testing.T) {
	for _, c := range []struct {
		scope pb.MetadataScope
		meta  []string
	}{
		{pb.MetadataScope_METADATA_SCOPE_ALL, []string{"meta a/0@0! a/1@0!"}},
		{pb.MetadataScope_METADATA_SCOPE_HOSTED, []string{"meta a/0@0!"}},
		{pb.MetadataScope_METADATA_SCOPE_NONE, nil},
	} {
		t.Run(c.scope.String(), func(t *testing.T) {
			h := newHub(t)
			h.broker(1, scope(c.scope))
			h.topic("a", hostedBy(1), hostedBy(2))
			h.begin(1)
			h.step()
			h.opens(1)
			h.step()
			h.hears(1, append(append([]string{"live 1"}, c.meta...), "lai a/0@0!")...)
			h.applies(1)
			if h.p.Pending() != 0 {
				t.Errorf("%d pending", h.p.Pending())
			}
			h.change("a", 1, elect(2))
			h.step()
			if c.scope != pb.MetadataScope_METADATA_SCOPE_ALL {
				h.hears(1)
			}
			h.applies(1)
			if h.p.Pending() != 0 {
				t.Errorf("%d pending after a change elsewhere", h.p.Pending())
			}
		})
	}
}

// Nothing is pending once all that is left was told, also if what changed last
// is gone.
func TestPushPending(t *testing.T) {
	h := connected(t, hostedBy(1), hostedBy(1))
	h.change("a", 0, elect(1))
	if h.p.Pending() != 1 {
		t.Errorf("%d pending, a change is to be sent", h.p.Pending())
	}
	h.step()
	h.applies(1)
	h.topic("b", hostedBy(1))
	h.write(store.Delete(keys.Topic("b"))) // before it was told
	h.step()
	h.applies(1)
	if h.p.Pending() != 0 {
		t.Errorf("%d pending", h.p.Pending())
	}
	if n := h.p.changes.size; n != 2 {
		t.Errorf("the change list holds %d partitions", n)
	}
}

// TestStuckNamesTheFirst: of very many partitions that fail only the first are
// named, always the same ones, and the rest are counted.
func TestStuckNamesTheFirst(t *testing.T) {
	h := connected(t, hostedBy(1), hostedBy(1), hostedBy(1), hostedBy(1), hostedBy(1), hostedBy(1))
	for _, i := range []int32{4, 1, 3, 0, 2} {
		h.change("a", i, elect(1))
		h.step()
		h.result(1, "a", i, 1, pb.PartitionResult_PARTITION_RESULT_FAILED)
	}
	for most, want := range []string{
		"[] 5", "[broker 1 a/0: because] 4", "[broker 1 a/0: because broker 1 a/1: because] 3",
	} {
		if named, more := h.p.Stuck(h.im, most); fmt.Sprint(named, more) != want {
			t.Errorf("at most %d: %v and %d more, want %s", most, named, more, want)
		}
	}
	if n := len(h.stuck()); n != 5 {
		t.Errorf("%d are stuck", n)
	}
}
