package rpc

import (
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// mismatchPause is how long a broker is left alone after it was told everything
// again because it held something else; it doubles while that does not help.
const mismatchPause = time.Minute

// digests are those of what brokers should hold.
type digests struct {
	all    cluster.Digest
	hosted map[cluster.BrokerID]*cluster.Digest
}

// change takes in a change of the image.
func (d *digests) change(ev cluster.PartitionChanged) {
	if p := ev.Old; p != nil {
		was := cluster.DigestOf(ev.ID, p.LeaderEpoch, p.PartitionEpoch)
		d.all.Exclude(was)
		for _, b := range p.Replicas {
			d.of(b).Exclude(was)
		}
	}
	if p := ev.New; p != nil {
		is := cluster.DigestOf(ev.ID, p.LeaderEpoch, p.PartitionEpoch)
		d.all.Include(is)
		for _, b := range p.Replicas {
			d.of(b).Include(is)
		}
	}
}

func (d *digests) of(id cluster.BrokerID) *cluster.Digest {
	h := d.hosted[id]
	if h == nil {
		h = &cluster.Digest{}
		d.hosted[id] = h
	}
	return h
}

// checkDigest compares what a broker holds with what it should, if nothing is
// on its way that would make a difference. A gate holds a state once it has
// admitted the command; how the handler fares makes no difference, or a result
// that never comes would hide that there is none to come. What a broker holds
// wrong, it is told everything again: a lost event of the watch, or a fault in
// its memory.
func (p *Pusher) checkDigest(now time.Duration, t *target, pong *pb.Pong) {
	if !t.began || t.fullSince != 0 || t.ghosts != 0 || t.cursor != p.changes.last || t.unacked > 0 || p.unstopped(t) || p.undeleted(t) || now < t.noCheck || pong.GetHosted() == nil || p.TakenOut.Digest.IsOpen() {
		return
	}
	wrong := !same(p.digests.of(t.id), pong.GetHosted())
	if t.scope == pb.MetadataScope_METADATA_SCOPE_ALL {
		wrong = wrong || !same(&p.digests.all, pong.GetMetadata())
	}
	if !wrong {
		t.mismatches = 0
		return
	}
	p.Stats.Mismatched++
	t.noCheck = now + mismatchPause<<min(t.mismatches, 10)
	t.mismatches++
	t.fromStart()
}

func same(d *cluster.Digest, w *pb.Digest) bool {
	return d.Count == w.GetCount() && d.Sum == w.GetSum()
}
