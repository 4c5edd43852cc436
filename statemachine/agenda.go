package statemachine

import (
	"bytes"
	"container/heap"
	"math/bits"
	"slices"

	"github.com/controllerd/controllerd/cluster"
)

// agenda is a set of partitions that gives its first members in order. The
// zero value is empty. Putting in, taking out and asking do not sort: a
// million members cost a bit each.
type agenda struct {
	topics map[cluster.TopicID]*dueTopic
	order  topicHeap // all of topics, each once
	count  int
	empty  int // topics that have no members left
}

// dueTopic holds the members of one topic.
type dueTopic struct {
	id    cluster.TopicID
	bits  []uint64 // by index
	count int
	low   int // no bit is set in a word before it
}

func (a *agenda) has(id cluster.PartitionID) bool {
	t := a.topics[id.Topic]
	word := int(id.Index / 64)
	return t != nil && word < len(t.bits) && t.bits[word]&(1<<(id.Index%64)) != 0
}

func (a *agenda) set(id cluster.PartitionID, due bool) {
	if due == a.has(id) {
		return
	}
	word, bit := int(id.Index/64), uint64(1)<<(id.Index%64)
	t := a.topics[id.Topic]
	if !due {
		t.bits[word] &^= bit
		a.count--
		if t.count--; t.count == 0 {
			a.empty++
		}
		return
	}
	if t == nil {
		if a.topics == nil {
			a.topics = map[cluster.TopicID]*dueTopic{}
		}
		a.tidy()
		t = &dueTopic{id: id.Topic}
		a.topics[id.Topic] = t
		a.empty++
		heap.Push(&a.order, t)
	}
	if t.count == 0 {
		a.empty--
	}
	for word >= len(t.bits) {
		t.bits = append(t.bits, 0)
	}
	t.bits[word] |= bit
	t.low = min(t.low, word)
	t.count++
	a.count++
}

// indices is above the index of each member of a topic.
func (a *agenda) indices(id cluster.TopicID) int32 {
	if t := a.topics[id]; t != nil {
		return int32(len(t.bits)) * 64
	}
	return 0
}

// tidy drops the topics that have no members left, if they are many: a standby
// never asks for the first.
func (a *agenda) tidy() {
	if a.empty < 64 || a.empty < len(a.order)/2 {
		return
	}
	a.order = slices.DeleteFunc(a.order, func(t *dueTopic) bool {
		if t.count == 0 {
			delete(a.topics, t.id)
		}
		return t.count == 0
	})
	heap.Init(&a.order)
	a.empty = 0
}

// first is at most limit members in order.
func (a *agenda) first(limit int) []cluster.PartitionID {
	out := make([]cluster.PartitionID, 0, max(0, min(limit, a.count)))
	a.walk(func(t *dueTopic) bool {
		out = t.first(out, limit)
		return len(out) < limit
	})
	return out
}

// from is at most limit members in order, from one on.
func (a *agenda) from(id cluster.PartitionID, limit int) []cluster.PartitionID {
	var out []cluster.PartitionID
	a.walk(func(t *dueTopic) bool {
		switch c := bytes.Compare(t.id[:], id.Topic[:]); {
		case c > 0:
			out = t.first(out, limit)
		case c == 0:
			for _, x := range t.first(nil, t.count) {
				if x.Index >= id.Index && len(out) < limit {
					out = append(out, x)
				}
			}
		}
		return len(out) < limit
	})
	return out
}

// walk visits the topics that have members, in order, until visit says no. It
// costs what it visits.
func (a *agenda) walk(visit func(*dueTopic) bool) {
	var visited []*dueTopic
	for more := true; more && len(a.order) > 0; {
		t := heap.Pop(&a.order).(*dueTopic)
		if t.count == 0 {
			delete(a.topics, t.id)
			a.empty--
			continue
		}
		visited = append(visited, t)
		more = visit(t)
	}
	for _, t := range visited {
		heap.Push(&a.order, t)
	}
}

// first adds members up to limit.
func (t *dueTopic) first(out []cluster.PartitionID, limit int) []cluster.PartitionID {
	for t.bits[t.low] == 0 {
		t.low++
	}
	for n, word := range t.bits[t.low:] {
		for ; word != 0; word &= word - 1 {
			if len(out) == limit {
				return out
			}
			index := (t.low+n)*64 + bits.TrailingZeros64(word)
			out = append(out, cluster.PartitionID{Topic: t.id, Index: int32(index)})
		}
	}
	return out
}

// topicHeap has the lowest topic id first.
type topicHeap []*dueTopic

func (h topicHeap) Len() int { return len(h) }
func (h topicHeap) Less(i, j int) bool {
	return cluster.PartitionID{Topic: h[i].id}.Compare(cluster.PartitionID{Topic: h[j].id}) < 0
}
func (h topicHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *topicHeap) Push(x any)   { *h = append(*h, x.(*dueTopic)) }
func (h *topicHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return t
}
