package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// failStorage takes replicas of a broker offline, which it says at once or finds
// out with the next command. The storage comes back after a while.
func (w *World) failStorage() {
	b := pick(w, w.brokers[:]...)
	if !b.runs() {
		return
	}
	var lost []cluster.PartitionID
	for _, id := range b.gate.Replicas() {
		if w.chance(0.3) {
			lost = append(lost, id)
			b.broken[id] = true
		}
	}
	w.tracef("%s: storage of %d replicas fails", b.name, len(lost))
	if w.chance(0.7) {
		gone := b.gate.SetOffline(lost...)
		b.report(&pb.ReplicaReport{Offline: fencing.WireReplicas(gone)})
	}
	w.later(pick(w, time.Second, 2*w.p.session), b.mendStorage)
}

// mendStorage brings the broker's storage back.
func (b *simBroker) mendStorage() {
	if len(b.broken) == 0 || b.dead {
		return
	}
	clear(b.broken)
	b.report(&pb.ReplicaReport{Restored: fencing.WireReplicas(b.gate.OfflineAmong(b.gate.Replicas()))})
}

// report says something on all streams.
func (b *simBroker) report(r *pb.ReplicaReport) {
	for _, s := range b.streams {
		s.answer(&pb.CommandsResponse{Response: &pb.CommandsResponse_Report{Report: r}})
	}
}

// storageFailed takes in that a handler found the storage broken.
func (b *simBroker) storageFailed(s *fencing.PartitionState) {
	b.w.seen["storage error"]++
	b.gate.Failed(s.Partition, s.LeaderEpoch)
	if gone := b.gate.SetOffline(s.Partition); len(gone) > 0 {
		b.report(&pb.ReplicaReport{Offline: fencing.WireReplicas(gone)})
	}
}

// noteStrays stops what a full sync did not name. Its data stays.
func (b *simBroker) noteStrays(v *fencing.Verdict) {
	var found []fencing.HeldReplica
	for _, s := range v.Strays {
		b.w.seen["stray"]++
		if s.Delete {
			b.w.blame(ErrDataLost, "%s is to delete %s, because a full sync did not name it", b.name, s.Partition)
		}
		// One that is being added may have been assigned since the sync was made.
		if p := b.w.truth().Partition(s.Partition); p != nil && slices.Contains(p.Replicas, b.id) && !slices.Contains(p.Adding, b.id) && b.w.calm {
			b.w.blame(ErrNotConverged, "%s stops %s, which is assigned to it", b.name, s.Partition)
		}
		found = append(found, fencing.HeldReplica{Topic: s.Topic, Partition: s.Partition, LeaderEpoch: s.LeaderEpoch})
		delete(b.work, s.Partition)
		delete(b.done, s.Partition)
	}
	if len(found)+len(v.Assigned) > 0 {
		b.report(&pb.ReplicaReport{Strays: fencing.WireReplicas(found), FormerStrays: fencing.WireReplicas(v.Assigned)})
	}
}

// find tells the gate of a new process what is on the disk.
func (b *simBroker) find() {
	for _, id := range slices.Concat(b.w.disks[b.id].sorted(), b.w.planted[b.id].sorted()) {
		b.gate.Found([]fencing.HeldReplica{{Partition: id, LeaderEpoch: fencing.UnknownLeaderEpoch}})
	}
}

// plantStray kills a broker and puts data of a replica on its disk that nobody
// has assigned to it, as a reassignment while it was away would leave.
func (w *World) plantStray() {
	i := w.rng.IntN(brokers)
	truth := w.truth()
	for _, t := range truth.SortedTopics() {
		id := cluster.PartitionID{Topic: t.ID}
		if p := truth.Partition(id); p != nil && !slices.Contains(p.Replicas, cluster.BrokerID(i)) && !w.disks[i][id] {
			w.planted[i][id] = true
			break
		}
	}
	if !w.brokers[i].dead {
		w.brokers[i].kill()
	}
	w.later(pick(w, 20*time.Millisecond, 2*w.p.session), func() { w.startBroker(i) })
}

// straysAmiss says of which broker the active knows other strays, or other
// offline replicas, than the broker itself.
func (w *World) straysAmiss(active *simDaemon) string {
	for _, b := range w.brokers {
		if !slices.Equal(active.loop.Pusher().Strays(b.id), b.gate.Strays()) {
			return fmt.Sprintf("%s has strays %v, the active knows %v", b.name, b.gate.Strays(), active.loop.Pusher().Strays(b.id))
		}
		if n := active.loop.Pusher().OfflineReplicas(b.id); n != b.gate.Offline() || n > 0 {
			return b.name + " has offline replicas"
		}
		for _, r := range b.gate.Strays() {
			if !w.planted[b.id][r.Partition] {
				return b.name + " has a stray that nobody has left"
			}
		}
	}
	return ""
}
