package statemachine

import (
	"fmt"
	"math"
	"slices"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/unfenced"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// PartitionState is Kafka's state of a partition. It is derived from the
// record, never stored.
type PartitionState uint8

// The states of a partition.
const (
	PartitionNonExistent PartitionState = iota // no record
	PartitionNew                               // has never had a leader
	PartitionOnline                            // has a leader
	PartitionOffline                           // has lost its leader
	partitionStates
)

func (s PartitionState) String() string {
	return [...]string{"NonExistent", "New", "Online", "Offline"}[s]
}

// partitionEdges are the legal edges, from row to column. They are Kafka's,
// and two of Kafka's moves that one write makes: to create with a leader is
// NonExistent to New to Online, to delete is anything to Offline to
// NonExistent.
var partitionEdges = [partitionStates][partitionStates]bool{
	PartitionNonExistent: {PartitionNew: true, PartitionOnline: true},
	PartitionNew:         {PartitionOnline: true, PartitionOffline: true, PartitionNonExistent: true},
	PartitionOnline:      {PartitionOnline: true, PartitionOffline: true, PartitionNonExistent: true},
	PartitionOffline:     {PartitionOnline: true, PartitionOffline: true, PartitionNonExistent: true},
}

// PartitionStateOf derives the state from the record, nil for none.
func PartitionStateOf(p *cluster.Partition) PartitionState {
	switch {
	case p == nil:
		return PartitionNonExistent
	case p.Leader != cluster.NoLeader:
		return PartitionOnline
	case p.LeaderEpoch == 0:
		return PartitionNew
	}
	return PartitionOffline
}

// Write is the new record of one partition and what it replaces.
type Write struct {
	ID  cluster.PartitionID
	Old *cluster.Partition // nil: new
	New cluster.Partition  // may share slices with Old
	// Reason is why somebody has asked for it, empty if nobody has said.
	Reason string
}

// Term is the term in which a Write is decided.
type Term struct {
	Epoch cluster.Epoch
	NowMs int64 // wall clock, Unix milliseconds, for people only
	// MemberEpoch takes out the check of the broker epochs under which a leader
	// has seen the members of a new ISR; see package unfenced.
	MemberEpoch unfenced.Switch
}

// stamp signs a record that was decided in the term.
func (t Term) stamp(p *cluster.Partition) {
	p.ControllerEpoch, p.ChangedMs = t.Epoch, t.NowMs
}

// CheckEdge reports what makes a write illegal: its edge is not in the table,
// or no rule writes such a record over the old one. nil stands for no record.
// An error is a bug in a rule. It is meant for single writes; what a list
// shows may be many writes at once.
func CheckEdge(old, p *cluster.Partition) error {
	from, to := PartitionStateOf(old), PartitionStateOf(p)
	if !partitionEdges[from][to] {
		return fmt.Errorf("partition goes from %s to %s", from, to)
	}
	if p == nil {
		return nil
	}
	if err := checkRecord(p); err != nil {
		return err
	}
	if old == nil {
		if p.LeaderEpoch != 0 || p.PartitionEpoch != 0 {
			return fmt.Errorf("new partition begins at leader epoch %d, partition epoch %d", p.LeaderEpoch, p.PartitionEpoch)
		}
		return nil
	}
	if err := checkReplicas(old, p); err != nil {
		return err
	}
	return checkEpochs(old, p)
}

func checkRecord(p *cluster.Partition) error {
	switch {
	case len(p.ISR) == 0:
		return fmt.Errorf("the ISR is empty")
	case !within(p.ISR, p.Replicas):
		return fmt.Errorf("ISR %v is not within the replicas %v", p.ISR, p.Replicas)
	case p.Leader != cluster.NoLeader && !slices.Contains(p.ISR, p.Leader):
		return fmt.Errorf("leader %d is not in the ISR %v", p.Leader, p.ISR)
	}
	return nil
}

// checkEpochs holds the epochs of a change against what was changed.
func checkEpochs(old, p *cluster.Partition) error {
	altered := p.Cause == pb.ChangeCause_CHANGE_CAUSE_ISR_ALTERED
	moved := p.Cause == pb.ChangeCause_CHANGE_CAUSE_REASSIGNMENT
	// To queue a reassignment, and to note that a former replica is deleted, is no
	// business of the leader's.
	noted := moved && p.Leader == old.Leader && slices.Equal(p.ISR, old.ISR) && slices.Equal(p.Replicas, old.Replicas) && slices.Equal(p.Adding, old.Adding)
	unclean := p.Cause == pb.ChangeCause_CHANGE_CAUSE_UNCLEAN_ELECTION
	elected := p.LeaderEpoch - old.LeaderEpoch
	switch {
	case p.LeaderEpoch == math.MaxInt32 || p.PartitionEpoch == math.MaxInt32:
		return fmt.Errorf("no epoch is left above leader epoch %d, partition epoch %d", old.LeaderEpoch, old.PartitionEpoch)
	case p.PartitionEpoch != old.PartitionEpoch+1:
		return fmt.Errorf("partition epoch goes from %d to %d", old.PartitionEpoch, p.PartitionEpoch)
	case p.ControllerEpoch < old.ControllerEpoch:
		return fmt.Errorf("controller epoch goes from %d to %d", old.ControllerEpoch, p.ControllerEpoch)
	case altered && (elected != 0 || p.Leader != old.Leader):
		return fmt.Errorf("a leader's request changes leader %d epoch %d to %d epoch %d", old.Leader, old.LeaderEpoch, p.Leader, p.LeaderEpoch)
	case !moved && !(slices.Equal(p.Replicas, old.Replicas) && slices.Equal(p.Adding, old.Adding) && slices.Equal(p.Removing, old.Removing) && slices.Equal(p.Target, old.Target)):
		return fmt.Errorf("replicas go from %v to %v without a reassignment", old.Replicas, p.Replicas)
	case !altered && elected != 1 && !(noted && elected == 0):
		return fmt.Errorf("leader epoch goes from %d to %d", old.LeaderEpoch, p.LeaderEpoch)
	case !altered && !unclean && !within(p.ISR, old.ISR):
		return fmt.Errorf("ISR grows from %v to %v without its leader", old.ISR, p.ISR)
	}
	return nil
}

func within(ids, all []cluster.BrokerID) bool {
	for _, id := range ids {
		if !slices.Contains(all, id) {
			return false
		}
	}
	return true
}
