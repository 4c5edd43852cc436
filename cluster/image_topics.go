package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/controllerd/controllerd/store"
)

// TopicByID is the visible topic of that id, nil if there is none.
func (im *Image) TopicByID(id TopicID) *Topic {
	if t := im.byID[id]; t != nil {
		return t.topic
	}
	return nil
}

// Partition is the record of a visible partition. It is nil if no topic
// record counts the partition, or if its record is missing or unreadable.
func (im *Image) Partition(id PartitionID) *Partition {
	t := im.byID[id.Topic]
	if t == nil || t.topic == nil || id.Index < 0 || id.Index >= t.topic.Made() {
		return nil
	}
	return t.blocks[id.Index/t.topic.BlockSize()].Partition(id.Index)
}

// Reason is why somebody has asked for the last change of a partition, empty if
// nobody has said, or if it was a rule.
func (im *Image) Reason(id PartitionID) string {
	t := im.byID[id.Topic]
	if t == nil || t.topic == nil {
		return ""
	}
	return t.blocks[id.Index/t.topic.BlockSize()].Reason(id.Index)
}

// Block is a block of a topic, visible or not, nil if it is missing or
// unreadable.
func (im *Image) Block(id BlockID) *Block {
	if t := im.byID[id.Topic]; t != nil {
		return t.blocks[id.Index]
	}
	return nil
}

