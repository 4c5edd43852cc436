package statemachine

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Expand makes a topic have more partitions: the record that counts them and, if
// their replicas are given, their first records, which must be stored before it.
// Otherwise the record only wants them, and Complete makes them.
//
// Refused are, in Kafka's order, a topic that is missing or is being deleted
// (UNKNOWN_TOPIC_OR_PARTITION), one of which a partition is being reassigned
// (REASSIGNMENT_IN_PROGRESS), a number that is not larger (INVALID_PARTITIONS),
// and replicas that do not do (INVALID_REPLICA_ASSIGNMENT). So is what could not
// be made as things are.
func Expand(im *cluster.Image, t Term, topic *cluster.Topic, np *pb.NewPartitions) (record *pb.TopicRecord, parts []Write, rej *Rejection) {
	switch {
	case topic == nil:
		return nil, nil, reject(cluster.UnknownTopicOrPartition, "topic %q does not exist", np.GetTopic())
	case topic.Deleting():
		return nil, nil, reject(cluster.UnknownTopicOrPartition, "topic %q is being deleted", topic.Name)
	case im.Moves(topic) > 0:
		return nil, nil, reject(cluster.ReassignmentInProgress, "partitions of topic %q are being reassigned", topic.Name)
	case im.Had(topic) > topic.Wanted():
		return nil, nil, reject(cluster.OperationNotAttempted, "topic %q counts %d of %d partitions: others are being restored", topic.Name, topic.Wanted(), im.Had(topic))
	case np.GetCount() <= topic.Wanted():
		return nil, nil, reject(cluster.InvalidPartitions, "topic %q has %d partitions, more are wanted than %d", topic.Name, topic.Wanted(), np.GetCount())
	case np.GetCount() > cluster.MaxPartitions:
		return nil, nil, reject(cluster.InvalidPartitions, "%d partitions, want at most %d", np.GetCount(), cluster.MaxPartitions)
	}
	record = proto.Clone(topic.Record).(*pb.TopicRecord)
	record.PartitionsWanted = np.GetCount()
	if len(np.GetAssignments()) == 0 {
		wanting := &cluster.Topic{Name: topic.Name, ID: topic.ID, ModRev: topic.ModRev, Record: record}
		_, _, rej := Complete(im, t, wanting, 1, 0)
		return record, nil, rej
	}
	if rej := validateExpansion(im, topic, np); rej != nil {
		return nil, nil, rej
	}
	v := ViewOf(im)
	for i, a := range np.GetAssignments() {
		w := Write{ID: cluster.PartitionID{Topic: topic.ID, Index: topic.Made() + int32(i)}, New: newPartition(cluster.BrokerIDs(a.GetReplicas()), v)}
		w.New.Cause = pb.ChangeCause_CHANGE_CAUSE_EXPANDED
		t.stamp(&w.New)
		parts = append(parts, w)
	}
	record.PartitionsMade = np.GetCount()
	return record, parts, nil
}

// validateExpansion refuses replicas that cannot be those of new partitions.
func validateExpansion(im *cluster.Image, topic *cluster.Topic, np *pb.NewPartitions) *Rejection {
	given, rf := np.GetAssignments(), int(topic.Record.GetReplicationFactor())
	switch {
	case topic.Made() < topic.Wanted():
		return reject(cluster.OperationNotAttempted, "topic %q has %d of %d partitions: others are being made", topic.Name, topic.Made(), topic.Wanted())
	case len(given) != int(np.GetCount()-topic.Made()):
		return reject(cluster.InvalidReplicaAssignment, "%d new partitions, and replicas of %d", np.GetCount()-topic.Made(), len(given))
	}
	for n := topic.Made() / topic.BlockSize(); n*topic.BlockSize() < np.GetCount(); n++ {
		id := cluster.BlockID{Topic: topic.ID, Index: n}
		if im.Block(id) == nil && (im.ModRev(im.Keys.Block(id)) != 0 || n*topic.BlockSize() < topic.Made()) {
			return reject(cluster.KafkaStorageError, "the block of partition %d is missing or unreadable", n*topic.BlockSize())
		}
	}
	for i, a := range given {
		index := topic.Made() + int32(i)
		if rej := validateReplicas(im, index, cluster.BrokerIDs(a.GetReplicas())); rej != nil {
			return rej
		}
		if n := len(a.GetReplicas()); n != rf {
			return reject(cluster.InvalidReplicaAssignment, "partition %d has %d replicas, the topic %d", index, n, rf)
		}
	}
	return nil
}

// validateReplicas refuses replicas that a new partition cannot have.
func validateReplicas(im *cluster.Image, index int32, replicas []cluster.BrokerID) *Rejection {
	switch {
	case len(replicas) == 0:
		return reject(cluster.InvalidReplicaAssignment, "partition %d has no replicas", index)
	case len(replicas) > len(im.Brokers): // before what takes long
		return reject(cluster.InvalidReplicaAssignment, "partition %d has %d replicas, there are %d live brokers", index, len(replicas), len(im.Brokers))
	case hasDuplicates(replicas):
		return reject(cluster.InvalidReplicaAssignment, "partition %d has a broker twice in %v", index, replicas)
	}
	if i := slices.IndexFunc(replicas, func(id cluster.BrokerID) bool { return im.Brokers[id] == nil }); i >= 0 {
		return reject(cluster.InvalidReplicaAssignment, "partition %d: broker %d is not live", index, replicas[i])
	}
	return nil
}
