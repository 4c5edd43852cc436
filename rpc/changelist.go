package rpc

import (
	"slices"

	"github.com/controllerd/controllerd/cluster"
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
	id   cluster.PartitionID
	dead bool // changed again since, or gone
}

func newChangeList() *changeList { return &changeList{at: map[cluster.PartitionID]int64{}} }

// touch moves a partition to the end.
func (l *changeList) touch(id cluster.PartitionID) {
	l.remove(id)
	l.last++
	l.at[id] = l.last
	l.log = append(l.log, change{seq: l.last, id: id})
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
