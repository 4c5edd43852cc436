package broker

import (
	"strings"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// The commands that an Observation can be about.
const (
	LeaderAndIsr   = "LEADER_AND_ISR"
	UpdateMetadata = "UPDATE_METADATA"
	StopReplica    = "STOP_REPLICA"
	FullSync       = "FULL_SYNC"
)

// WholeCommand stands for the partition in an Observation about none.
const WholeCommand = -1

// Observation is one decision of the gate: about each partition of a
// LeaderAndIsr or StopReplica that was admitted, about the whole of any other
// command.
type Observation struct {
	Time            time.Time
	Command         string // LeaderAndIsr, UpdateMetadata, StopReplica or FullSync
	Sender          string // controller id
	ControllerEpoch cluster.Epoch
	BrokerEpoch     cluster.BrokerEpoch
	Topic           string // empty: the whole command
	TopicID         cluster.TopicID
	Partition       int32 // WholeCommand: the whole command
	LeaderEpoch     cluster.LeaderEpoch
	PartitionEpoch  cluster.PartitionEpoch
	// Result is ADMITTED, ISR_ADOPTED, ALREADY, or why the partition or the
	// command was refused: INCONSISTENT_TOPIC_ID, FENCED_LEADER_EPOCH,
	// STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH, UNAVAILABLE, INCONSISTENT_CLUSTER_ID, WRONG_BROKER.
	Result string
	// Live are all live brokers, if an admitted UpdateMetadata names them.
	Live []LiveBroker
}

// refusalName is a refusal as it stands in an Observation.
func refusalName(r pb.Refusal) string { return strings.TrimPrefix(r.String(), "REFUSAL_") }

// observations are what there is to tell about a command.
func observations(at time.Time, cmd *pb.Command, v *fencing.Verdict) []Observation {
	whole := Observation{
		Time:            at,
		Command:         UpdateMetadata,
		Sender:          cmd.GetStamp().GetControllerId(),
		ControllerEpoch: cluster.Epoch(cmd.GetStamp().GetControllerEpoch()),
		BrokerEpoch:     cluster.BrokerEpoch(cmd.GetStamp().GetBrokerEpoch()),
		Partition:       WholeCommand,
		Result:          fencing.Admitted.String(),
		Live:            v.Live,
	}
	switch {
	case cmd.GetLeaderAndIsr() != nil:
		whole.Command = LeaderAndIsr
	case cmd.GetStopReplica() != nil:
		whole.Command = StopReplica
	case cmd.GetFullSync() != nil:
		whole.Command = FullSync
	}
	switch {
	case v.Refused():
		whole.Result = refusalName(v.Refusal)
		return []Observation{whole}
	case whole.Command == UpdateMetadata || whole.Command == FullSync:
		return []Observation{whole}
	}
	each := make([]Observation, len(v.Decisions))
	for i, d := range v.Decisions {
		each[i] = whole
		each[i].Topic, each[i].TopicID, each[i].Partition = d.State.Topic, d.State.Partition.Topic, d.State.Partition.Index
		each[i].LeaderEpoch, each[i].PartitionEpoch = d.State.LeaderEpoch, d.State.PartitionEpoch
		each[i].Result = d.Action.String()
	}
	return each
}
