package rpc

import (
	"container/heap"
	"slices"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/store"
)

// owed is what a broker was sent on the open stream and has not applied.
type owed struct {
	pending map[cluster.PartitionID]sent // result not known
	retries map[cluster.PartitionID]*retry
	tries   tries // of retries
	revs    revs  // of the changes that those were sent for
}

// sent is a state on its way.
type sent struct {
	epoch cluster.LeaderEpoch
	// rev is that of the change that it was sent for; 0: it is that of an offline
	// replica, which nothing waits for, since every hello names it.
	rev store.Rev
}

func newOwed() owed {
	return owed{
		pending: map[cluster.PartitionID]sent{}, retries: map[cluster.PartitionID]*retry{},
		revs: revs{counts: map[store.Rev]int{}},
	}
}

// send notes a state on its way.
func (o *owed) send(id cluster.PartitionID, s sent) {
	if old, ok := o.pending[id]; ok {
		o.revs.drop(old.rev)
	}
	o.pending[id] = s
	o.revs.add(s.rev)
}

// answered forgets a state on its way. A map keeps the room that it has once
// needed, here for every replica of the broker, so the last one takes the map
// along.
func (o *owed) answered(id cluster.PartitionID) {
	s, ok := o.pending[id]
	if !ok {
		return
	}
	o.revs.drop(s.rev)
	if delete(o.pending, id); len(o.pending) == 0 {
		o.pending = map[cluster.PartitionID]sent{}
	}
}

// retry notes a state that is to be tried again, for the first time.
func (o *owed) retry(id cluster.PartitionID, r *retry) {
	o.retries[id] = r
	o.revs.add(r.rev)
}

// settle forgets a state that is to be tried again.
func (o *owed) settle(id cluster.PartitionID) {
	if r := o.retries[id]; r != nil {
		o.revs.drop(r.rev)
		delete(o.retries, id)
	}
}

// forgive takes in which brokers do not host a partition any more: of a state
// that was on its way to them there may be no result, since a broker answers
// the newest that it was told, and that is to stop.
func (p *Pusher) forgive(ev cluster.PartitionChanged) {
	if ev.Old == nil || ev.New != nil && slices.Equal(ev.Old.Replicas, ev.New.Replicas) {
		return
	}
	for _, b := range ev.Old.Replicas {
		if t := p.targets[b]; t != nil && (ev.New == nil || !slices.Contains(ev.New.Replicas, b)) {
			t.answered(ev.ID)
			t.settle(ev.ID)
		}
	}
}

func (o *owed) done(id cluster.PartitionID, le cluster.LeaderEpoch) {
	if s, ok := o.pending[id]; ok && s.epoch <= le {
		o.answered(id)
	}
	if r := o.retries[id]; r != nil && r.epoch <= le {
		o.settle(id)
	}
}

// revs is a bag of revisions, but for 0, that knows the lowest.
type revs struct {
	counts map[store.Rev]int
	order  revHeap // each of counts once
}

func (r *revs) add(rev store.Rev) {
	if rev == 0 {
		return
	}
	n, known := r.counts[rev]
	if r.counts[rev] = n + 1; !known {
		heap.Push(&r.order, rev)
	}
}

func (r *revs) drop(rev store.Rev) {
	if rev == 0 {
		return
	}
	r.counts[rev]--
	for len(r.order) > 0 && r.counts[r.order[0]] == 0 {
		delete(r.counts, heap.Pop(&r.order).(store.Rev))
	}
}

// lowest is false if the bag is empty.
func (r *revs) lowest() (store.Rev, bool) {
	if len(r.order) == 0 {
		return 0, false
	}
	return r.order[0], true
}

type revHeap []store.Rev

func (h revHeap) Len() int           { return len(h) }
func (h revHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h revHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *revHeap) Push(x any)        { *h = append(*h, x.(store.Rev)) }
func (h *revHeap) Pop() any {
	last := len(*h) - 1
	rev := (*h)[last]
	*h = (*h)[:last]
	return rev
}
