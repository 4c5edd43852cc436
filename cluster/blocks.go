package cluster

import (
	"maps"
	"slices"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// KnownBrokers are the ids of all brokers that any key names, even if it is
// unreadable, in order.
func (im *Image) KnownBrokers() []BrokerID {
	ids := slices.Concat(slices.Collect(maps.Keys(im.Brokers)), slices.Collect(maps.Keys(im.Nodes)), slices.Collect(maps.Keys(im.hosted.on)))
	for key := range im.Faults {
		if p, err := im.Keys.parse(key); err == nil && (p.kind == keyBroker || p.kind == keyNode) {
			ids = append(ids, p.id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// HiddenBlocks are the readable blocks that no topic record counts, nor will
// count when its topic is complete, in order.
func (im *Image) HiddenBlocks() []*Block {
	var out []*Block
	for id := range im.suspects {
		t := im.byID[id]
		for n, b := range t.blocks {
			if n >= t.counted() {
				out = append(out, b)
			}
		}
	}
	slices.SortFunc(out, func(a, b *Block) int { return PartitionID(a.ID).Compare(PartitionID(b.ID)) })
	return out
}

// counted is how many blocks the topic's record counts, or will.
func (t *topicBlocks) counted() int32 {
	if t.topic == nil {
		return 0
	}
	return blocksFor(max(t.topic.Made(), t.topic.Wanted()), t.topic.BlockSize())
}

// maxRestored bounds how many partitions above its count a topic is said to have
// had: the rest shows once these are counted.
const maxRestored = 4096

// Had is how many partitions the topic has, or will have, and more if there are
// records above that: somebody has lowered the count by hand. What an expansion
// has left that did not come to its end is none of the topic; who has not seen
// the count before takes partitions for that which were new with an expansion.
func (im *Image) Had(t *Topic) int32 {
	size, counted := t.BlockSize(), max(t.Made(), t.Wanted())
	n, seen := counted, int32(0)
	if b := im.byID[t.ID]; b != nil {
		seen = b.seen
	}
	for n-counted < maxRestored && n < MaxPartitions {
		p := im.Block(BlockID{t.ID, n / size}).Partition(n)
		if p == nil || n >= seen && p.unborn() {
			break
		}
		n++
	}
	return n
}

// unborn reports whether the record may be one that no topic has ever counted:
// first records of an expansion are stored before they are.
func (p *Partition) unborn() bool {
	return p.Cause == pb.ChangeCause_CHANGE_CAUSE_EXPANDED && p.PartitionEpoch == 0
}

// suspect notes whether a topic may have hidden blocks: few have, and nobody
// looks through all topics for them.
func (im *Image) suspect(id TopicID, t *topicBlocks) {
	if t.above > int64(t.counted()) {
		im.suspects[id] = struct{}{}
	} else {
		delete(im.suspects, id)
	}
}

// MissingBlocks is how many blocks of a topic are missing. Those that are
// unreadable are in Faults.
func (im *Image) MissingBlocks(t *Topic) int {
	missing := 0
	if len(im.byID[t.ID].blocks) == int(blocksFor(t.Made(), t.BlockSize())) {
		return 0 // but for blocks beyond the count, which do not stay
	}
	for n := range blocksFor(t.Made(), t.BlockSize()) {
		if id := (BlockID{t.ID, n}); im.Block(id) == nil && im.ModRev(im.Keys.Block(id)) == 0 {
			missing++
		}
	}
	return missing
}

func blocksFor(partitions, size int32) int32 { return partitions/size + min(1, partitions%size) }

// BlocksOf are the indices of the blocks that are stored under a topic id,
// readable ones, visible or not, in order.
func (im *Image) BlocksOf(id TopicID) []int32 {
	t := im.byID[id]
	if t == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(t.blocks))
}