// UnreadableTopics reports whether there is a topic record that cannot be read.
func (im *Image) UnreadableTopics() bool {
	prefix := im.Keys.Topic("")
	for key := range im.Faults {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// Partitions visits the partitions of a topic in order, with nil for one whose
// record is missing or unreadable.
func (im *Image) Partitions(t *Topic, visit func(PartitionID, *Partition)) {
	read := im.reader(t.ID)
	for i := range t.Made() {
		visit(PartitionID{t.ID, i}, read(i))
	}
}

// reader is Partition for many of one topic, in order: it looks up each block
// once.
func (im *Image) reader(id TopicID) func(index int32) *Partition {
	t := im.byID[id]
	if t == nil || t.topic == nil {
		return func(int32) *Partition { return nil }
	}
	size, made, at, block := t.topic.BlockSize(), t.topic.Made(), int32(-1), (*Block)(nil)
	return func(index int32) *Partition {
		if index >= made {
			return nil
		}
		if n := index / size; n != at {
			at, block = n, t.blocks[n]
		}
		return block.Partition(index)
	}
}

// Hosted visits the readable visible partitions that have a replica on the
// broker, in order.
func (im *Image) Hosted(broker BrokerID, visit func(*Topic, PartitionID, *Partition)) {
	for _, id := range im.hosted.of(broker) {
		im.hostedIn(broker, id, visit)
	}
}

// HostedFrom visits the same from a place on, which is 0 for the first, in no
// order, until about limit were visited. It returns the place to go on from, if
// there are more. What changes meanwhile may be visited or not.
func (im *Image) HostedFrom(broker BrokerID, from int32, limit int, visit func(*Topic, PartitionID, *Partition)) (next int32, more bool) {
	for slot := im.hosted.next(broker, from); slot >= 0; slot = im.hosted.next(broker, slot+1) {
		if limit <= 0 {
			return slot, true
		}
		limit -= 1 + im.hostedIn(broker, im.hosted.blocks[slot], visit)
	}
	return 0, false
}

// hostedIn visits those of one block, and returns how many.
func (im *Image) hostedIn(broker BrokerID, id BlockID, visit func(*Topic, PartitionID, *Partition)) (n int) {
	t := im.byID[id.Topic]
	if t.topic == nil {
		return 0
	}
	block, size, made := t.blocks[id.Index], t.topic.BlockSize(), t.topic.Made()
	for i := range block.partitions {
		p := &block.partitions[i]
		if p.index < made && p.index/size == id.Index && slices.Contains(p.Replicas, broker) {
			n++
			visit(t.topic, PartitionID{id.Topic, p.index}, p)
		}
	}
	return n
}

func (im *Image) topicBlocks(id TopicID) *topicBlocks {
	t := im.byID[id]
	if t == nil {
		t = &topicBlocks{blocks: map[int32]*Block{}}
		im.byID[id] = t
	}
	return t
}

// forget drops an id that nothing names any more.
func (im *Image) forget(id TopicID) {
	if t := im.byID[id]; t != nil && t.topic == nil && len(t.blocks) == 0 {
		delete(im.byID, id)
		delete(im.suspects, id)
	}
}

func (im *Image) applyTopic(name string, c store.Change, events []Event) ([]Event, error) {
	old := im.Topics[name]
	var topic *Topic
	var err error
	if !c.Deleted {
		topic, err = decodeTopic(name, c.KV)
	}
	if topic != nil {
		if other := im.TopicByID(topic.ID); other != nil && other.Name != name {
			topic, err = nil, fmt.Errorf("topic id %s belongs to topic %q", topic.ID, other.Name)
		}
	}
	if old != nil && (topic == nil || topic.ID != old.ID) {
		im.walks = append(im.walks, walk{topic: old, hide: true})
		old = nil
	}
	switch {
	case topic == nil:
	case old == nil:
		im.walks = append(im.walks, walk{topic: topic, added: true})
	default:
		events = im.changeTopic(old, topic, events)
	}
	return events, err
}

// showTopic makes a topic visible; its partitions appear after it.
func (im *Image) showTopic(t *Topic, events []Event) []Event {
	im.Topics[t.Name] = t
	im.counts.topic(nil, t)
	blocks := im.topicBlocks(t.ID)
	blocks.topic = t
	im.suspect(t.ID, blocks)
	return append(events, TopicAdded{t, im.applying})
}

// hideTopic takes out a topic whose partitions were taken out before.
func (im *Image) hideTopic(t *Topic, events []Event) []Event {
	delete(im.Topics, t.Name)
	im.counts.topic(t, nil)
	im.byID[t.ID].topic = nil
	im.suspect(t.ID, im.byID[t.ID])
	im.forget(t.ID)
	return append(events, TopicGone{t})
}

// changed takes in a change of a visible partition.
func (im *Image) changed(events []Event, ev PartitionChanged) []Event {
	im.counts.partition(ev)
	return append(events, ev)
}

// changeTopic replaces a topic's record. A block size that was changed by hand
// makes other blocks visible, so everything is compared.
func (im *Image) changeTopic(old, topic *Topic, events []Event) []Event {
	t := im.topicBlocks(topic.ID)
	t.seen = max(t.seen, old.Made())
	im.Topics[topic.Name] = topic
	im.counts.topic(old, topic)
	if old.BlockSize() == topic.BlockSize() && old.Made() <= topic.Made() {
		t.topic = topic
		im.suspect(topic.ID, t)
		im.walks = append(im.walks, walk{topic: topic, next: old.Made()})
		return append(events, TopicChanged{old, topic, im.applying})
	}
	before := make([]*Partition, old.Made())
	im.Partitions(old, func(id PartitionID, p *Partition) { before[id.Index] = p })
	t.topic = topic
	im.suspect(topic.ID, t)
	events = append(events, TopicChanged{old, topic, im.applying})
	for i := range max(old.Made(), topic.Made()) {
		id := PartitionID{topic.ID, i}
		var was *Partition
		if i < old.Made() {
			was = before[i]
		}
		if now := im.Partition(id); now != was {
			events = im.changed(events, PartitionChanged{topic, id, was, now, im.applying})
		}
	}
	return events
}

func (im *Image) applyBlock(id BlockID, c store.Change, events []Event) ([]Event, error) {
	t := im.topicBlocks(id.Topic)
	old := t.blocks[id.Index]
	var block *Block
	var err error
	if !c.Deleted {
		block, err = decodeBlock(id, c.KV)
	}
	im.hosted.change(old, block)
	if block == nil {
		delete(t.blocks, id.Index)
	} else {
		t.blocks[id.Index] = block
		t.above = max(t.above, int64(id.Index)+1)
		im.suspect(id.Topic, t)
		for i := range block.partitions {
			im.maxEpoch = max(im.maxEpoch, block.partitions[i].ControllerEpoch)
		}
	}
	if t.topic != nil {
		size := int64(t.topic.BlockSize())
		first := int64(id.Index) * size
		for i := first; i < min(first+size, int64(t.topic.Made())); i++ {
			was, now := old.Partition(int32(i)), block.Partition(int32(i))
			if was == nil && now == nil || was != nil && now != nil && was.equal(now) {
				continue
			}
			events = im.changed(events, PartitionChanged{t.topic, PartitionID{id.Topic, int32(i)}, was, now, im.applying})
		}
	}
	im.forget(id.Topic)
	return events, err
}

func (p *Partition) equal(q *Partition) bool {
	return p.Leader == q.Leader && p.LeaderEpoch == q.LeaderEpoch && p.PartitionEpoch == q.PartitionEpoch &&
		p.ControllerEpoch == q.ControllerEpoch && p.Recovery == q.Recovery && p.Decided == q.Decided &&
		slices.Equal(p.ISR, q.ISR) && slices.Equal(p.Replicas, q.Replicas) && slices.Equal(p.Adding, q.Adding) &&
		slices.Equal(p.Removing, q.Removing) && slices.Equal(p.Target, q.Target)
}
