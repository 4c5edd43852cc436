package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

func (c *Checker) blockChanged(t transaction, name string, ch store.Change) {
	c.checkWriter(t, ch.KV.Key)
	hex, _, _ := strings.Cut(name, "/")
	var b pb.PartitionBlock
	topic, ok := topicIDOf(hex)
	if ok && ch.Deleted {
		c.checkBlockGone(t, topic, name)
	}
	if ch.Deleted || !ok || proto.Unmarshal(ch.KV.Value, &b) != nil {
		return
	}
	for _, r := range b.GetPartitions() {
		id := cluster.PartitionID{Topic: topic, Index: r.GetPartition()}
		old := c.history.records[id]
		if old != nil && sameState(old.PartitionRecord, r) {
			continue
		}
		if c.history.uncounted(id) {
			old = nil // of an expansion that did not come to its end: nobody has seen it
		}
		c.checkRecord(t, id, old, r)
		if c.changed != nil && old != nil {
			c.changed(t, id, old.PartitionRecord, r)
		}
		c.history.records[id] = &record{r, t.at}
	}
}

// sameState compares all but what a record says about its own writing.
func sameState(a, b *pb.PartitionRecord) bool {
	plain := func(r *pb.PartitionRecord) *pb.PartitionRecord {
		r = proto.Clone(r).(*pb.PartitionRecord)
		r.ChangedMs, r.DecidedRevision, r.Cause = 0, 0, pb.ChangeCause_CHANGE_CAUSE_UNSPECIFIED
		return r
	}
	return proto.Equal(a, b) || proto.Equal(plain(a), plain(b))
}

func topicIDOf(hex string) (id cluster.TopicID, ok bool) {
	if len(hex) != 2*len(id) {
		return id, false
	}
	for i := range id {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			return id, false
		}
		id[i] = byte(n)
	}
	return id, true
}

// checkRecord checks a partition's new record by itself and against the one
// before (I4), and that it was written by who holds the seat (I3).
func (c *Checker) checkRecord(t transaction, id cluster.PartitionID, old *record, r *pb.PartitionRecord) {
	if c.history.edited[t.rev] {
		return
	}
	what := illegal(r)
	if what == "" && old != nil {
		what = illegalAfter(old.PartitionRecord, r)
	}
	if what == "" && old != nil {
		what = c.history.unfit(old.PartitionRecord, r)
	}
	if what != "" {
		c.violated(ErrPartitionState, t.at, "%s at revision %d: %s", c.name(id), t.rev, what)
		return
	}
	if e := cluster.Epoch(r.GetControllerEpoch()); !t.trusted && t.before != 0 && e != t.before {
		c.violated(ErrLateWrite, t.at, "%s written at revision %d by epoch %d, the seat belongs to %d", c.name(id), t.rev, e, t.before)
	}
}

// uncounted reports whether the record of a topic does not count a partition.
func (h *history) uncounted(id cluster.PartitionID) bool {
	for _, t := range h.topics {
		if string(t.GetTopicId()) == string(id.Topic[:]) {
			return id.Index >= t.GetPartitionsMade()
		}
	}
	return false
}

// unfit says who leads or has joined the ISR though it was draining when that was
// decided, and has been since.
func (h *history) unfit(old, r *pb.PartitionRecord) string {
	drained := func(id int32) bool {
		since := h.draining[cluster.BrokerID(id)]
		return since != 0 && since <= store.Rev(r.GetDecidedRevision())
	}
	if r.GetLeader() != old.GetLeader() && drained(r.GetLeader()) {
		return fmt.Sprintf("broker %d leads, though it is draining", r.GetLeader())
	}
	for _, id := range r.GetIsr() {
		if !slices.Contains(old.GetIsr(), id) && drained(id) {
			return fmt.Sprintf("broker %d joins the ISR, though it is draining", id)
		}
	}
	return ""
}

// illegal says what makes a record one that must not be.
func illegal(r *pb.PartitionRecord) string {
	outside := func(b int32) bool { return !slices.Contains(r.GetReplicas(), b) }
	switch {
	case len(r.GetIsr()) == 0:
		return "empty ISR"
	case slices.ContainsFunc(r.GetIsr(), outside):
		return fmt.Sprintf("ISR %v is not within the replicas %v", r.GetIsr(), r.GetReplicas())
	case r.GetLeader() != int32(cluster.NoLeader) && !slices.Contains(r.GetIsr(), r.GetLeader()):
		return fmt.Sprintf("leader %d is not in the ISR %v", r.GetLeader(), r.GetIsr())
	}
	return ""
}

// illegalAfter says what makes a change of a record one that must not be.
func illegalAfter(old, r *pb.PartitionRecord) string {
	what := ""
	switch {
	case r.GetLeaderEpoch() < old.GetLeaderEpoch():
		what = "leader epoch falls"
	case r.GetControllerEpoch() < old.GetControllerEpoch():
		what = "controller epoch falls"
	case r.GetPartitionEpoch() <= old.GetPartitionEpoch():
		what = "partition epoch does not rise"
	case r.GetLeader() != old.GetLeader() && r.GetLeaderEpoch() == old.GetLeaderEpoch():
		what = "leader changes without a higher leader epoch"
	default:
		return ""
	}
	return fmt.Sprintf("%s from %s to %s", what, recordText(old), recordText(r))
}

// name is the partition as people write it.
func (c *Checker) name(id cluster.PartitionID) string {
	for name, t := range c.history.topics {
		if string(t.GetTopicId()) == string(id.Topic[:]) {
			return fmt.Sprintf("%s-%d", name, id.Index)
		}
	}
	return id.String()
}

func recordText(r *pb.PartitionRecord) string {
	return fmt.Sprintf("[leader %d at %d, %d isr %v by %d]", r.GetLeader(), r.GetLeaderEpoch(), r.GetPartitionEpoch(), r.GetIsr(), r.GetControllerEpoch())
}
