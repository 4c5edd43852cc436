package rpc

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// bury deletes a topic of which brokers may hold the given partitions.
func (h *hub) bury(name string, held map[cluster.BrokerID][]int32) cluster.TopicID {
	h.t.Helper()
	t := h.im.Topics[name]
	r := cluster.NewTombstone(t, held)
	r.LeaderEpoch = 9
	h.write(store.Put(keys.Tombstone(t.ID), cluster.Encode(r)), store.Delete(keys.Topic(name)), store.DeletePrefix(keys.Blocks(t.ID)))
	return t.ID
}

// stopped reports what became of the deletion of one replica.
func (h *hub) stopped(id cluster.BrokerID, topic cluster.TopicID, index int32, r pb.PartitionResult) {
	h.t.Helper()
	h.says(id, &pb.CommandsResponse{Response: &pb.CommandsResponse_Results{Results: &pb.PartitionResults{Outcomes: []*pb.PartitionOutcome{
		{TopicId: topic[:], Partition: index, LeaderEpoch: 9, Result: r, Message: "because", Stop: true},
	}}}})
}

// A broker is told to delete before it hears of another topic of the name, and
// has confirmed when it has answered for each partition. What failed is tried
// again alone.
func TestRemoval(t *testing.T) {
	h := connected(t, hostedBy(1), hostedBy(1))
	id := h.bury("a", map[cluster.BrokerID][]int32{1: {0, 1}, 2: {0}})
	h.topic("a", hostedBy(1))
	h.step()
	h.hears(1, "stop a/0@9 a/1@9", "lai a/0@0!", "meta a/0@0! -a")
	h.applies(1)
	if n := h.p.Pending(); n != 2 {
		t.Errorf("%d pending", n)
	}
	h.stopped(1, id, 0, pb.PartitionResult_PARTITION_RESULT_ALREADY)
	h.stopped(1, id, 1, pb.PartitionResult_PARTITION_RESULT_STORAGE_ERROR)
	if stuck := h.stuck(); len(stuck) != 1 || stuck[0] != "broker 1 deletion of topic a: because" {
		t.Errorf("stuck: %q", stuck)
	}
	h.after(MinRetry)
	h.hears(1, "stop a/1@9")
	h.applies(1)
	if len(h.p.Confirmed()) != 0 {
		t.Error("confirmed too early")
	}
	h.stopped(1, id, 1, pb.PartitionResult_PARTITION_RESULT_APPLIED)
	if c := h.p.Confirmed()[id]; len(c) != 1 || !c[1] {
		t.Errorf("confirmed: %v", c)
	}

	left := h.im.Tombstones[id].Without(func(b cluster.BrokerID) bool { return b == 1 })
	h.write(store.Put(keys.Tombstone(id), cluster.Encode(left)))
	if len(h.p.Confirmed()) != 0 || h.p.Pending() != 0 {
		t.Errorf("confirmed %v, %d pending", h.p.Confirmed(), h.p.Pending())
	}
	h.broker(2) // which was away
	h.step()
	h.opens(2)
	h.step()
	h.hears(2, "live 1 2", "stop a/0@9", "meta a/0@0! -a")
}

// What was on its way to a replica of a deleted topic, or has failed there, is
// owed no more: the broker answers the end of the replica only.
func TestRemovalOfWhatIsOwed(t *testing.T) {
	h, _ := resumable(t)
	h.change("a", 0, elect(1))
	h.change("a", 1, elect(1))
	h.step()
	h.result(1, "a", 1, 1, pb.PartitionResult_PARTITION_RESULT_FAILED)
	id := h.bury("a", map[cluster.BrokerID][]int32{1: {0, 1}})
	h.step()
	for range len(h.sent[1]) {
		h.admits(1)
	}
	h.stopped(1, id, 0, pb.PartitionResult_PARTITION_RESULT_APPLIED)
	h.stopped(1, id, 1, pb.PartitionResult_PARTITION_RESULT_APPLIED)
	if got := h.p.resumePoint(h.im, h.p.targets[1]); got != h.im.Rev || h.p.Pending() != 0 {
		t.Errorf("resume point %d of %d, %d pending", got, h.im.Rev, h.p.Pending())
	}
}

