package fencing

import (
	"cmp"
	"slices"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// PartitionState is what a command says of one partition. It is never changed
// in place, nor are its slices.
type PartitionState struct {
	Topic     string
	Partition cluster.PartitionID
	Leader    cluster.BrokerID // or cluster.NoLeader
	ISR       []cluster.BrokerID
	Replicas  []cluster.BrokerID // in order of preference
	Adding    []cluster.BrokerID
	Removing  []cluster.BrokerID

	LeaderEpoch     cluster.LeaderEpoch
	PartitionEpoch  cluster.PartitionEpoch
	ControllerEpoch cluster.Epoch // of the term that wrote the record

	IsNew    bool // the broker may create the replica, though storage of it may have failed
	Recovery pb.RecoveryState
	// MayCreate: a handler may create the replica if it is not there. It may not
	// while storage has failed that may hold it, unless IsNew. Of a state that a
	// handler is called with.
	MayCreate bool

	// Stop: the replica is not the broker's any more, as a StopReplica says.
	// Beside it only the topic, the partition and the leader epoch are set.
	Stop   bool
	Delete bool // the data too
}

// Compare orders states of one partition by age: as CompareRuns, then by
// partition epoch.
func (s *PartitionState) Compare(t *PartitionState) int {
	return cmp.Or(s.CompareRuns(t), cmp.Compare(s.PartitionEpoch, t.PartitionEpoch))
}

// CompareRuns orders states of one partition by what handlers run for: leader
// epoch, and within it what stops the replica last.
func (s *PartitionState) CompareRuns(t *PartitionState) int {
	return cmp.Or(cmp.Compare(s.LeaderEpoch, t.LeaderEpoch), cmp.Compare(s.finality(), t.finality()))
}

func (s *PartitionState) finality() int {
	switch {
	case s.Delete:
		return 2
	case s.Stop:
		return 1
	}
	return 0
}

func stateOf(topic string, id cluster.TopicID, w *pb.PartitionState) PartitionState {
	ids := make([]cluster.BrokerID, 0, len(w.GetIsr())+len(w.GetReplicas())+len(w.GetAdding())+len(w.GetRemoving()))
	list := func(wire []int32) []cluster.BrokerID {
		if len(wire) == 0 {
			return nil
		}
		n := len(ids)
		for _, id := range wire {
			ids = append(ids, cluster.BrokerID(id))
		}
		return ids[n:len(ids):len(ids)]
	}
	return PartitionState{
		Topic:           topic,
		Partition:       cluster.PartitionID{Topic: id, Index: w.GetPartition()},
		Leader:          cluster.BrokerID(w.GetLeader()),
		ISR:             list(w.GetIsr()),
		Replicas:        list(w.GetReplicas()),
		Adding:          list(w.GetAdding()),
		Removing:        list(w.GetRemoving()),
		LeaderEpoch:     cluster.LeaderEpoch(w.GetLeaderEpoch()),
		PartitionEpoch:  cluster.PartitionEpoch(w.GetPartitionEpoch()),
		ControllerEpoch: cluster.Epoch(w.GetControllerEpoch()),
		IsNew:           w.GetIsNew(),
		Recovery:        w.GetRecovery(),
	}
}

func stopOf(topic string, id cluster.TopicID, w *pb.PartitionStop) PartitionState {
	return PartitionState{
		Topic:       topic,
		Partition:   cluster.PartitionID{Topic: id, Index: w.GetPartition()},
		Leader:      cluster.NoLeader,
		LeaderEpoch: cluster.LeaderEpoch(w.GetLeaderEpoch()),
		Stop:        true,
		Delete:      w.GetDelete(),
	}
}

// RemovedTopic is a topic that was deleted.
type RemovedTopic struct {
	ID         cluster.TopicID
	Name       string
	Partitions int32 // how many it had
}

// TopicConfig is what a topic has set of its own.
type TopicConfig struct {
	ID     cluster.TopicID
	Name   string
	Config map[string]string
}

// LiveBroker is a broker as metadata names it.
type LiveBroker struct {
	ID        cluster.BrokerID
	Epoch     cluster.BrokerEpoch
	Endpoints []Endpoint
	Rack      string
}

// Endpoint is how a listener of a broker is reached.
type Endpoint struct {
	Listener string
	Address  string
}

// liveOf is never nil.
func liveOf(w *pb.LiveBrokers) []LiveBroker {
	live := make([]LiveBroker, len(w.GetBrokers()))
	for i, b := range w.GetBrokers() {
		live[i] = LiveBroker{
			ID:    cluster.BrokerID(b.GetId()),
			Epoch: cluster.BrokerEpoch(b.GetBrokerEpoch()),
			Rack:  b.GetRack(),
		}
		for _, e := range b.GetEndpoints() {
			live[i].Endpoints = append(live[i].Endpoints, Endpoint{Listener: e.GetListener(), Address: e.GetAddress()})
		}
	}
	slices.SortFunc(live, func(a, b LiveBroker) int { return cmp.Compare(a.ID, b.ID) })
	return live
}
