package sim

import (
	"slices"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// maxEntries bounds one AlterPartition.
const maxEntries = 40

// fetch is what replication comes to: now and then a leader notices which
// followers keep up, and asks for the ISR to be so.
func (b *simBroker) fetch() {
	b.after(200*time.Millisecond+b.w.upTo(600*time.Millisecond), nil, b.fetch)
	if b.altering || !b.joined {
		return
	}
	req := &pb.AlterPartitionRequest{
		ClusterUuid: b.gate.ClusterUUID(), BrokerId: int32(b.id), BrokerEpoch: int64(b.gate.BrokerEpoch()),
	}
	for _, id := range b.gate.Replicas() {
		s, _ := b.gate.Replica(id)
		if s.Leader != b.id || len(req.Topics) == maxEntries {
			continue
		}
		if e := b.alteration(&s); e != nil {
			req.Topics = append(req.Topics, &pb.AlterPartitionTopic{TopicId: id.Topic[:], Partitions: []*pb.AlterPartitionEntry{e}})
		}
	}
	if len(req.Topics) > 0 {
		b.alter(req)
	}
}

// alteration is the ISR as the leader sees it, nil if it is so already.
func (b *simBroker) alteration(s *fencing.PartitionState) *pb.AlterPartitionEntry {
	e := &pb.AlterPartitionEntry{
		Partition: s.Partition.Index, LeaderEpoch: int32(s.LeaderEpoch), PartitionEpoch: int32(s.PartitionEpoch),
	}
	// What leads has recovered, from its own point of view.
	changed := s.Recovery == pb.RecoveryState_RECOVERY_STATE_RECOVERING
	e.Recovery = pb.RecoveryState_RECOVERY_STATE_RECOVERED
	for _, r := range s.Replicas {
		member := slices.Contains(s.ISR, r)
		in, epoch := b.keepsUp(r, s, member)
		changed = changed || in != member
		if in {
			e.NewIsr = append(e.NewIsr, &pb.IsrMember{BrokerId: int32(r), BrokerEpoch: epoch})
		}
	}
	if !changed {
		return nil
	}
	return e
}

// keepsUp reports whether a replica belongs into the ISR, and the broker epoch
// under which it fetches. Followers need a while to catch up, and leaders to
// notice that they do not.
func (b *simBroker) keepsUp(r cluster.BrokerID, s *fencing.PartitionState, member bool) (in bool, epoch int64) {
	if r == b.id {
		return true, int64(b.gate.BrokerEpoch())
	}
	f := b.w.brokers[r]
	has, ok := f.gate.Replica(s.Partition)
	fetches := f.runs() && ok && has.Leader == b.id && has.LeaderEpoch == s.LeaderEpoch
	in = member
	if fetches != member && b.w.chance(0.4) {
		in = fetches
	}
	epoch = int64(f.gate.BrokerEpoch())
	if b.w.chance(0.1) {
		epoch = -1
	}
	return in, epoch
}

// alter asks for changes of ISRs. Whoever hears no answer asks again, perhaps
// for something else; sometimes a request is sent twice.
func (b *simBroker) alter(req *pb.AlterPartitionRequest) {
	b.altering = true
	b.w.saw(req)
	done := func(resp any, err error) {
		b.altering = false
		if err != nil {
			b.daemon = (b.daemon + 1) % daemons
			return
		}
		b.altered(req, resp.(*pb.AlterPartitionResponse))
	}
	serve := func(d *simDaemon, c *rpcCall) { d.decide(c, rpc.Alter{AlterPartitionRequest: req}, true) }
	if d := b.bounce(req); d > 0 {
		b.after(d, nil, func() { b.toDaemon(alterTimeout, serve, done) })
		return
	}
	b.toDaemon(alterTimeout, serve, done)
	if b.w.chance(0.05) {
		b.after(b.w.upTo(time.Second), nil, func() { b.toDaemon(alterTimeout, serve, done) })
	}
}

// altered adopts what was committed.
func (b *simBroker) altered(req *pb.AlterPartitionRequest, resp *pb.AlterPartitionResponse) {
	for _, t := range resp.GetTopics() {
		id, err := cluster.TopicIDFrom(t.GetTopicId())
		if err != nil {
			continue
		}
		for _, p := range t.GetPartitions() {
			b.w.noteRefused(req, cluster.PartitionID{Topic: id, Index: p.GetPartition()}, p)
			if p.GetError() != "" {
				b.w.tracef("%s: alter %s-%d: %s %s", b.name, id, p.GetPartition(), p.GetError(), p.GetMessage())
				continue
			}
			r, at := p.GetState(), cluster.PartitionID{Topic: id, Index: p.GetPartition()}
			b.w.checkStored(at, cluster.BrokerID(r.GetLeader()), cluster.LeaderEpoch(r.GetLeaderEpoch()), cluster.PartitionEpoch(r.GetPartitionEpoch()), b.name)
			b.gate.Committed(at, r)
		}
	}
}
