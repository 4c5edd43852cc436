package statemachine

import (
	"fmt"
	"slices"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Rejection is an answer that says why nothing is done.
type Rejection struct {
	Reason  cluster.Reason
	Message string
}

func reject(reason cluster.Reason, format string, args ...any) *Rejection {
	return &Rejection{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// CheckSender refuses a whole request of a broker that is not live under the
// epoch that it gives: STALE_BROKER_EPOCH.
func CheckSender(im *cluster.Image, id cluster.BrokerID, epoch cluster.BrokerEpoch) *Rejection {
	b := im.Brokers[id]
	switch {
	case b == nil:
		return reject(cluster.StaleBrokerEpoch, "broker %d is not registered", id)
	case b.Epoch != epoch:
		return reject(cluster.StaleBrokerEpoch, "broker %d has epoch %d, not %d", id, b.Epoch, epoch)
	}
	return nil
}

// Alter judges one entry of an AlterPartition request, with which a leader
// changes its ISR or reports that it has recovered. It returns the write, or
// neither a write nor a rejection if the partition is so already.
//
// The checks are Kafka's, in Kafka's order: a request that is ahead of the
// image (NOT_CONTROLLER: perhaps we are not the active one any more) before
// one that is behind (FENCED_LEADER_EPOCH), a repetition before a stale
// partition epoch (INVALID_UPDATE_VERSION), the form of the request
// (INVALID_REQUEST) before the fitness of each member of the new ISR
// (INELIGIBLE_REPLICA). Beyond Kafka's, the sender must lead, and the ISR must
// be one that a record may have.
//
// A partition to which Next owes a change gets it first: the entry is refused
// as FENCED_LEADER_EPOCH, which it is about to be. So no partition gets a
// write from Alter and from Step on the same image, and a broker's restart is
// not hidden by a younger record. Two entries for one partition must not be
// judged on the same image.
func (m *Machine) Alter(t Term, sender cluster.BrokerID, senderEpoch cluster.BrokerEpoch, id cluster.PartitionID, e *pb.AlterPartitionEntry) (w *Write, err *Rejection) {
	im, v := m.im, m.At(id)
	if err := CheckSender(im, sender, senderEpoch); err != nil {
		return nil, err
	}
	switch topic := im.TopicByID(id.Topic); {
	case topic == nil:
		return nil, reject(cluster.UnknownTopicID, "no topic has id %s", id.Topic)
	case topic.Deleting():
		return nil, reject(cluster.UnknownTopicOrPartition, "topic %q is being deleted", topic.Name)
	}
	p := im.Partition(id)
	if p == nil {
		return nil, reject(cluster.UnknownTopicOrPartition, "partition %d does not exist or its record is unreadable", id.Index)
	}
	if err := checkLeader(p, sender, e); err != nil {
		return nil, err
	}
	next := *p
	next.ISR = isrOf(e)
	if e.GetRecovery() != pb.RecoveryState_RECOVERY_STATE_UNSPECIFIED {
		next.Recovery = e.GetRecovery()
	}
	if slices.Equal(next.ISR, p.ISR) && recovering(&next) == recovering(p) && known(next.Recovery) {
		return nil, nil
	}
	if have := int32(p.PartitionEpoch); e.GetPartitionEpoch() < have {
		return nil, reject(cluster.InvalidUpdateVersion, "partition epoch is %d, the request has %d", have, e.GetPartitionEpoch())
	}
	if err := checkForm(p, &next); err != nil {
		return nil, err
	}
	if err := checkMembers(v, t, p, sender, e); err != nil {
		return nil, err
	}
	if owed, changed := Next(p, v); changed {
		return nil, reject(cluster.FencedLeaderEpoch, "leader epoch %d is about to be %d", p.LeaderEpoch, owed.LeaderEpoch)
	}
	next.PartitionEpoch++
	next.Cause, next.Decided = pb.ChangeCause_CHANGE_CAUSE_ISR_ALTERED, im.Rev
	t.stamp(&next)
	return &Write{ID: id, Old: p, New: next}, nil
}

// checkLeader refuses an entry that is not from the partition's leader in its
// present leader epoch.
func checkLeader(p *cluster.Partition, sender cluster.BrokerID, e *pb.AlterPartitionEntry) *Rejection {
	le, pe := int32(p.LeaderEpoch), int32(p.PartitionEpoch)
	switch {
	case e.GetLeaderEpoch() > le || e.GetPartitionEpoch() > pe:
		return reject(cluster.NotController, "the request has leader epoch %d and partition epoch %d, here are %d and %d",
			e.GetLeaderEpoch(), e.GetPartitionEpoch(), le, pe)
	case e.GetLeaderEpoch() < le:
		return reject(cluster.FencedLeaderEpoch, "leader epoch is %d, the request has %d", le, e.GetLeaderEpoch())
	case p.Leader != sender:
		return reject(cluster.InvalidRequest, "broker %d does not lead the partition, broker %d does", sender, p.Leader)
	}
	return nil
}

// checkForm refuses a state that no record may have, or that p cannot become.
func checkForm(p, next *cluster.Partition) *Rejection {
	switch {
	case len(next.ISR) == 0:
		return reject(cluster.InvalidRequest, "the new ISR is empty")
	case len(next.ISR) > len(p.Replicas): // before what takes long
		return reject(cluster.InvalidRequest, "the new ISR has %d members, there are %d replicas", len(next.ISR), len(p.Replicas))
	case hasDuplicates(next.ISR):
		return reject(cluster.InvalidRequest, "the new ISR %v names a broker twice", next.ISR)
	case !within(next.ISR, p.Replicas):
		return reject(cluster.InvalidRequest, "the new ISR %v is not within the replicas %v", next.ISR, p.Replicas)
	case !slices.Contains(next.ISR, p.Leader):
		return reject(cluster.InvalidRequest, "the new ISR %v lacks the leader %d", next.ISR, p.Leader)
	case !known(next.Recovery):
		return reject(cluster.InvalidRequest, "recovery state %d is unknown", next.Recovery)
	case recovering(next) && len(next.ISR) > 1:
		return reject(cluster.InvalidRequest, "a leader that recovers cannot have the ISR %v", next.ISR)
	case recovering(next) && !recovering(p):
		return reject(cluster.InvalidRequest, "the leader has recovered, it cannot go back")
	}
	return nil
}

// checkMembers refuses an ISR with a member that is not fit, or that is not
// the incarnation that the leader saw. A draining leader is fit for its own
// ISR, and so are those who drain with it in there, otherwise it could never
// let in the one that is to take over.
func checkMembers(v View, t Term, p *cluster.Partition, sender cluster.BrokerID, e *pb.AlterPartitionEntry) *Rejection {
	stays := func(id cluster.BrokerID) bool {
		return id == sender || v.Brokers[sender].Draining() && slices.Contains(p.ISR, id)
	}
	for _, m := range e.GetNewIsr() {
		id, saw := cluster.BrokerID(m.GetBrokerId()), cluster.BrokerEpoch(m.GetBrokerEpoch())
		b := v.Brokers[id]
		switch {
		case b == nil:
			return reject(cluster.IneligibleReplica, "broker %d is not live", id)
		case v.failed(b):
			return reject(cluster.IneligibleReplica, "the replica on broker %d is offline", id)
		case b.Draining() && !stays(id):
			return reject(cluster.IneligibleReplica, "broker %d is draining", id)
		case saw > 0 && saw != b.Epoch && !t.MemberEpoch.IsOpen():
			return reject(cluster.IneligibleReplica, "broker %d has epoch %d, the leader saw %d", id, b.Epoch, saw)
		}
	}
	return nil
}

func isrOf(e *pb.AlterPartitionEntry) []cluster.BrokerID {
	out := make([]cluster.BrokerID, len(e.GetNewIsr()))
	for i, m := range e.GetNewIsr() {
		out[i] = cluster.BrokerID(m.GetBrokerId())
	}
	return out
}

func hasDuplicates(ids []cluster.BrokerID) bool {
	for i, id := range ids {
		if slices.Contains(ids[:i], id) {
			return true
		}
	}
	return false
}

func recovering(p *cluster.Partition) bool {
	return p.Recovery == pb.RecoveryState_RECOVERY_STATE_RECOVERING
}

func known(r pb.RecoveryState) bool {
	_, ok := pb.RecoveryState_name[int32(r)]
	return ok
}
