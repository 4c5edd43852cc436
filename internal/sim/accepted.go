package sim

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// brokerFacts are what one broker obeyed.
type brokerFacts struct {
	// Both never fall, whatever the process: a new one hears of them when it
	// registers.
	epoch       cluster.Epoch
	brokerEpoch cluster.BrokerEpoch

	// Of its present process.
	hosted map[cluster.PartitionID]epochs
	live   map[cluster.BrokerID]cluster.BrokerEpoch
}

type epochs struct {
	leader    cluster.LeaderEpoch
	partition cluster.PartitionEpoch
}

func (e epochs) below(f epochs) bool {
	return e.leader < f.leader || e.leader == f.leader && e.partition < f.partition
}

// sender is who sends with an epoch.
type sender struct{ id, process string }

// Started says that a process of the broker has started: it holds nothing yet.
func (c *Checker) Started(id cluster.BrokerID) {
	b := c.broker(id)
	b.hosted, b.live = map[cluster.PartitionID]epochs{}, nil
}

// Registered says that the broker has heard that it is registered under that
// broker epoch. What is meant for an older incarnation is stale from now on.
func (c *Checker) Registered(id cluster.BrokerID, e cluster.BrokerEpoch) {
	b := c.broker(id)
	b.brokerEpoch = max(b.brokerEpoch, e)
}

func (c *Checker) broker(id cluster.BrokerID) *brokerFacts {
	b := c.brokers[id]
	if b == nil {
		b = &brokerFacts{hosted: map[cluster.PartitionID]epochs{}}
		c.brokers[id] = b
	}
	return b
}

// Accepted takes in one decision of a broker.
func (c *Checker) Accepted(a Accepted) {
	c.sent(a)
	b := c.broker(a.Broker)
	switch a.Result {
	case fencing.Admitted.String(), fencing.IsrAdopted.String():
		c.obeyed(b, a)
	case fencing.Already.String(): // it holds this or something newer
		at := a.partition()
		if e := a.epochs(); b.hosted[at].below(e) {
			b.hosted[at] = e
		}
	}
}

func (a *Accepted) partition() cluster.PartitionID {
	return cluster.PartitionID{Topic: a.TopicID, Index: a.Partition}
}

// epochs are those of the state. What stops a replica is above all of its
// leader epoch: nothing but a higher one may bring it back.
func (a *Accepted) epochs() epochs {
	if a.Command == broker.StopReplica {
		return epochs{a.LeaderEpoch, math.MaxInt32}
	}
	return epochs{a.LeaderEpoch, a.PartitionEpoch}
}

// sent notes who sent a command, obeyed or not (I1).
func (c *Checker) sent(a Accepted) {
	if a.ControllerEpoch == 0 {
		return
	}
	now := sender{a.Sender, a.Process}
	was, known := c.senders[a.ControllerEpoch]
	if !known {
		c.senders[a.ControllerEpoch] = now
		c.checkSender(a.At, a.ControllerEpoch)
	} else if was != now {
		c.violated(ErrTwoSenders, a.At, "epoch %d was sent by %v and by %v", a.ControllerEpoch, was, now)
	}
}

// checkSender holds the sender of an epoch against the one that won it. Either
// may be known first.
func (c *Checker) checkSender(at time.Duration, e cluster.Epoch) {
	t, s := c.history.terms[e], c.senders[e]
	if t == nil || s == (sender{}) {
		return
	}
	if t.GetController() != s.id || s.process != "" && t.GetNonce() != s.process {
		c.violated(ErrTwoSenders, at, "epoch %d was won by %s (%s) and sent by %v", e, t.GetController(), t.GetNonce(), s)
	}
}

// obeyed checks that what a broker obeys is not older than before (I3).
func (c *Checker) obeyed(b *brokerFacts, a Accepted) {
	switch {
	case a.ControllerEpoch < b.epoch:
		c.violated(ErrStaleAccepted, a.At, "broker %d obeyed controller epoch %d of %s after %d", a.Broker, a.ControllerEpoch, a.Sender, b.epoch)
	case a.BrokerEpoch < b.brokerEpoch:
		c.violated(ErrStaleAccepted, a.At, "broker %d obeyed a command for broker epoch %d under %d", a.Broker, a.BrokerEpoch, b.brokerEpoch)
	}
	b.epoch, b.brokerEpoch = max(b.epoch, a.ControllerEpoch), max(b.brokerEpoch, a.BrokerEpoch)
	if a.Command == broker.UpdateMetadata {
		if a.Live != nil {
			b.live = map[cluster.BrokerID]cluster.BrokerEpoch{}
			for _, l := range a.Live {
				b.live[l.ID] = l.Epoch
			}
		}
		return
	}
	if a.Partition == broker.WholeCommand {
		return
	}
	at, now := a.partition(), a.epochs()
	if was := b.hosted[at]; now.below(was) {
		c.violated(ErrStaleAccepted, a.At, "broker %d obeyed leader epoch %d, partition epoch %d of %s-%d after %d, %d",
			a.Broker, now.leader, now.partition, a.Topic, a.Partition, was.leader, was.partition)
	}
	b.hosted[at] = now
}

// converged compares the live brokers with etcd (I5).
func (c *Checker) converged(at time.Duration) {
	if at-c.faulted <= c.bounds.Converge {
		return
	}
	young := false
	late := func(since ...time.Duration) bool {
		l := at-slices.Max(since) > c.bounds.Converge
		young = young || !l
		return l
	}
	h := &c.history
	for _, id := range slices.Sorted(maps.Keys(h.live)) {
		b, joined := c.broker(id), h.joined[id]
		if late(joined, h.liveChanged) && !maps.Equal(b.live, h.live) {
			c.violated(ErrNotConverged, at, "metadata of broker %d names %v, live are %v", id, b.live, h.live)
		}
		for _, name := range slices.Sorted(maps.Keys(h.topics)) {
			c.eachHosted(id, h.topics[name], func(r *record) {
				have, any := b.hosted[cluster.PartitionID{Topic: cluster.TopicID(h.topics[name].GetTopicId()), Index: r.GetPartition()}]
				want := r.epochs()
				if late(joined, h.appeared[name], r.changed) && (have != want || !any) {
					c.violated(ErrNotConverged, at, "broker %d has %s-%d at leader epoch %d, partition epoch %d, etcd at %d, %d",
						id, name, r.GetPartition(), have.leader, have.partition, want.leader, want.partition)
				}
			})
		}
	}
	if !young && len(h.live) > 0 {
		c.looks.Converged++
	}
}

// eachHosted visits the records of a topic that name the broker as a replica.
func (c *Checker) eachHosted(id cluster.BrokerID, t *pb.TopicRecord, visit func(*record)) {
	topic, err := cluster.TopicIDFrom(t.GetTopicId())
	if err != nil {
		return
	}
	for i := range t.GetPartitionsMade() {
		r := c.history.records[cluster.PartitionID{Topic: topic, Index: i}]
		if r != nil && slices.Contains(r.GetReplicas(), int32(id)) {
			visit(r)
		}
	}
}
