package fencing

import (
	"slices"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// UnknownLeaderEpoch is that of a replica of which nobody remembers it.
const UnknownLeaderEpoch cluster.LeaderEpoch = -1

// HeldReplica is a replica that a broker has on its disks.
type HeldReplica struct {
	Topic       string
	Partition   cluster.PartitionID
	LeaderEpoch cluster.LeaderEpoch // UnknownLeaderEpoch: not known
}

// Found says what an earlier process has left on the disks. It is called once,
// before the first command.
func (g *Gate) Found(replicas []HeldReplica) {
	for _, r := range replicas {
		g.found[r.Partition] = r
	}
}

// Exists reports whether a replica is known to be on the disks: it was found
// there, or a handler has made or opened it.
func (g *Gate) Exists(p cluster.PartitionID) bool {
	_, found := g.found[p]
	h := g.hosted[p]
	return found || h != nil && h.exists
}

// Applied says that the handler for the newest state of a partition has ended
// well: whatever storage it needs is there.
func (g *Gate) Applied(s *PartitionState) {
	delete(g.offline, s.Partition)
	if h := g.hosted[s.Partition]; h != nil {
		h.exists = !s.Delete
	}
}

// Touched says that a handler may have made a replica, though it did not end
// well.
func (g *Gate) Touched(p cluster.PartitionID) {
	if h := g.hosted[p]; h != nil {
		h.exists = true
	}
}

// SetOffline says that the storage of replicas has failed. The next command
// about one of them runs its handler again, even at the leader epoch that is
// held. It returns those that were not offline. Replicas that are not here, or
// that were stopped, are left out.
func (g *Gate) SetOffline(replicas ...cluster.PartitionID) []HeldReplica {
	var out []HeldReplica
	for _, id := range replicas {
		h := g.hosted[id]
		if _, found := g.found[id]; h == nil && !found || h != nil && h.state.Stop {
			continue
		}
		if h != nil {
			h.failed = true
		}
		if _, known := g.offline[id]; !known {
			g.offline[id] = g.held(id)
			out = append(out, g.offline[id])
		}
	}
	return out
}

// OfflineAmong returns those of the replicas that are offline.
func (g *Gate) OfflineAmong(replicas []cluster.PartitionID) []HeldReplica {
	var out []HeldReplica
	for _, id := range replicas {
		if r, ok := g.offline[id]; ok {
			out = append(out, r)
		}
	}
	return out
}

// Offline is how many replicas are offline.
func (g *Gate) Offline() int { return len(g.offline) }

// held is what is known of a replica.
func (g *Gate) held(id cluster.PartitionID) HeldReplica {
	if h := g.hosted[id]; h != nil {
		return HeldReplica{h.state.Topic, id, h.state.LeaderEpoch}
	}
	if r, ok := g.found[id]; ok {
		return r
	}
	return HeldReplica{Partition: id, LeaderEpoch: UnknownLeaderEpoch}
}

// Strays are the replicas that a full sync did not name, in order.
func (g *Gate) Strays() []HeldReplica {
	var out []HeldReplica
	for id := range g.strays {
		out = append(out, g.held(id))
	}
	sortHeld(out)
	return out
}

// finishSync decides which replicas are stray: those of the topics that a full
// sync covers which no command of it has named, nor one made since it began.
// What they do is to be stopped; their data stays, until a StopReplica names
// them or a LeaderAndIsr assigns them again.
func (g *Gate) finishSync(fs *pb.FullSync, made store.Rev) []PartitionState {
	since := store.Rev(fs.GetSinceRevision())
	if since <= 0 {
		return nil
	}
	covered := map[cluster.TopicID]bool{}
	for _, raw := range fs.GetTopicIds() {
		if id, err := cluster.TopicIDFrom(raw); err == nil {
			covered[id] = true
		}
	}
	var out []PartitionState
	for id, h := range g.hosted {
		gone := h.state.Delete || h.state.Stop && !h.exists || h.stray && !h.failed
		if h.named < since && !gone && covered[id.Topic] {
			out = append(out, strayState(g.held(id)))
		}
	}
	for id, r := range g.found {
		if covered[id.Topic] && g.hosted[id] == nil {
			out = append(out, strayState(r))
		}
	}
	slices.SortFunc(out, func(a, b PartitionState) int { return a.Partition.Compare(b.Partition) })
	for i := range out {
		g.unbindHosted(out[i].Partition)
		g.hold(&out[i])
		h := g.hosted[out[i].Partition]
		h.stray, h.exists, h.named = true, true, made
		g.strays[out[i].Partition] = struct{}{}
	}
	return out
}

// FailedStray says that a stray could not be stopped, and reports whether the
// replica is one. The next full sync that does not name it says so again.
func (g *Gate) FailedStray(p cluster.PartitionID) bool {
	h := g.hosted[p]
	if h == nil || !h.stray {
		return false
	}
	h.failed = true
	return true
}

// strayState is the end of a replica that nobody has assigned.
func strayState(r HeldReplica) PartitionState {
	return PartitionState{Topic: r.Topic, Partition: r.Partition, Leader: cluster.NoLeader, LeaderEpoch: r.LeaderEpoch, Stop: true}
}

// WireReplicas are replicas as messages carry them, in order of partition.
func WireReplicas(replicas []HeldReplica) []*pb.TopicReplicas {
	replicas = slices.Clone(replicas)
	sortHeld(replicas)
	var out []*pb.TopicReplicas
	for _, r := range replicas {
		if n := len(out); n == 0 || string(out[n-1].GetTopicId()) != string(r.Partition.Topic[:]) || out[n-1].GetTopic() != r.Topic { // of some the name is not known
			out = append(out, &pb.TopicReplicas{TopicId: r.Partition.Topic[:], Topic: r.Topic})
		}
		t := out[len(out)-1]
		t.Replicas = append(t.Replicas, &pb.HeldReplica{Partition: r.Partition.Index, LeaderEpoch: int32(r.LeaderEpoch)})
	}
	return out
}

// HeldReplicas are replicas from a message, without those whose topic id is
// none.
func HeldReplicas(topics []*pb.TopicReplicas) []HeldReplica {
	var out []HeldReplica
	for _, t := range topics {
		id, err := cluster.TopicIDFrom(t.GetTopicId())
		if err != nil {
			continue
		}
		for _, r := range t.GetReplicas() {
			out = append(out, HeldReplica{t.GetTopic(), cluster.PartitionID{Topic: id, Index: r.GetPartition()}, cluster.LeaderEpoch(r.GetLeaderEpoch())})
		}
	}
	return out
}

func sortHeld(replicas []HeldReplica) {
	slices.SortFunc(replicas, func(a, b HeldReplica) int { return a.Partition.Compare(b.Partition) })
}
