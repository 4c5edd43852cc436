package statemachine

import (
	"slices"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Election is an election that somebody asks for.
type Election struct {
	Type   pb.ElectionType
	Leader cluster.BrokerID // that is to lead, of a designated one
}

// Cause is that of the change that such an election makes.
func (e Election) Cause() pb.ChangeCause {
	switch e.Type {
	case pb.ElectionType_ELECTION_TYPE_PREFERRED:
		return pb.ChangeCause_CHANGE_CAUSE_PREFERRED_ELECTION
	case pb.ElectionType_ELECTION_TYPE_UNCLEAN:
		return pb.ChangeCause_CHANGE_CAUSE_UNCLEAN_ELECTION
	}
	return pb.ChangeCause_CHANGE_CAUSE_DESIGNATED_ELECTION
}

// Due reports whether Next owes the partition a change: only after it can
// anything else be decided for it.
func (m *Machine) Due(id cluster.PartitionID) bool { return m.due.has(id) }

// Replaceable reports whether somebody else could lead a partition if its leader
// were to drain.
func (m *Machine) Replaceable(id cluster.PartitionID, leader cluster.BrokerID) bool {
	p := m.im.Partition(id)
	if p == nil {
		return false
	}
	v := m.At(id)
	_, ok := ElectOffline(p.Replicas, p.ISR, func(b cluster.BrokerID) bool { return b != leader && v.steady(p, b) && v.Online(b) }, false)
	return ok
}

// Elect judges an election that is asked for (KIP-460; a designated leader is
// ours). It returns the write, or ELECTION_NOT_NEEDED if the partition has the
// leader that is wanted, of an unclean election if it has any. Other
// rejections: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION for a topic
// that is being deleted, PREFERRED_LEADER_NOT_AVAILABLE,
// ELIGIBLE_LEADERS_NOT_AVAILABLE, INVALID_REPLICA_ASSIGNMENT for a designated
// leader that has no replica. The partition must not be Due.
func (m *Machine) Elect(t Term, id cluster.PartitionID, e Election) (*Write, *Rejection) {
	switch topic := m.im.TopicByID(id.Topic); {
	case topic == nil || id.Index < 0 || id.Index >= topic.Made():
		return nil, reject(cluster.UnknownTopicOrPartition, "The partition does not exist.")
	case topic.Deleting():
		return nil, reject(cluster.InvalidTopicException, "The topic is being deleted")
	}
	p, v := m.im.Partition(id), m.At(id)
	if p == nil {
		return nil, reject(cluster.KafkaStorageError, "the record of the partition is missing or unreadable")
	}
	o, rej := v.elected(p, e)
	if rej != nil {
		return nil, rej
	}
	cause := e.Cause()
	if e.Type == pb.ElectionType_ELECTION_TYPE_UNCLEAN && !o.Unclean {
		cause = pb.ChangeCause_CHANGE_CAUSE_BROKER_UP // a member of the ISR is back, which nobody has looked at yet
	}
	w := &Write{ID: id, Old: p, New: succeed(p, v, o, cause)}
	t.stamp(&w.New)
	return w, nil
}

// elected is the outcome of an election that is asked for.
func (v View) elected(p *cluster.Partition, e Election) (Outcome, *Rejection) {
	switch e.Type {
	case pb.ElectionType_ELECTION_TYPE_PREFERRED:
		return v.preferred(p)
	case pb.ElectionType_ELECTION_TYPE_UNCLEAN:
		return v.unclean(p)
	}
	return v.designated(p, e.Leader)
}

func (v View) preferred(p *cluster.Partition) (Outcome, *Rejection) {
	first := p.Replicas[0]
	if p.Leader == first {
		return notNeeded("broker %d, the first replica, leads", first)
	}
	o, ok := ElectPreferred(p.Replicas, p.ISR, v.Online)
	if !ok {
		return unavailable(cluster.PreferredLeaderNotAvailable, "broker %d, the first replica, %s", first, v.unfit(p, first))
	}
	return o, nil
}

func (v View) unclean(p *cluster.Partition) (Outcome, *Rejection) {
	if p.Leader != cluster.NoLeader {
		return notNeeded("broker %d leads", p.Leader)
	}
	o, ok := ElectOffline(p.Replicas, p.ISR, v.Online, true)
	if !ok {
		return unavailable(cluster.EligibleLeadersNotAvailable, "none of the replicas %v is online", p.Replicas)
	}
	return o, nil
}

func (v View) designated(p *cluster.Partition, leader cluster.BrokerID) (Outcome, *Rejection) {
	switch {
	case p.Leader == leader:
		return notNeeded("broker %d leads", leader)
	case !slices.Contains(p.Replicas, leader):
		return unavailable(cluster.InvalidReplicaAssignment, "broker %d is not one of the replicas %v", leader, p.Replicas)
	case !slices.Contains(p.ISR, leader) || !v.Online(leader):
		return unavailable(cluster.EligibleLeadersNotAvailable, "broker %d %s", leader, v.unfit(p, leader))
	}
	return Outcome{Leader: leader, ISR: p.ISR}, nil
}

// unfit says why a replica cannot lead.
func (v View) unfit(p *cluster.Partition, id cluster.BrokerID) string {
	switch b := v.Brokers[id]; {
	case b == nil:
		return "is not live"
	case b.ShuttingDown():
		return "is shutting down"
	case b.Draining():
		return "cannot be reached"
	case v.failed(b):
		return "has an offline replica"
	}
	return "is not in the ISR"
}

func notNeeded(format string, args ...any) (Outcome, *Rejection) {
	return unavailable(cluster.ElectionNotNeeded, format, args...)
}

func unavailable(reason cluster.Reason, format string, args ...any) (Outcome, *Rejection) {
	return Outcome{Leader: cluster.NoLeader}, reject(reason, format, args...)
}
