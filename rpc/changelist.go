package rpc

import (
	"slices"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/store"
)

// changeList holds each partition once, in order of its last change. All
// brokers read the one list, each from its own cursor, so that what a slow
// broker has not heard yet costs nothing, and it hears the newest state only.
type changeList struct {
	log    []entry
	topics map[cluster.TopicID]*places
	recent *places // those used last
	last   int64   // the sequence number given last
	size   int     // of what it names
	dead   int     // entries of what has changed again since, or is gone
}

// change is what a reader sees.
type change struct {
	seq int64
	rev store.Rev // of the change; it never falls along the list
	id  cluster.PartitionID
}

// entry is a change as it is kept: there may be millions.
type entry struct {
	seq   int64
	rev   store.Rev
	topic *places
	index int32
}

// places are the newest sequence numbers of a topic's partitions.
type places struct {
	id   cluster.TopicID
	at   []int64 // by index, from theSeat; 0: not in the list
	size int     // of them are in the list
}

func (e *entry) dead() bool { return e.topic.of(e.index) != e.seq }

func (e *entry) change() change {
	return change{seq: e.seq, rev: e.rev, id: cluster.PartitionID{Topic: e.topic.id, Index: e.index}}
}

func (t *places) of(index int32) int64 {
	if i := int(index) - theSeat; t != nil && i < len(t.at) {
		return t.at[i]
	}
	return 0
}

func (t *places) set(index int32, seq int64) {
	i := int(index) - theSeat
	if i >= len(t.at) {
		t.at = append(roomy(t.at), make([]int64, i+1-len(t.at))...)
	}
	t.at[i] = seq
}

// roomy makes a full slice half as long again: append alone would copy a long
// one more often.
func roomy[T any](s []T) []T {
	if len(s) == cap(s) {
		return slices.Grow(s, 1+len(s)/2)
	}
	return s
}

func newChangeList() *changeList { return &changeList{topics: map[cluster.TopicID]*places{}} }

// touch moves a partition to the end: it has changed at rev.
func (l *changeList) touch(id cluster.PartitionID, rev store.Rev) {
	t := l.find(id.Topic)
	if t == nil {
		t = &places{id: id.Topic}
		l.topics[id.Topic], l.recent = t, t
	}
	if t.of(id.Index) == 0 {
		t.size++
		l.size++
	} else {
		l.dead++
	}
	l.last++
	t.set(id.Index, l.last)
	l.log = append(roomy(l.log), entry{seq: l.last, rev: rev, topic: t, index: id.Index})
	l.tidy()
}

// remove takes a partition out.
func (l *changeList) remove(id cluster.PartitionID) {
	t := l.find(id.Topic)
	if t.of(id.Index) == 0 {
		return
	}
	t.set(id.Index, 0)
	l.size--
	l.dead++
	if t.size--; t.size == 0 {
		delete(l.topics, id.Topic)
		l.recent = nil
	}
	l.tidy()
}

func (l *changeList) find(id cluster.TopicID) *places {
	if l.recent == nil || l.recent.id != id {
		l.recent = l.topics[id]
	}
	return l.recent
}

func (l *changeList) tidy() {
	if l.dead > 64 && l.dead > len(l.log)/2 {
		l.log = slices.DeleteFunc(l.log, func(e entry) bool { return e.dead() })
		l.dead = 0
	}
}

// revOf is the revision of the last change of a partition, 0 if it is not in
// the list.
func (l *changeList) revOf(id cluster.PartitionID) store.Rev {
	seq := l.find(id.Topic).of(id.Index)
	if seq == 0 {
		return 0
	}
	return l.log[l.index(seq)].rev
}

// after visits what changed after the cursor, in order, until visit says no.
func (l *changeList) after(cursor int64, visit func(change) bool) {
	for i := l.index(cursor + 1); i < len(l.log); i++ {
		if e := &l.log[i]; !e.dead() && !visit(e.change()) {
			return
		}
	}
}

// index is the position of the first change at or after a sequence number.
func (l *changeList) index(seq int64) int {
	i, _ := slices.BinarySearchFunc(l.log, seq, func(e entry, s int64) int { return int(e.seq - s) })
	return i
}

// upTo is the cursor behind every change up to a revision.
func (l *changeList) upTo(rev store.Rev) int64 {
	i, _ := slices.BinarySearchFunc(l.log, rev, func(e entry, r store.Rev) int {
		if e.rev <= r {
			return -1
		}
		return 1
	})
	if i == len(l.log) {
		return l.last
	}
	return l.log[i].seq - 1
}

// nextRev is the revision of the first change after the cursor, 0 if there is
// none.
func (l *changeList) nextRev(cursor int64) (rev store.Rev) {
	l.after(cursor, func(c change) bool { rev = c.rev; return false })
	return rev
}
