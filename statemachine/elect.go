package statemachine

import (
	"slices"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// Outcome is what an election decides.
type Outcome struct {
	Leader  cluster.BrokerID
	ISR     []cluster.BrokerID // may be the slice that went in
	Unclean bool               // the leader was not in the ISR and may lack data
}

// ElectOffline finds a leader for a partition that has none that is online:
// the first replica, in order of preference, that is online and in the ISR.
// The ISR keeps its members that are online. If there is no such replica and
// unclean is set, the first replica that is online leads alone. It reports
// false if nobody can lead.
func ElectOffline(replicas, isr []cluster.BrokerID, online func(cluster.BrokerID) bool, unclean bool) (Outcome, bool) {
	if leader := firstInSync(replicas, isr, online); leader != cluster.NoLeader {
		return Outcome{Leader: leader, ISR: keep(isr, online)}, true
	}
	if i := slices.IndexFunc(replicas, online); unclean && i >= 0 {
		return Outcome{Leader: replicas[i], ISR: replicas[i : i+1 : i+1], Unclean: true}, true
	}
	return Outcome{Leader: cluster.NoLeader}, false
}

// ElectReassign finds a leader among the target replicas of a reassignment:
// the first that is online and in the ISR, which stays as it is.
func ElectReassign(target, isr []cluster.BrokerID, online func(cluster.BrokerID) bool) (Outcome, bool) {
	leader := firstInSync(target, isr, online)
	return Outcome{Leader: leader, ISR: isr}, leader != cluster.NoLeader
}

// ElectPreferred gives the leadership to the first replica, if it is online
// and in the ISR, which stays as it is.
func ElectPreferred(replicas, isr []cluster.BrokerID, online func(cluster.BrokerID) bool) (Outcome, bool) {
	leader := firstInSync(replicas[:min(1, len(replicas))], isr, online)
	return Outcome{Leader: leader, ISR: isr}, leader != cluster.NoLeader
}

// ElectControlledShutdown moves a leadership away from draining brokers: to
// the first replica that is live, in the ISR and not draining. All draining
// brokers leave the ISR.
func ElectControlledShutdown(replicas, isr []cluster.BrokerID, live, draining func(cluster.BrokerID) bool) (Outcome, bool) {
	staying := func(id cluster.BrokerID) bool { return !draining(id) }
	leader := firstInSync(replicas, isr, func(id cluster.BrokerID) bool { return live(id) && staying(id) })
	if leader == cluster.NoLeader {
		return Outcome{Leader: cluster.NoLeader}, false
	}
	return Outcome{Leader: leader, ISR: keep(isr, staying)}, true
}

// firstInSync is the first of candidates that is in the ISR and fit.
func firstInSync(candidates, isr []cluster.BrokerID, fit func(cluster.BrokerID) bool) cluster.BrokerID {
	for _, id := range candidates {
		if slices.Contains(isr, id) && fit(id) {
			return id
		}
	}
	return cluster.NoLeader
}

// keep is the ISR without the members that are not fit, in its order.
func keep(isr []cluster.BrokerID, fit func(cluster.BrokerID) bool) []cluster.BrokerID {
	out := make([]cluster.BrokerID, 0, len(isr))
	for _, id := range isr {
		if fit(id) {
			out = append(out, id)
		}
	}
	return out
}

// Offline reports whether the storage of a replica has failed, as that
// incarnation of its broker says. It is Kafka's replicasOnOfflineDirs.
type Offline func(*cluster.Broker, cluster.PartitionID) bool

// View is what a rule sees of the brokers.
type View struct {
	Brokers map[cluster.BrokerID]*cluster.Broker // the live ones
	Rev     store.Rev                            // the revision that they are seen at

	offline   Offline // nil: nothing has failed
	partition cluster.PartitionID
	im        *cluster.Image // what settings hold; nil: the defaults
}

// ViewOf is what an image shows of the brokers. It changes with the image.
func ViewOf(im *cluster.Image) View { return View{Brokers: im.Brokers, Rev: im.Rev, im: im} }

// At is the view of one partition, to which the storage of its replicas
// matters. Otherwise none of them counts as failed.
func (v View) At(id cluster.PartitionID, offline Offline) View {
	v.partition, v.offline = id, offline
	return v
}

// Online reports whether a broker may lead and join an ISR: it is live, not
// draining, and its replica is not offline.
func (v View) Online(id cluster.BrokerID) bool {
	b := v.Brokers[id]
	return b != nil && !b.Draining() && !v.failed(b)
}

// uncleanAllowed reports whether a replica outside the ISR may lead if none of the ISR
// can. It is asked only then.
func (v View) uncleanAllowed() bool {
	if v.im == nil {
		return false
	}
	t := v.im.TopicByID(v.partition.Topic)
	return t != nil && v.im.UncleanAllowed(t)
}

// failed reports whether the storage of the broker's replica has failed.
func (v View) failed(b *cluster.Broker) bool { return v.offline != nil && v.offline(b, v.partition) }

// same reports whether a broker is live, and was so under the same epoch when
// the record was decided. A record from the future, written by hand or copied
// from elsewhere, says nothing about that.
func (v View) same(p *cluster.Partition, id cluster.BrokerID) bool {
	b := v.Brokers[id]
	return b != nil && v.unchanged(p, b)
}

func (v View) unchanged(p *cluster.Partition, b *cluster.Broker) bool {
	return store.Rev(b.Epoch) <= p.Decided && p.Decided <= v.Rev
}

// steady reports whether a broker could do its part all the time since the
// record was decided, as far as is known, and still can.
func (v View) steady(p *cluster.Partition, id cluster.BrokerID) bool {
	b := v.Brokers[id]
	return b != nil && v.unchanged(p, b) && !v.failed(b)
}

// Next is what becomes of a partition now that the brokers are as v shows, and
// whether that is a change.
//
// A broker that was away since the record was decided counts as failed, even
// if it is back: Kafka's failure and startup in one step. So does one whose
// replica is offline.
//
//   - While the leader is steady and not draining it leads on. Members of the
//     ISR that are not leave it.
//
//   - From a steady leader that is draining the leadership moves to a steady
//     member that is not, and all draining members leave the ISR: Kafka's
//     controlled shutdown. If there is none it leads on, and nobody leaves the
//     ISR for draining: that would gain nothing.
//
//   - Otherwise the steady members that are online elect; failing them, those
//     that came back. Everybody else leaves the ISR.
//
//   - If nobody of the ISR can lead, and the settings allow it, the first replica
//     that is online leads alone: an unclean election.
//
//   - If nobody can lead, the partition has no leader and keeps its whole ISR:
//     each of its members holds all that was committed, so any of them may
//     lead again.
//
//   - A reassignment whose target is in sync ends, when nothing of that is to do.
//
// A change costs one leader epoch and one partition epoch, and nothing more is
// to do after it, but to end a reassignment. Next leaves the controller epoch and the time to the caller.
func Next(p *cluster.Partition, v View) (next cluster.Partition, changed bool) {
	steady := func(id cluster.BrokerID) bool { return v.steady(p, id) }
	if p.Leader != cluster.NoLeader && steady(p.Leader) {
		return v.tend(p)
	}
	cause := pb.ChangeCause_CHANGE_CAUSE_BROKER_UP
	if p.Leader != cluster.NoLeader {
		cause = v.lost(p, p.Leader)
	}
	o, ok := ElectOffline(p.Replicas, p.ISR, func(id cluster.BrokerID) bool { return steady(id) && v.Online(id) }, false)
	if !ok {
		o, ok = ElectOffline(p.Replicas, p.ISR, v.Online, false)
	}
	if !ok && v.uncleanAllowed() {
		o, ok = ElectOffline(p.Replicas, p.ISR, v.Online, true)
	}
	switch {
	case ok && o.Unclean:
		cause = pb.ChangeCause_CHANGE_CAUSE_UNCLEAN_ELECTION
	case ok && p.Cause == pb.ChangeCause_CHANGE_CAUSE_REPLICA_OFFLINE && p.Leader == cluster.NoLeader && v.same(p, o.Leader):
		cause = pb.ChangeCause_CHANGE_CAUSE_REPLICA_ONLINE
	case ok:
	case p.Leader == cluster.NoLeader:
		return v.completed(p)
	default:
		o = Outcome{Leader: cluster.NoLeader, ISR: p.ISR}
	}
	return succeed(p, v, o, cause), true
}

// tend is Next of a partition whose leader is steady.
func (v View) tend(p *cluster.Partition) (next cluster.Partition, changed bool) {
	stays := func(id cluster.BrokerID) bool { // steady and online, looked up once
		b := v.Brokers[id]
		return b != nil && v.unchanged(p, b) && !b.Draining() && !v.failed(b)
	}
	leader := p.Leader
	if !v.Online(leader) {
		o, ok := ElectControlledShutdown(p.Replicas, p.ISR, func(id cluster.BrokerID) bool { return v.steady(p, id) }, v.draining)
		if ok {
			leader = o.Leader
		} else {
			stays = func(id cluster.BrokerID) bool { return v.steady(p, id) }
		}
	}
	gone := slices.IndexFunc(p.ISR, func(id cluster.BrokerID) bool { return !stays(id) })
	if gone < 0 {
		return v.completed(p)
	}
	cause := v.lost(p, p.ISR[gone])
	if leader != p.Leader {
		cause = v.lost(p, p.Leader)
	}
	return succeed(p, v, Outcome{Leader: leader, ISR: keep(p.ISR, stays)}, cause), true
}

func (v View) draining(id cluster.BrokerID) bool {
	b := v.Brokers[id]
	return b != nil && b.Draining()
}

// lost is the cause of a change that is made because a broker is not steady, or
// is draining.
func (v View) lost(p *cluster.Partition, id cluster.BrokerID) pb.ChangeCause {
	switch b := v.Brokers[id]; {
	case b == nil:
		return pb.ChangeCause_CHANGE_CAUSE_BROKER_DOWN
	case !v.same(p, id):
		return pb.ChangeCause_CHANGE_CAUSE_BROKER_RESTARTED
	case v.failed(b):
		return pb.ChangeCause_CHANGE_CAUSE_REPLICA_OFFLINE
	case b.ShuttingDown():
		return pb.ChangeCause_CHANGE_CAUSE_CONTROLLED_SHUTDOWN
	}
	return pb.ChangeCause_CHANGE_CAUSE_BROKER_UNREACHABLE
}

// succeed is the record after an election.
func succeed(p *cluster.Partition, v View, o Outcome, cause pb.ChangeCause) cluster.Partition {
	next := *p
	next.Leader, next.ISR, next.Cause, next.Decided = o.Leader, o.ISR, cause, v.Rev
	next.LeaderEpoch++
	next.PartitionEpoch++
	if o.Unclean {
		next.Recovery = pb.RecoveryState_RECOVERY_STATE_RECOVERING
	}
	return next
}
