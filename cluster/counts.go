package cluster

import (
	"slices"
	"strings"
)

// Health counts the visible partitions of a topic, or of all topics.
type Health struct {
	Partitions      int32 // that topic records count
	Unknown         int32 // whose record is missing or unreadable
	Offline         int32 // that have no leader
	UnderReplicated int32 // whose ISR lacks replicas
	NotPreferred    int32 // that are not LedByPreferred
}

// Load counts what a broker hosts of the readable visible partitions.
type Load struct {
	Replicas, Leaders int32
	// Preferred are the partitions of which it has the first replica, Imbalanced
	// those of them that it does not lead.
	Preferred, Imbalanced int32
	// Alone are the partitions that it leads and has the only replica of.
	Alone int32
}

// Moves counts what is under way of reassignments.
type Moves struct {
	Adding  int32 // partitions that are adding replicas
	Moving  int32 // partitions of which a reassignment is under way
	Queued  int32 // partitions that wait for one
	Leaving int32 // partitions of which former replicas have yet to confirm that they are deleted
}

// counts are kept with each change, so that nobody who asks has to walk all
// partitions.
type counts struct {
	all    Health // but Unknown
	wanted int64  // partitions that are made or wanted
	known  int32  // readable visible partitions
	moves  Moves
	topics map[TopicID]*topicCounts
	loads  map[BrokerID]*Load
	sorted []*Topic            // in order of name
	alike  map[string][]string // names of topics by MetricName
}

// topicCounts are Health without Partitions and Unknown, what Unknown follows
// from, and the partitions that are moving or wait for it.
type topicCounts struct{ known, offline, underReplicated, notPreferred, moves int32 }

func newCounts() counts {
	return counts{topics: map[TopicID]*topicCounts{}, loads: map[BrokerID]*Load{}, alike: map[string][]string{}}
}

// Health counts the partitions of a visible topic.
func (im *Image) Health(t *Topic) Health {
	h := Health{Partitions: t.Made(), Unknown: t.Made()}
	if n := im.counts.topics[t.ID]; n != nil {
		h.Unknown, h.Offline, h.UnderReplicated, h.NotPreferred = t.Made()-n.known, n.offline, n.underReplicated, n.notPreferred
	}
	return h
}

// HealthOfAll counts the partitions of all topics.
func (im *Image) HealthOfAll() Health {
	h := im.counts.all
	h.Unknown = h.Partitions - im.counts.known
	return h
}

// Moves is how many partitions of a topic are being reassigned, or wait for it.
func (im *Image) Moves(t *Topic) int32 {
	if n := im.counts.topics[t.ID]; n != nil {
		return n.moves
	}
	return 0
}

// MovesOfAll counts the reassignments of all topics.
func (im *Image) MovesOfAll() Moves { return im.counts.moves }

// LeaderlessTopics are the topics that have partitions without a leader, in
// order of name.
func (im *Image) LeaderlessTopics() []TopicID {
	var out []TopicID
	for _, t := range im.counts.sorted {
		if n := im.counts.topics[t.ID]; n != nil && n.offline > 0 {
			out = append(out, t.ID)
		}
	}
	return out
}

// Load counts what a broker hosts, live or not.
func (im *Image) Load(id BrokerID) Load {
	if l := im.counts.loads[id]; l != nil {
		return *l
	}
	return Load{}
}

// Wanted is how many partitions there are, with those that topic records want
// and that are not made yet.
func (im *Image) Wanted() int64 { return im.counts.wanted }

// SortedTopics are the visible topics in order of name.
func (im *Image) SortedTopics() []*Topic { return slices.Clone(im.counts.sorted) }

// TopicsAfter are at most limit topics in order of name, from the first name
// behind the given one.
func (im *Image) TopicsAfter(name string, limit int) []*Topic {
	i, found := im.counts.find(name)
	if found {
		i++
	}
	rest := im.counts.sorted[i:]
	return slices.Clone(rest[:min(limit, len(rest))])
}

// TopicsLike are the names of topics that metrics cannot tell from the given
// one; see MetricName.
func (im *Image) TopicsLike(name string) []string { return im.counts.alike[MetricName(name)] }

// MetricName is a topic's name as metrics show it: they cannot tell '.' from
// '_', so two topics must not differ in that only.
func MetricName(name string) string { return strings.ReplaceAll(name, ".", "_") }

func (c *counts) find(name string) (int, bool) {
	return slices.BinarySearchFunc(c.sorted, name, func(t *Topic, name string) int { return strings.Compare(t.Name, name) })
}

// topic takes in that a topic's record has changed; nil: there is none.
func (c *counts) topic(old, now *Topic) {
	if old != nil {
		c.all.Partitions -= old.Made()
		c.wanted -= int64(max(old.Made(), old.Wanted()))
	}
	if now != nil {
		c.all.Partitions += now.Made()
		c.wanted += int64(max(now.Made(), now.Wanted()))
	}
	switch {
	case old != nil && now != nil:
		i, _ := c.find(now.Name)
		c.sorted[i] = now
	case now != nil:
		i, _ := c.find(now.Name)
		c.sorted = slices.Insert(c.sorted, i, now)
		metric := MetricName(now.Name)
		c.alike[metric] = append(c.alike[metric], now.Name)
	case old != nil:
		i, _ := c.find(old.Name)
		c.sorted = slices.Delete(c.sorted, i, i+1)
		metric := MetricName(old.Name)
		c.alike[metric] = slices.DeleteFunc(c.alike[metric], func(name string) bool { return name == old.Name })
		if len(c.alike[metric]) == 0 {
			delete(c.alike, metric)
		}
		delete(c.topics, old.ID)
	}
}

// partition takes in a change of a visible partition.
func (c *counts) partition(ev PartitionChanged) {
	t := c.topics[ev.ID.Topic]
	if t == nil {
		t = &topicCounts{}
		c.topics[ev.ID.Topic] = t
	}
	if ev.Old != nil {
		c.add(t, ev.Old, -1)
	}
	if ev.New != nil {
		c.add(t, ev.New, 1)
	}
}

func (c *counts) add(t *topicCounts, p *Partition, n int32) {
	c.known += n
	t.known += n
	if p.Leader == NoLeader {
		c.all.Offline += n
		t.offline += n
	} else {
		l := c.load(p.Leader)
		if l.Leaders += n; len(p.Replicas) == 1 {
			l.Alone += n
		}
	}
	first := c.load(p.Replicas[0])
	first.Preferred += n
	if !p.LedByPreferred() {
		first.Imbalanced += n
		c.all.NotPreferred += n
		t.notPreferred += n
	}
	if len(p.ISR) < len(p.Replicas) {
		c.all.UnderReplicated += n
		t.underReplicated += n
	}
	for _, id := range p.Replicas {
		c.load(id).Replicas += n
	}
	if len(p.Adding)+len(p.Removing)+len(p.Target) > 0 {
		c.addMoves(t, p, n)
	}
}

func (c *counts) addMoves(t *topicCounts, p *Partition, n int32) {
	moving := p.Moving()
	if len(p.Adding) > 0 {
		c.moves.Adding += n
	}
	if moving {
		c.moves.Moving += n
	}
	if p.Queued() {
		c.moves.Queued += n
	}
	if moving || p.Queued() {
		t.moves += n
	}
	if len(p.Leaving()) > 0 {
		c.moves.Leaving += n
	}
}

func (c *counts) load(id BrokerID) *Load {
	l := c.loads[id]
	if l == nil {
		l = &Load{}
		c.loads[id] = l
	}
	return l
}