// However many replicas an attempt fails for, the next one waits twice as long
// as this one did.
func TestRemovalFailsForMany(t *testing.T) {
	h := connected(t, hostedBy(1), hostedBy(1), hostedBy(1))
	id := h.bury("a", map[cluster.BrokerID][]int32{1: {0, 1, 2}})
	h.step()
	h.hears(1, "stop a/0@9 a/1@9 a/2@9", "meta -a")
	for wait := MinRetry; wait <= 4*MinRetry; wait *= 2 {
		h.applies(1)
		h.sent[1] = nil
		for i := range int32(3) {
			h.stopped(1, id, i, pb.PartitionResult_PARTITION_RESULT_FAILED)
		}
		h.after(wait - time.Millisecond)
		for _, r := range h.sent[1] {
			if r.GetPing() == nil {
				t.Fatalf("tried again before %v", wait)
			}
		}
		h.sent[1] = nil
		h.after(time.Millisecond)
		h.hears(1, "stop a/0@9 a/1@9 a/2@9")
	}
}

// A new stream asks again for what was not confirmed.
func TestRemovalAfterAStream(t *testing.T) {
	h := connected(t, hostedBy(1))
	id := h.bury("a", map[cluster.BrokerID][]int32{1: {0}})
	h.step()
	h.hears(1, "stop a/0@9", "meta -a")
	h.closes(1, nil)
	h.after(MinRetry)
	h.opens(1)
	h.step()
	h.hears(1, "live 1", "stop a/0@9", "meta -a")
	h.applies(1)
	h.stopped(1, id, 0, pb.PartitionResult_PARTITION_RESULT_APPLIED)
	h.closes(1, nil)
	h.after(2 * MinRetry)
	h.opens(1)
	h.step()
	h.hears(1, "live 1", "meta -a") // the tombstone names it still, but it has confirmed
	h.applies(1)
	h.write(store.Delete(keys.Tombstone(id)))
	h.step()
	if len(h.p.Confirmed()) != 0 || h.p.Pending() != 0 {
		t.Errorf("confirmed %v, %d pending", h.p.Confirmed(), h.p.Pending())
	}
}

// A broker that comes back to very many deleted topics is told of them piece by
// piece, each once, and nobody looks through them for another broker.
func TestRemovalOfMany(t *testing.T) {
	const topics = 3*maxStates + 7
	h := connected(t, hostedBy(1))
	h.closes(1, nil)
	var ops []store.Op
	for i := range topics {
		topic := &cluster.Topic{ID: cluster.TopicID{7, byte(i), byte(i >> 8)}, Name: fmt.Sprint("gone-", i)}
		topic.Record = &pb.TopicRecord{TopicId: topic.ID[:], PartitionsMade: 1, PartitionsWanted: 1}
		r := cluster.NewTombstone(topic, map[cluster.BrokerID][]int32{1: {0}, 3: {0}})
		r.LeaderEpoch = 9
		ops = append(ops, store.Put(keys.Tombstone(topic.ID), cluster.Encode(r)))
	}
	for piece := range slices.Chunk(ops, store.MaxOps) {
		h.write(piece...)
	}
	gone := cluster.TopicID{7, 5}
	h.write(store.Delete(keys.Tombstone(gone)))
	h.after(MinRetry)
	h.opens(1)
	told := map[cluster.TopicID]int{}
	for range topics {
		h.step()
		sent := h.sent[1]
		if h.sent[1] = nil; len(sent) == 0 {
			break
		}
		for _, r := range sent {
			n := 0
			for _, topic := range r.GetCommand().GetStopReplica().GetTopics() {
				id := cluster.TopicID(topic.GetTopicId())
				told[id]++
				n += len(topic.GetPartitions())
				h.stopped(1, id, 0, pb.PartitionResult_PARTITION_RESULT_APPLIED)
			}
			if n > maxStates {
				t.Errorf("a command stops %d replicas", n)
			}
		}
		h.applies(1)
	}
	for id, n := range told {
		if n != 1 || id == gone {
			t.Errorf("told %d times of %s", n, id)
		}
	}
	if c := h.p.Confirmed(); len(told) != topics-1 || len(c) != topics-1 || h.p.Pending() != 0 {
		t.Errorf("told of %d topics, %d confirmed, %d pending", len(told), len(c), h.p.Pending())
	}
	h.write(store.Delete(keys.Tombstone(cluster.TopicID{7, 6})))
	h.step()
	if len(h.sent[1]) != 0 {
		t.Errorf("told again: %v", h.sent[1])
	}
}
