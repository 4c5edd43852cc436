package broker

import (
	"slices"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// IsrChange is what the leader of a partition wants its ISR to be.
type IsrChange struct {
	Partition cluster.PartitionID
	// LeaderEpoch and PartitionEpoch are those of the state that the change
	// was decided from.
	LeaderEpoch    cluster.LeaderEpoch
	PartitionEpoch cluster.PartitionEpoch
	NewISR         []IsrMember
	Recovery       pb.RecoveryState
}

// IsrMember is a replica that is in sync.
type IsrMember struct {
	Broker cluster.BrokerID
	// Epoch is the broker epoch under which the leader saw it fetch. 0: not
	// known, and not checked.
	Epoch cluster.BrokerEpoch
}

// IsrResult is the answer to one IsrChange.
type IsrResult struct {
	Partition cluster.PartitionID
	// Reason is empty if the change is committed.
	Reason  cluster.Reason
	Message string
	// State is the state that was committed, nil if the change was refused.
	State *pb.PartitionRecord
}

// alterRequest is the request for changes, those of a topic together. Sender
// and cluster are still to be filled in.
func alterRequest(changes []IsrChange) *pb.AlterPartitionRequest {
	req := &pb.AlterPartitionRequest{}
	topics := map[cluster.TopicID]*pb.AlterPartitionTopic{}
	for _, c := range changes {
		topic := topics[c.Partition.Topic]
		if topic == nil {
			topic = &pb.AlterPartitionTopic{TopicId: slices.Clone(c.Partition.Topic[:])}
			topics[c.Partition.Topic] = topic
			req.Topics = append(req.Topics, topic)
		}
		topic.Partitions = append(topic.Partitions, entryOf(c))
	}
	return req
}

func entryOf(c IsrChange) *pb.AlterPartitionEntry {
	e := &pb.AlterPartitionEntry{
		Partition:      c.Partition.Index,
		LeaderEpoch:    int32(c.LeaderEpoch),
		PartitionEpoch: int32(c.PartitionEpoch),
		Recovery:       c.Recovery,
	}
	for _, m := range c.NewISR {
		epoch := int64(m.Epoch)
		if epoch == 0 {
			epoch = -1
		}
		e.NewIsr = append(e.NewIsr, &pb.IsrMember{BrokerId: int32(m.Broker), BrokerEpoch: epoch})
	}
	return e
}

// alterResults are the answers in the order of the changes. A change that the
// response does not mention was not attempted.
func alterResults(changes []IsrChange, resp *pb.AlterPartitionResponse) []IsrResult {
	answers := alterAnswers(resp)
	out := make([]IsrResult, len(changes))
	for i, c := range changes {
		r, ok := answers[c.Partition]
		if !ok {
			r = IsrResult{Partition: c.Partition, Reason: cluster.OperationNotAttempted, Message: "no answer for the partition"}
		}
		out[i] = r
	}
	return out
}

func alterAnswers(resp *pb.AlterPartitionResponse) map[cluster.PartitionID]IsrResult {
	answers := map[cluster.PartitionID]IsrResult{}
	for _, t := range resp.GetTopics() {
		topic, err := cluster.TopicIDFrom(t.GetTopicId())
		if err != nil {
			continue
		}
		for _, p := range t.GetPartitions() {
			id := cluster.PartitionID{Topic: topic, Index: p.GetPartition()}
			answers[id] = IsrResult{Partition: id, Reason: cluster.Reason(p.GetError()), Message: p.GetMessage(), State: p.GetState()}
		}
	}
	return answers
}
