package rpc

import (
	"container/heap"
	"slices"
	"time"

	"github.com/controllerd/controllerd/cluster"
)

// tries is when replicas are tried again, the soonest first. Each retry is in it
// with its time; what has another time since, or is none any more, is passed
// over. So a step looks at what it sends only, however many replicas have failed.
type tries []try

type try struct {
	at time.Duration
	id cluster.PartitionID
}

// set notes when a replica is tried again.
func (t *tries) set(id cluster.PartitionID, r *retry, at time.Duration) {
	r.at = at
	heap.Push(t, try{at, id})
}

// soonest is the first time, at the latest next.
func (t tries) soonest(next time.Duration) time.Duration {
	if len(t) == 0 {
		return next
	}
	return min(next, t[0].at)
}

// batch is what is tried again with one command.
type batch struct {
	states []state
	size   int // in bytes, as estimated
}

// room reports whether another state of a size fits. One that is larger than a
// command goes alone.
func (b *batch) room(size int) bool {
	return len(b.states) == 0 || len(b.states) < maxStates && b.size+size <= maxChunk
}

// again adds to a batch what is to be tried now. What the broker does not host
// any more is forgotten.
func (b *batch) again(now time.Duration, im *cluster.Image, t *target, line *tries, of map[cluster.PartitionID]*retry, forget func(cluster.PartitionID)) {
	for len(*line) > 0 && (*line)[0].at <= now {
		first := &(*line)[0]
		id, r := first.id, of[first.id]
		if r == nil || r.at != first.at {
			heap.Pop(line)
			continue
		}
		part := im.Partition(id)
		if part == nil || !slices.Contains(part.Replicas, t.id) {
			heap.Pop(line)
			forget(id)
			continue
		}
		if _, sent := t.pending[id]; !sent { // else the result decides
			s := state{topic: im.TopicByID(id.Topic), id: id, p: part}
			size := estimate(s.topic, part)
			if !b.room(size) {
				return
			}
			b.states, b.size = append(b.states, s), b.size+size
			r.restored = false
		}
		r.at = now + MaxRetry
		first.at = r.at
		heap.Fix(line, 0)
	}
}

// pop takes out the first.
func (t *tries) pop() try { return heap.Pop(t).(try) }

func (t tries) Len() int           { return len(t) }
func (t tries) Less(i, j int) bool { return t[i].at < t[j].at }
func (t tries) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *tries) Push(x any)        { *t = append(*t, x.(try)) }
func (t *tries) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	*t = (*t)[:last]
	return x
}
