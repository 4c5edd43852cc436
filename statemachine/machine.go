package statemachine

import (
	"slices"

	"github.com/controllerd/controllerd/cluster"
)

// Machine keeps the agenda of an image: the partitions for which Next would do
// something now, and the topics whose record asks for something. It is not safe
// for concurrent use.
type Machine struct {
	im      *cluster.Image
	offline Offline // nil: nothing has failed
	due     agenda
	topics  map[cluster.TopicID]struct{}
	// blank: no topic was visible, so that each partition that the next batch
	// shows comes with an event of its own.
	blank bool
}

// NewMachine makes the agenda of an image as it is. The caller applies batches
// to the image and shows the events of each to Observe. What becomes online or
// offline is named to Review.
func NewMachine(im *cluster.Image, offline Offline) *Machine {
	m := &Machine{im: im, offline: offline}
	m.Reset()
	return m
}

// At is what the rules see of the brokers for one partition.
func (m *Machine) At(id cluster.PartitionID) View { return ViewOf(m.im).At(id, m.offline) }

// Review brings the agenda up to date with which replicas are offline, for
// those partitions where that has changed. What changes together with a broker
// that Observe hears of needs no review.
func (m *Machine) Review(ids []cluster.PartitionID) {
	for _, id := range ids {
		m.due.set(id, m.owes(id))
	}
}

// Observe brings the agenda up to date after a batch was applied. It looks
// only at the partitions that the events concern, and at the image, not into
// the events: more of them than needed do no harm.
func (m *Machine) Observe(events []cluster.Event) {
	defer func() { m.blank = len(m.im.Topics) == 0 }()
	for _, e := range events {
		switch e := e.(type) {
		case cluster.BrokerUp:
			m.reviewHosted(e.Broker.ID)
		case cluster.BrokerDown:
			m.reviewHosted(e.Broker.ID)
		case cluster.BrokerRestarted:
			m.reviewHosted(e.New.ID)
		case cluster.BrokerChanged:
			if e.Old.Draining() != e.New.Draining() {
				m.reviewHosted(e.New.ID)
			}
		case cluster.PartitionChanged:
			m.due.set(e.ID, m.owes(e.ID))
		case cluster.TopicAdded:
			m.reviewTopic(e.Topic.ID)
		case cluster.TopicChanged:
			m.reviewTopic(e.New.ID)
			if e.Old.Deleting() != e.New.Deleting() {
				m.im.Partitions(e.New, func(id cluster.PartitionID, _ *cluster.Partition) { m.due.set(id, m.owes(id)) })
			}
		case cluster.TopicGone:
			m.reviewTopic(e.Topic.ID)
		}
	}
}

// reviewTopic notes whether a topic is to be deleted or completed.
func (m *Machine) reviewTopic(id cluster.TopicID) {
	if t := m.im.TopicByID(id); t != nil && (t.Deleting() || t.Made() < t.Wanted()) {
		m.topics[id] = struct{}{}
	} else {
		delete(m.topics, id)
	}
}

// Topics are those that are to be deleted, or completed, in order of id.
func (m *Machine) Topics() []*cluster.Topic {
	if len(m.topics) == 0 {
		return nil
	}
	out := make([]*cluster.Topic, 0, len(m.topics))
	for id := range m.topics {
		out = append(out, m.im.TopicByID(id))
	}
	slices.SortFunc(out, func(a, b *cluster.Topic) int {
		return cluster.PartitionID{Topic: a.ID}.Compare(cluster.PartitionID{Topic: b.ID})
	})
	return out
}

func (m *Machine) reviewHosted(id cluster.BrokerID) {
	if m.blank {
		return
	}
	m.im.Hosted(id, func(_ *cluster.Topic, id cluster.PartitionID, _ *cluster.Partition) {
		m.due.set(id, m.owes(id))
	})
}

// owes reports whether something is to do for a partition. One of a topic that
// is to be deleted is left as it is.
func (m *Machine) owes(id cluster.PartitionID) bool {
	p := m.im.Partition(id)
	if p == nil || m.im.TopicByID(id.Topic).Deleting() {
		return false
	}
	_, changed := Next(p, m.At(id))
	return changed
}

// Reset makes the agenda anew from the whole image and returns by how many
// partitions it differs from the one that was kept. Anything but 0 is a bug,
// or an event that was not observed.
func (m *Machine) Reset() int {
	var fresh agenda
	m.topics = map[cluster.TopicID]struct{}{}
	for _, t := range m.im.Topics {
		m.reviewTopic(t.ID)
		m.im.Partitions(t, func(id cluster.PartitionID, _ *cluster.Partition) {
			if m.owes(id) {
				fresh.set(id, true)
			}
		})
	}
	differ := 0
	for id := range fresh.ids {
		if !m.due.has(id) {
			differ++
		}
	}
	for id := range m.due.ids {
		if !fresh.has(id) {
			differ++
		}
	}
	m.due, m.blank = fresh, len(m.im.Topics) == 0
	return differ
}

// Agenda is the number of partitions for which something is to do.
func (m *Machine) Agenda() int { return len(m.due.ids) }

// Step is what to do next: a write for each of the first partitions of the
// agenda, at most limit, in order of partition. It changes nothing: until the
// image shows the writes, the same ones are due.
func (m *Machine) Step(t Term, limit int) []Write {
	ids := m.due.first(limit)
	out := make([]Write, 0, len(ids))
	for _, id := range ids {
		old := m.im.Partition(id)
		if old == nil {
			continue
		}
		if next, changed := Next(old, m.At(id)); changed {
			t.stamp(&next)
			out = append(out, Write{ID: id, Old: old, New: next})
		}
	}
	return out
}

// agenda is a set of partitions that gives its first members in order. The
// zero value is empty.
type agenda struct {
	ids map[cluster.PartitionID]struct{}
	// order holds all of ids, and perhaps some that have left. It is in order
	// up to sorted.
	order  []cluster.PartitionID
	sorted int
}

func (a *agenda) has(id cluster.PartitionID) bool {
	_, ok := a.ids[id]
	return ok
}

func (a *agenda) set(id cluster.PartitionID, due bool) {
	switch {
	case due == a.has(id):
	case due:
		if a.ids == nil {
			a.ids = map[cluster.PartitionID]struct{}{}
		}
		if len(a.order) > 2*len(a.ids)+1024 {
			a.tidy() // a standby never asks for the first
		}
		a.ids[id] = struct{}{}
		a.order = append(a.order, id)
	default:
		delete(a.ids, id)
	}
}

// first is at most limit members in order. Members leave in about the order in
// which they are given out, so those that have left are dropped from the front.
func (a *agenda) first(limit int) []cluster.PartitionID {
	if a.sorted < len(a.order) {
		a.tidy()
	}
	out := make([]cluster.PartitionID, 0, max(0, min(limit, len(a.ids))))
	for i := 0; i < len(a.order) && len(out) < limit; i++ {
		switch {
		case a.has(a.order[i]):
			out = append(out, a.order[i])
		case len(out) == 0:
			a.order, i = a.order[1:], i-1
			a.sorted--
		}
	}
	return out
}

// tidy leaves the members in order and nothing else.
func (a *agenda) tidy() {
	a.order = slices.DeleteFunc(a.order, func(id cluster.PartitionID) bool { return !a.has(id) })
	slices.SortFunc(a.order, cluster.PartitionID.Compare)
	a.order = slices.Compact(a.order)
	a.sorted = len(a.order)
}
