package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// ErrUnseenMember (I10): a replica that comes into an ISR was seen by the
// leader to keep up, in this leader epoch and in the incarnation that etcd held
// when it was decided. A process that has started since may have lost what the
// one before it had.
var ErrUnseenMember = errors.New("I10: ISR member that its leader has not seen")

// sighting is an incarnation of a replica that its leader has seen to keep up;
// 0: the leader does not know which.
type sighting struct {
	partition cluster.PartitionID
	epoch     cluster.LeaderEpoch
	replica   cluster.BrokerID
	broker    cluster.BrokerEpoch
}

// saw notes what a leader claims of its followers.
func (w *World) saw(req *pb.AlterPartitionRequest) {
	of := func(t *pb.AlterPartitionTopic) ([]byte, []*pb.AlterPartitionEntry) {
		return t.GetTopicId(), t.GetPartitions()
	}
	entries(req.GetTopics(), of, func(id cluster.PartitionID, e *pb.AlterPartitionEntry) {
		for _, m := range e.GetNewIsr() {
			at := sighting{id, cluster.LeaderEpoch(e.GetLeaderEpoch()), cluster.BrokerID(m.GetBrokerId()), cluster.BrokerEpoch(max(m.GetBrokerEpoch(), 0))}
			w.sightings[at] = true
		}
	})
}

// checkMembers checks who has come into an ISR (I10). One that has restarted
// since that was decided is taken out again for it. Whom an unclean election
// lets lead is alone, and nobody led before, unless the settings allow it at once. In runs whose watches lose
// events the decision may have been made without knowing of a restart.
func (w *World) checkMembers(t transaction, id cluster.PartitionID, old, r *pb.PartitionRecord) {
	if t.trusted || old == nil || w.p.compare != 0 {
		return
	}
	if r.GetCause() == pb.ChangeCause_CHANGE_CAUSE_UNCLEAN_ELECTION {
		if old.GetLeader() != int32(cluster.NoLeader) && !w.unclean || len(r.GetIsr()) != 1 {
			w.blame(ErrUnseenMember, "unclean election in %s at revision %d: from %s to %s", w.checker.name(id), t.rev, recordText(old), recordText(r))
		}
		return
	}
	for _, m := range r.GetIsr() {
		live := w.checker.history.live[cluster.BrokerID(m)]
		if slices.Contains(old.GetIsr(), m) || live == 0 || store.Rev(live) > store.Rev(r.GetDecidedRevision()) {
			continue
		}
		at := sighting{id, cluster.LeaderEpoch(r.GetLeaderEpoch()), cluster.BrokerID(m), live}
		unknown := at
		unknown.broker = 0
		if !w.sightings[at] && !w.sightings[unknown] {
			w.blame(ErrUnseenMember, "broker %d, broker epoch %d, in %s at revision %d: %s", m, live, w.checker.name(id), t.rev, recordText(r))
		}
	}
}

// bounce restarts a follower that the next AlterPartition lets into an ISR,
// while that is on its way: it returns for how long.
func (b *simBroker) bounce(req *pb.AlterPartitionRequest) time.Duration {
	w := b.w
	if !w.bouncing {
		return 0
	}
	for _, t := range req.GetTopics() {
		for _, e := range t.GetPartitions() {
			s, _ := b.gate.Replica(cluster.PartitionID{Topic: cluster.TopicID(t.GetTopicId()), Index: e.GetPartition()})
			for _, m := range e.GetNewIsr() {
				id := cluster.BrokerID(m.GetBrokerId())
				if id == b.id || m.GetBrokerEpoch() <= 0 || slices.Contains(s.ISR, id) || w.brokers[id].dead {
					continue
				}
				w.bouncing = false
				w.disturbed()
				w.brokers[id].kill()
				w.later(pick(w, 20*time.Millisecond, 200*time.Millisecond), func() { w.startBroker(int(id)) })
				return w.upTo(3 * time.Second)
			}
		}
	}
	return 0
}

// noteRefused counts the members of an ISR that were refused because they had
// restarted.
func (w *World) noteRefused(req *pb.AlterPartitionRequest, id cluster.PartitionID, r *pb.AlterPartitionResult) {
	if r.GetError() != string(cluster.IneligibleReplica) {
		return
	}
	for _, t := range req.GetTopics() {
		for _, e := range t.GetPartitions() {
			if string(t.GetTopicId()) != string(id.Topic[:]) || e.GetPartition() != id.Index {
				continue
			}
			for _, m := range e.GetNewIsr() {
				saw := cluster.BrokerEpoch(m.GetBrokerEpoch())
				if live := w.checker.history.live[cluster.BrokerID(m.GetBrokerId())]; saw > 0 && live > saw {
					w.seen["ISR member that had restarted refused"]++
				}
			}
		}
	}
}
