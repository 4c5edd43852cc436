package recovery

import (
	"maps"
	"slices"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	"github.com/controllerd/controllerd/store"
)

// Report is what one broker has answered.
type Report struct {
	Address string
	// Err says why there is no answer, or only a part of one.
	Err error

	Broker      cluster.BrokerID
	ClusterUUID string // empty: it has never registered
	BrokerEpoch cluster.BrokerEpoch
	Epoch       cluster.Epoch // the highest controller epoch that it has heard of
	Rev         store.Rev     // the highest revision that it has heard of
	Partitions  int           // of which it remembers something
}

// Memory is what all brokers that were asked remember together. The zero Memory
// is that of nobody.
type Memory struct {
	Reports []Report
	newest  map[cluster.PartitionID]known
}

// known is the newest that is known of one partition.
type known struct {
	leaderEpoch cluster.LeaderEpoch    // the highest
	state       fencing.PartitionState // the newest of those with an ISR; without one: none
}

// Learn takes in states that a broker remembers.
func (m *Memory) Learn(states []fencing.PartitionState) {
	if m.newest == nil {
		m.newest = map[cluster.PartitionID]known{}
	}
	for i := range states {
		s := &states[i]
		k, heard := m.newest[s.Partition]
		if !heard {
			k.leaderEpoch = fencing.UnknownLeaderEpoch
			k.state = fencing.PartitionState{Topic: s.Topic, Partition: s.Partition, LeaderEpoch: fencing.UnknownLeaderEpoch}
		}
		k.leaderEpoch = max(k.leaderEpoch, s.LeaderEpoch)
		if len(s.ISR) > 0 && s.Compare(&k.state) > 0 {
			k.state = *s
		}
		m.newest[s.Partition] = k
	}
}

// Epoch is the highest controller epoch that anybody has heard of.
func (m *Memory) Epoch() (e cluster.Epoch) {
	for _, r := range m.Reports {
		e = max(e, r.Epoch)
	}
	return e
}

// Rev is the highest revision that anybody has heard of.
func (m *Memory) Rev() (rev store.Rev) {
	for _, r := range m.Reports {
		rev = max(rev, r.Rev, store.Rev(r.BrokerEpoch))
	}
	return rev
}

// of is what is known of a partition; without anything the leader epoch is
// UnknownLeaderEpoch.
func (m *Memory) of(id cluster.PartitionID) known {
	if k, ok := m.newest[id]; ok {
		return k
	}
	return known{leaderEpoch: fencing.UnknownLeaderEpoch, state: fencing.PartitionState{LeaderEpoch: fencing.UnknownLeaderEpoch}}
}

// strangers are the topics that brokers remember and the image does not hold,
// "name (id)", in order.
func (m *Memory) strangers(im *cluster.Image) []string {
	names := map[string]bool{}
	for id, k := range m.newest {
		if im.TopicByID(id.Topic) == nil && im.Tombstones[id.Topic] == nil {
			names[k.state.Topic+" ("+id.Topic.String()+")"] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
