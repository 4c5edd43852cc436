package statemachine

import (
	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Imbalanced are the brokers, in order, that do not lead more than so many
// percent of the partitions of which they have the first replica, though they
// could: Kafka's leader.imbalance.per.broker.percentage. Brokers that are not
// live or are draining could not.
func Imbalanced(im *cluster.Image, percentage int) []cluster.BrokerID {
	var out []cluster.BrokerID
	for _, b := range im.SortedBrokers() {
		if l := im.Load(b.ID); !b.Draining() && exceeds(l, percentage) {
			out = append(out, b.ID)
		}
	}
	return out
}

// exceeds reports whether a broker's imbalance is strictly above a percentage.
func exceeds(l cluster.Load, percentage int) bool {
	return int64(l.Imbalanced)*100 > int64(l.Preferred)*int64(percentage)
}

// Rebalance gives the leadership of a partition back to its first replica, if
// that is a broker which can lead it now. It is nil if there is nothing to do,
// or if the rules want something else of the partition first.
func (m *Machine) Rebalance(t Term, id cluster.PartitionID, to cluster.BrokerID) *Write {
	p := m.im.Partition(id)
	if p == nil || p.Replicas[0] != to || p.Leader == to || m.Due(id) || m.im.TopicByID(id.Topic).Deleting() {
		return nil
	}
	w, rej := m.Elect(t, id, Election{Type: pb.ElectionType_ELECTION_TYPE_PREFERRED})
	if rej != nil {
		return nil
	}
	return w
}
