package sim

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

var (
	// ErrDataLost (I8): no topic, no block that its record counts and no data of
	// a replica is deleted, unless the deletion of the topic was asked for.
	ErrDataLost = errors.New("I8: deleted though nobody asked for it")
	// ErrLeftBehind (I9): a broker with data of a deleted topic is in the topic's
	// tombstone.
	ErrLeftBehind = errors.New("I9: data that nobody will delete")
)

// checkTopicGone checks a deletion of a topic's record (I8): the last readable
// one had the mark. Of one that was never readable nothing is known.
func (c *Checker) checkTopicGone(t transaction, name string) {
	if r := c.history.newest[name]; !t.trusted && r != nil && !r.GetDeleting() {
		c.violated(ErrDataLost, t.at, "topic %s at revision %d", name, t.rev)
	}
}

// checkBlockGone checks a deletion of a block (I8).
func (c *Checker) checkBlockGone(t transaction, id cluster.TopicID, name string) {
	_, index, _ := strings.Cut(name, "/")
	n, err := strconv.ParseInt(index, 10, 32)
	r := c.history.shapes[string(id[:])]
	if t.trusted || r == nil || err != nil || r.GetDeleting() {
		return
	}
	if n*int64(r.GetBlockSize()) < int64(r.GetPartitionsMade()) {
		c.violated(ErrDataLost, t.at, "block %s at revision %d, its topic has %d partitions", name, t.rev, r.GetPartitionsMade())
	}
}

// checkStop holds a StopReplica that a broker was told against what was asked
// for.
func (w *World) checkStop(s *fencing.PartitionState, b *simBroker) {
	who := b.name
	if s.Delete && w.left[leaver{s.Partition, b.id, s.LeaderEpoch}] {
		return
	}
	if s.Delete && !w.isDoomed(string(s.Partition.Topic[:])) {
		w.blame(ErrDataLost, "%s was told to delete %s-%d", who, s.Topic, s.Partition.Index)
	}
	if t := w.checker.history.topics[s.Topic]; t != nil && string(t.GetTopicId()) == string(s.Partition.Topic[:]) {
		w.blame(ErrUnstored, "%s was told to delete %s-%d, which exists", who, s.Topic, s.Partition.Index)
	}
}

// leaver is a broker whose replica a record says is to be deleted.
type leaver struct {
	id     cluster.PartitionID
	broker cluster.BrokerID
	epoch  cluster.LeaderEpoch
}

// checkLeavers notes who is to delete its replica. Who is taken out of that must
// have done so (I9), or be away: what it has is a stray when it is back.
func (w *World) checkLeavers(t transaction, id cluster.PartitionID, old, r *pb.PartitionRecord) {
	for _, b := range r.GetRemoving() {
		if !slices.Contains(r.GetReplicas(), b) {
			w.left[leaver{id, cluster.BrokerID(b), cluster.LeaderEpoch(r.GetLeaderEpoch())}] = true
		}
	}
	for _, b := range old.GetRemoving() {
		if slices.Contains(old.GetReplicas(), b) || slices.Contains(r.GetReplicas(), b) || slices.Contains(r.GetRemoving(), b) {
			continue
		}
		if !w.disks[b][id] {
			continue
		}
		if live := w.checker.history.live[cluster.BrokerID(b)]; !t.trusted && live != 0 && store.Rev(live) <= store.Rev(r.GetDecidedRevision()) && w.p.compare == 0 {
			w.blame(ErrLeftBehind, "broker %d has data of %s, which it was to delete, at revision %d", b, w.checker.name(id), t.rev)
		}
		delete(w.disks[b], id)
		w.planted[b][id] = true
		w.seen["stray left by a reassignment"]++
	}
}

// checkChange holds what a daemon wrote against what was asked for and what
// the brokers have.
func (w *World) checkChange(ch store.Change) {
	if w.checker.history.edited[ch.KV.ModRev] {
		return
	}
	rest, _ := strings.CutPrefix(ch.KV.Key, w.keys.Prefix())
	switch dir, name, _ := strings.Cut(rest, "/"); dir {
	case "topics":
		var r pb.TopicRecord
		if !ch.Deleted && proto.Unmarshal(ch.KV.Value, &r) == nil && r.GetDeleting() && !w.isDoomed(string(r.GetTopicId())) {
			w.blame(ErrDataLost, "topic %s was marked at revision %d", name, ch.KV.ModRev)
		}
	case "partitions":
		if ch.Deleted {
			w.blockGone(name)
		}
	case "tombstones":
		w.checkTombstone(name, ch)
	}
}

// blockGone counts blocks that were deleted without their topic.
func (w *World) blockGone(name string) {
	hex, _, _ := strings.Cut(name, "/")
	if id, ok := topicIDOf(hex); ok && !w.isDoomed(string(id[:])) {
		w.seen["hidden block swept"]++
	}
}

// checkTombstone blames who takes a broker out of a tombstone that has data of
// the topic (I9).
func (w *World) checkTombstone(hex string, ch store.Change) {
	var r pb.TombstoneRecord
	id, ok := topicIDOf(hex)
	if !ok || !ch.Deleted && proto.Unmarshal(ch.KV.Value, &r) != nil {
		return
	}
	held := map[int]bool{}
	for _, h := range r.GetHolders() {
		held[int(h.GetBrokerId())] = true
	}
	for i, d := range w.disks {
		if d.has(id) && !held[i] {
			w.blame(ErrLeftBehind, "broker %d has data of topic %s and is in no tombstone at revision %d", i, id, ch.KV.ModRev)
		}
	}
}
