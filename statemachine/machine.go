package statemachine

import (
	"iter"

	"github.com/controllerd/controllerd/cluster"
)

// Machine keeps the agenda of an image: the partitions for which Next would do
// something now, and the topics whose record asks for something. It is not safe
// for concurrent use.
//
// What concerns very many partitions at once, as the loss of a broker does, is
// looked at in slices: Continue goes on with it.
type Machine struct {
	im      *cluster.Image
	offline Offline // nil: nothing has failed
	due     agenda
	moving  agenda // of which a reassignment is under way, waits, or leaves something
	topics  agenda // the first partition of each topic that is to be deleted or completed
	reviews []review
	unsure  agenda // to be looked at: whether a replica of them is offline has changed
	check   *check // nil: none is running
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

// Review takes in for which partitions it has changed which replicas are
// offline; Continue looks at them. What changes together with a broker that
// Observe hears of needs no review.
func (m *Machine) Review(ids []cluster.PartitionID) {
	for _, id := range ids {
		m.unsure.set(id, true)
	}
}

// Observe brings the agenda up to date after a batch was applied. It looks
// only at the partitions that the events concern, and at the image, not into
// the events: more of them than needed do no harm. What a broker hosts is left to
// Continue.
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
			m.moving.set(e.ID, reassigned(e.New))
		case cluster.TopicAdded:
			m.reviewTopic(e.Topic.ID)
		case cluster.TopicChanged:
			m.reviewTopic(e.New.ID)
			if e.Old.Deleting() != e.New.Deleting() || m.im.UncleanAllowed(e.Old) != m.im.UncleanAllowed(e.New) {
				m.begin(review{topic: e.New.ID, of: ofTopic})
			}
		case cluster.TopicGone:
			m.reviewTopic(e.Topic.ID)
		case cluster.SettingsChanged:
			if e.Old.On(cluster.UncleanElection) != e.New.On(cluster.UncleanElection) {
				m.begin(review{of: ofLeaderless, topics: m.im.LeaderlessTopics()})
			}
		}
	}
}

// reviewTopic notes whether a topic is to be deleted or completed.
func (m *Machine) reviewTopic(id cluster.TopicID) {
	t := m.im.TopicByID(id)
	m.topics.set(cluster.PartitionID{Topic: id}, t != nil && (t.Deleting() || t.Made() < m.im.Had(t)))
}

// TopicsDue is how many topics are to be deleted or completed.
func (m *Machine) TopicsDue() int { return m.topics.count }

// Topics are those that are to be deleted or completed, in order of id. The
// machine must not be told of events meanwhile.
func (m *Machine) Topics() iter.Seq[*cluster.Topic] {
	return func(yield func(*cluster.Topic) bool) {
		m.topics.walk(func(t *dueTopic) bool {
			topic := m.im.TopicByID(t.id)
			return topic == nil || yield(topic)
		})
	}
}

func (m *Machine) reviewHosted(id cluster.BrokerID) {
	if !m.blank {
		m.begin(review{broker: id, of: ofBroker})
	}
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

// reassigned reports whether something of a reassignment is left to do.
func reassigned(p *cluster.Partition) bool {
	return p != nil && len(p.Adding)+len(p.Removing)+len(p.Target) > 0
}

// MovingCount is how many they are in all.
func (m *Machine) MovingCount() int { return m.moving.count }

// Moving are at most limit partitions, in order from one on, of which a
// reassignment is under way or waits, or of which former replicas are left.
func (m *Machine) Moving(from cluster.PartitionID, limit int) []cluster.PartitionID {
	return m.moving.from(from, limit)
}

// Agenda is the number of partitions for which something is to do.
func (m *Machine) Agenda() int { return m.due.count }

// Step is what to do next: a write for each of the first partitions of the
// agenda, at most limit in at most so many blocks, in order of partition. It
// changes nothing: until the image shows the writes, the same ones are due.
func (m *Machine) Step(t Term, limit, blocks int) []Write {
	ids := m.due.first(limit)
	out := make([]Write, 0, len(ids))
	var block cluster.BlockID // of the last write
	for _, id := range ids {
		old := m.im.Partition(id)
		if old == nil || m.im.TopicByID(id.Topic).Deleting() { // it is to be reviewed
			continue
		}
		next, changed := Next(old, m.At(id))
		if !changed {
			continue
		}
		if in := cluster.BlockOf(id, m.im.TopicByID(id.Topic).BlockSize()); in != block || len(out) == 0 {
			if block, blocks = in, blocks-1; blocks < 0 {
				break
			}
		}
		t.stamp(&next)
		out = append(out, Write{ID: id, Old: old, New: next})
	}
	return out
}
