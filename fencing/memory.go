package fencing

import (
	"maps"
	"slices"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// Heard is the highest revision of the store that the gate has heard of: from a
// command that it admitted, or as a broker epoch.
func (g *Gate) Heard() store.Rev { return g.heard }

// Remembered are the partitions of which the gate remembers anything, in order.
func (g *Gate) Remembered() []cluster.PartitionID {
	all := make(map[cluster.PartitionID]struct{}, max(len(g.hosted), len(g.metadata)))
	for id := range g.hosted {
		all[id] = struct{}{}
	}
	for id := range g.metadata {
		all[id] = struct{}{}
	}
	for id := range g.found {
		all[id] = struct{}{}
	}
	return slices.SortedFunc(maps.Keys(all), cluster.PartitionID.Compare)
}

// Newest is the newest that the gate remembers of a partition: as it is hosted,
// or was stopped, as it was found on the disks, or as metadata says. Without an
// ISR only the topic and the leader epoch are known; of nothing remembered that
// is UnknownLeaderEpoch.
func (g *Gate) Newest(id cluster.PartitionID) PartitionState {
	r := g.held(id)
	newest := PartitionState{Topic: r.Topic, Partition: id, Leader: cluster.NoLeader, LeaderEpoch: r.LeaderEpoch}
	if h := g.hosted[id]; h != nil {
		newest = h.state
	}
	if m := g.metadata[id]; m != nil && m.state.Compare(&newest) > 0 {
		newest = m.state
	}
	return newest
}

// WireStates are states as messages carry them, those of one topic together if
// they follow each other.
func WireStates(states []PartitionState) []*pb.TopicStates {
	var out []*pb.TopicStates
	for _, s := range states {
		if n := len(out); n == 0 || string(out[n-1].GetTopicId()) != string(s.Partition.Topic[:]) {
			out = append(out, &pb.TopicStates{TopicId: slices.Clone(s.Partition.Topic[:]), Topic: s.Topic})
		}
		t := out[len(out)-1]
		t.Partitions = append(t.Partitions, &pb.PartitionState{
			Partition: s.Partition.Index, Leader: int32(s.Leader), LeaderEpoch: int32(s.LeaderEpoch), PartitionEpoch: int32(s.PartitionEpoch),
			Isr: cluster.WireIDs(s.ISR), Replicas: cluster.WireIDs(s.Replicas), Adding: cluster.WireIDs(s.Adding),
			Removing: cluster.WireIDs(s.Removing), Recovery: s.Recovery, ControllerEpoch: int64(s.ControllerEpoch),
		})
	}
	return out
}

// States are states from a message, without those whose topic id is none.
func States(topics []*pb.TopicStates) []PartitionState {
	var out []PartitionState
	for _, t := range topics {
		id, err := cluster.TopicIDFrom(t.GetTopicId())
		if err != nil {
			continue
		}
		for _, p := range t.GetPartitions() {
			out = append(out, stateOf(t.GetTopic(), id, p))
		}
	}
	return out
}
