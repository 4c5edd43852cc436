package fencing

import (
	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Verdict is what the gate says to one command.
type Verdict struct {
	Refusal         pb.Refusal    // UNSPECIFIED: the command is admitted
	ControllerEpoch cluster.Epoch // the highest seen, this command included
	// One for each partition of an admitted command, in the command's order.
	Decisions []Decision
	// All live brokers by id, if the command names them; otherwise nil.
	Live []LiveBroker
	// Settings of the whole cluster, with Live.
	Settings map[string]string
	// Configs are what topics have set of their own, where the command changes it.
	Configs []TopicConfig
	// Topics that the command says were deleted, those known to be left out.
	Removed []RemovedTopic
	// Strays are replicas to be stopped, not deleted, since a full sync did not
	// name them. Obeyed sets them.
	Strays []PartitionState
	// Assigned are strays that are assigned again, or to be deleted.
	Assigned []HeldReplica
}

// Refused reports whether the whole command was refused.
func (v *Verdict) Refused() bool { return v.Refusal != pb.Refusal_REFUSAL_UNSPECIFIED }

// Decision is what the gate says to one partition of a command.
type Decision struct {
	State  PartitionState
	Action Action
}

// Action is what becomes of a partition's state.
type Action uint8

const (
	// Already: the broker holds this state or a newer one.
	Already Action = iota
	// Admitted: the state is the newest; its handler must start.
	Admitted
	// IsrAdopted: a newer ISR within the leader epoch held; no handler starts.
	IsrAdopted
	// Inconsistent: the topic's name stands for another topic id here, or the
	// topic id is none.
	Inconsistent
	// Fenced: the replica has a higher leader epoch than the StopReplica.
	Fenced
)

// String is the action as it stands in logs, in the manner of Kafka's errors.
func (a Action) String() string {
	switch a {
	case Already:
		return "ALREADY"
	case Admitted:
		return "ADMITTED"
	case IsrAdopted:
		return "ISR_ADOPTED"
	case Inconsistent:
		return string(cluster.InconsistentTopicID)
	case Fenced:
		return string(cluster.FencedLeaderEpoch)
	}
	return "UNKNOWN"
}
