package sim

import (
	"fmt"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// forgetTerm deletes the history of one of the terms before the last: without
// that of the last one and the epoch key nobody could know how high the epoch
// was.
func (w *World) forgetTerm() {
	e := max(1, w.checker.history.epoch-1-cluster.Epoch(w.rng.IntN(3)))
	if e == w.checker.history.epoch {
		return
	}
	w.rewrite(w.keys.Term(e), func(kv store.KV) store.Op { return store.Delete(kv.Key) })
}

// restartForeign restarts a broker that then says to have heard everything in a
// history of etcd that is not this one.
func (w *World) restartForeign() {
	i := w.rng.IntN(brokers)
	if b := w.brokers[i]; !b.dead {
		b.kill()
	}
	w.later(w.p.session/2, func() {
		if b := w.brokers[i]; b.dead {
			w.startBroker(i)
			w.brokers[i].foreign = true
		}
	})
}

// claimForeign makes a hello name a resume point of another history: its last
// term was won at another revision, or is not known here, or its revision is to
// come.
func (b *simBroker) claimForeign(hello *pb.Hello) {
	w := b.w
	if !b.foreign || hello.GetResume() != nil {
		return
	}
	b.foreign = false
	e, rev := w.checker.history.key, w.etcd.model.Rev()
	read, err := w.etcd.model.Get(w.keys.Term(e))
	if err != nil || len(read.KVs) == 0 {
		return
	}
	r := &pb.ResumePoint{ControllerEpoch: int64(e), ClaimRevision: int64(read.KVs[0].CreateRev), Revision: int64(rev)}
	switch w.rng.IntN(3) {
	case 0:
		r.ClaimRevision--
	case 1:
		r.ControllerEpoch += 1000
	default:
		r.Revision += 1000
	}
	hello.Resume = r
	w.seen["hello with a resume point of another history"]++
}

// metadataAmiss says which broker has other metadata than etcd, or metadata of
// what is gone.
func (w *World) metadataAmiss(truth *cluster.Image) string {
	var all cluster.Digest
	for _, t := range truth.SortedTopics() {
		truth.Partitions(t, func(id cluster.PartitionID, p *cluster.Partition) {
			if p != nil {
				all.Add(id, p.LeaderEpoch, p.PartitionEpoch)
			}
		})
	}
	for _, b := range w.brokers {
		if has := b.gate.Pong(0).GetMetadata(); has.GetCount() != all.Count || has.GetSum() != all.Sum {
			return fmt.Sprintf("%s has metadata of %d partitions, there are %d", b.name, has.GetCount(), all.Count)
		}
	}
	return ""
}
