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
	log  []change
	at   map[cluster.PartitionID]int64
	last int64 // the sequence number given last
	dead int
}

type change struct {
	seq  int64
	rev  store.Rev // of the change; it never falls along the list
	id   cluster.PartitionID
	dead bool // changed again since, or gone
}

func newChangeList() *changeList { return &changeList{at: map[cluster.PartitionID]int64{}} }

// touch moves a partition to the end: it has changed at rev.
func (l *changeList) touch(id cluster.PartitionID, rev store.Rev) {
	l.remove(id)
	l.last++
	l.at[id] = l.last
	l.log = append(l.log, change{seq: l.last, rev: rev, id: id})
}

// remove takes a partition out.
func (l *changeList) remove(id cluster.PartitionID) {
	seq, ok := l.at[id]
	if !ok {
		return
	}
	delete(l.at, id)
	l.log[l.index(seq)].dead = true
	l.dead++
	if l.dead > 64 && l.dead > len(l.log)/2 {
		l.log = slices.DeleteFunc(l.log, func(c change) bool { return c.dead })
		l.dead = 0
	}
}

// revOf is the revision of the last change of a partition, 0 if it is not in
// the list.
func (l *changeList) revOf(id cluster.PartitionID) store.Rev {
	seq, ok := l.at[id]
	if !ok {
		return 0
	}
	return l.log[l.index(seq)].rev
}

// after visits what changed after the cursor, in order, until visit says no.
func (l *changeList) after(cursor int64, visit func(change) bool) {
	for _, c := range l.log[l.index(cursor+1):] {
		if !c.dead && !visit(c) {
			return
		}
	}
}

// index is the position of the first change at or after a sequence number.
func (l *changeList) index(seq int64) int {
	i, _ := slices.BinarySearchFunc(l.log, seq, func(c change, s int64) int { return int(c.seq - s) })
	return i
}

// upTo is the cursor behind every change up to a revision.
func (l *changeList) upTo(rev store.Rev) int64 {
	i, _ := slices.BinarySearchFunc(l.log, rev, func(c change, r store.Rev) int {
		if c.rev <= r {
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
