package statemachine

import (
	"bytes"
	"slices"

	"github.com/controllerd/controllerd/cluster"
)

// review is a walk over partitions that is not at its end.
type review struct {
	of     reviewOf
	broker cluster.BrokerID
	topic  cluster.TopicID
	next   int32             // of the broker's blocks, or of the topic's partitions
	topics []cluster.TopicID // that are to be looked at after topic
}

type reviewOf uint8

const (
	ofBroker reviewOf = iota
	ofTopic
	ofLeaderless // the partitions of topics that have some without a leader
)

// begin begins a walk, anew if the same one is under way: what it has passed
// may have changed.
func (m *Machine) begin(r review) {
	m.reviews = slices.DeleteFunc(m.reviews, func(o review) bool {
		return o.of == r.of && (r.of == ofLeaderless || o.broker == r.broker && o.topic == r.topic)
	})
	m.reviews = append(m.reviews, r)
}

// Reviewing reports whether Continue has something to do: until then the agenda
// may lack partitions, and hold some that owe nothing any more.
func (m *Machine) Reviewing() bool { return len(m.reviews) > 0 || m.unsure.count > 0 }

// Continue looks at about limit more of the partitions that the events concern,
// those first that Review has named.
func (m *Machine) Continue(limit int) {
	for _, id := range m.unsure.first(limit) {
		m.unsure.set(id, false)
		m.due.set(id, m.owes(id))
		limit--
	}
	for limit > 0 && len(m.reviews) > 0 {
		r, more := &m.reviews[0], false
		if r.of == ofBroker {
			share := limit
			r.next, more = m.im.HostedFrom(r.broker, r.next, share, func(_ *cluster.Topic, id cluster.PartitionID, _ *cluster.Partition) {
				limit--
				m.due.set(id, m.owes(id))
			})
		} else {
			more = m.reviewPartitions(r, &limit)
			if !more && len(r.topics) > 0 {
				r.topic, r.topics, r.next, more = r.topics[0], r.topics[1:], 0, true
				limit--
				continue
			}
		}
		if more {
			return
		}
		m.reviews = m.reviews[1:]
	}
}

// reviewPartitions goes on with the partitions of a topic, and reports whether
// there are more.
func (m *Machine) reviewPartitions(r *review, limit *int) bool {
	t := m.im.TopicByID(r.topic)
	if t == nil {
		return false // an event has told so of each
	}
	for ; r.next < t.Made() && *limit > 0; r.next++ {
		id := cluster.PartitionID{Topic: r.topic, Index: r.next}
		m.due.set(id, m.owes(id))
		*limit--
	}
	return r.next < t.Made()
}

// check is a comparison of the agenda with the image that is not at its end.
type check struct {
	topics []cluster.TopicID // to be looked at
	next   int32             // partition of the first
}

// BeginCheck begins to compare the agenda with the whole image. A topic that
// becomes visible after it is not looked at.
func (m *Machine) BeginCheck() {
	m.check = &check{}
	for _, t := range m.im.Topics {
		m.check.topics = append(m.check.topics, t.ID)
	}
	for _, a := range []*agenda{&m.due, &m.topics} {
		for id := range a.topics {
			if m.im.TopicByID(id) == nil {
				m.check.topics = append(m.check.topics, id)
			}
		}
	}
	slices.SortFunc(m.check.topics, func(a, b cluster.TopicID) int { return bytes.Compare(a[:], b[:]) })
}

// Checking reports whether a check is under way.
func (m *Machine) Checking() bool { return m.check != nil }

// Check goes on with the check for about limit partitions, unless a review has
// to come first. It puts right what is wrong in the agenda, and returns how
// much that is: anything but 0 is a bug, or an event that was not observed.
func (m *Machine) Check(limit int) (wrong int) {
	c := m.check
	if c == nil || m.Reviewing() {
		return 0
	}
	for ; limit > 0 && len(c.topics) > 0; limit-- {
		id := cluster.PartitionID{Topic: c.topics[0], Index: c.next}
		if c.next == 0 {
			had := m.topics.count
			m.reviewTopic(id.Topic)
			if m.topics.count != had {
				wrong++
			}
		}
		if c.next >= m.indices(id.Topic) {
			c.topics, c.next = c.topics[1:], 0
			continue
		}
		m.moving.set(id, reassigned(m.im.Partition(id)))
		if owes := m.owes(id); owes != m.due.has(id) {
			m.due.set(id, owes)
			wrong++
		}
		c.next++
	}
	if len(c.topics) == 0 {
		m.check = nil
	}
	return wrong
}

// indices bounds the partitions of a topic that are there or on the agenda.
func (m *Machine) indices(id cluster.TopicID) int32 {
	n := m.due.indices(id)
	if t := m.im.TopicByID(id); t != nil {
		n = max(n, t.Made())
	}
	return n
}

// Reset reviews and checks all that there is, at once, and returns how much was
// wrong.
func (m *Machine) Reset() (wrong int) {
	for m.Reviewing() {
		m.Continue(checkSlice)
	}
	for m.BeginCheck(); m.Checking(); {
		wrong += m.Check(checkSlice)
	}
	m.blank = len(m.im.Topics) == 0
	return wrong
}

const checkSlice = 1 << 16
