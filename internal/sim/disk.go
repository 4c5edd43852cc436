package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
)

// disk is where a broker has data of replicas. It outlives the processes.
type disk map[cluster.PartitionID]bool

// store notes that a handler of LeaderAndIsr has begun: from then on there may
// be data.
func (d disk) store(s *fencing.PartitionState) {
	if !s.Stop {
		d[s.Partition] = true
	}
}

// erase is what a StopReplica(delete) has done. Nothing else deletes data.
func (b *simBroker) erase(s *fencing.PartitionState) {
	w, d := b.w, b.w.disks[b.id]
	if !s.Delete || !d[s.Partition] {
		return
	}
	delete(d, s.Partition)
	w.seen["data deleted"]++
	at, asked := w.doomed[string(s.Partition.Topic[:])]
	if w.left[leaver{s.Partition, b.id, s.LeaderEpoch}] {
		w.seen["replica deleted that was moved away"]++
		return
	}
	if !asked {
		w.blame(ErrDataLost, "%s deleted its data of %s", b.name, s.Partition)
	}
	if at < b.started {
		w.seen["data deleted by a broker that was away when the topic was"]++
		if t := w.checker.history.topics[s.Topic]; t != nil && string(t.GetTopicId()) != string(s.Partition.Topic[:]) {
			w.seen["data deleted by a broker that was away, the topic's name taken again"]++
		}
	}
}

// has reports whether there is data of any partition of a topic.
func (d disk) has(topic cluster.TopicID) bool {
	for id := range d {
		if id.Topic == topic {
			return true
		}
	}
	return false
}

// sorted are the partitions with data, in order.
func (d disk) sorted() []cluster.PartitionID {
	return slices.SortedFunc(maps.Keys(d), cluster.PartitionID.Compare)
}

// diskAmiss says which broker has data of replicas that are not assigned to
// it, or none of one that is.
func (w *World) diskAmiss(truth *cluster.Image) string {
	for i, d := range w.disks {
		assigned := 0
		for _, id := range d.sorted() {
			p := truth.Partition(id)
			if p == nil || !slices.Contains(p.Replicas, cluster.BrokerID(i)) {
				return fmt.Sprintf("broker %d has data of %s", i, id)
			}
			assigned++
		}
		want := 0
		truth.Hosted(cluster.BrokerID(i), func(*cluster.Topic, cluster.PartitionID, *cluster.Partition) { want++ })
		if assigned < want {
			return fmt.Sprintf("broker %d has data of %d replicas of %d", i, assigned, want)
		}
	}
	return ""
}
