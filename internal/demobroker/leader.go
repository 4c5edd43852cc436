package demobroker

import (
	"slices"
	"time"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// leader knows the partitions that the broker leads and that somebody is
// missing from, and since when each of those is back.
type leader struct {
	self  cluster.BrokerID
	after time.Duration // how long a follower takes to catch up
	live  map[cluster.BrokerID]cluster.BrokerEpoch
	led   map[cluster.PartitionID]*led
}

type led struct {
	state   broker.PartitionState
	asked   bool // a proposal is not decided yet
	settled bool // a proposal about this state was decided: wait for the next
	back    map[cluster.BrokerID]sighting
}

// sighting is since when a follower has been seen in one incarnation.
type sighting struct {
	epoch cluster.BrokerEpoch
	since time.Time
}

func newLeader(self cluster.BrokerID, after time.Duration) *leader {
	return &leader{self: self, after: after, led: map[cluster.PartitionID]*led{}}
}

// apply takes in the newest state of a partition.
func (l *leader) apply(s broker.PartitionState) {
	if s.Leader != l.self || len(s.ISR) >= len(s.Replicas) {
		delete(l.led, s.Partition)
		return
	}
	p := l.led[s.Partition]
	if p == nil {
		p = &led{back: map[cluster.BrokerID]sighting{}}
		l.led[s.Partition] = p
	}
	p.state, p.asked, p.settled = s, false, false
	for _, id := range s.ISR {
		delete(p.back, id)
	}
}

// forget takes in that the broker does not host a partition any more.
func (l *leader) forget(id cluster.PartitionID) { delete(l.led, id) }

// setLive takes in who is live.
func (l *leader) setLive(live []broker.LiveBroker) {
	l.live = make(map[cluster.BrokerID]cluster.BrokerEpoch, len(live))
	for _, b := range live {
		l.live[b.ID] = b.Epoch
	}
}

// due are the changes to propose now, in order of partition. Each lets in one
// follower: one that may not join (it is draining, or has started again) makes
// the controller refuse the whole change, and would keep out the others.
func (l *leader) due(now time.Time) []broker.IsrChange {
	var out []broker.IsrChange
	for _, p := range l.led {
		if id, ok := l.caughtUp(p, now); ok && !p.asked && !p.settled {
			p.asked = true
			out = append(out, l.change(p, id))
		}
	}
	slices.SortFunc(out, func(a, b broker.IsrChange) int { return a.Partition.Compare(b.Partition) })
	return out
}

// caughtUp is the replica outside the ISR that has been back for the longest
// time, if that is long enough.
func (l *leader) caughtUp(p *led, now time.Time) (longest cluster.BrokerID, ok bool) {
	since := now.Add(-l.after)
	for _, id := range p.state.Replicas {
		if slices.Contains(p.state.ISR, id) {
			continue
		}
		epoch := l.live[id]
		seen, known := p.back[id]
		switch {
		case epoch == 0:
			delete(p.back, id)
		case !known || seen.epoch != epoch:
			p.back[id] = sighting{epoch: epoch, since: now}
		case !ok && !seen.since.After(since) || seen.since.Before(since):
			longest, since, ok = id, seen.since, true
		}
	}
	return longest, ok
}

func (l *leader) change(p *led, join cluster.BrokerID) broker.IsrChange {
	c := broker.IsrChange{
		Partition:      p.state.Partition,
		LeaderEpoch:    p.state.LeaderEpoch,
		PartitionEpoch: p.state.PartitionEpoch,
		Recovery:       pb.RecoveryState_RECOVERY_STATE_RECOVERED, // what leads has what it has
	}
	for _, id := range append(slices.Clone(p.state.ISR), join) {
		c.NewISR = append(c.NewISR, broker.IsrMember{Broker: id, Epoch: l.live[id]})
	}
	return c
}

// answered takes in what became of a change. One that is committed, or that
// was decided from an old state, waits for the next state; after any other
// refusal the follower has to catch up again, and the next one is tried.
func (l *leader) answered(c broker.IsrChange, r broker.IsrResult, err error) {
	p := l.led[c.Partition]
	if p == nil || p.state.LeaderEpoch != c.LeaderEpoch || p.state.PartitionEpoch != c.PartitionEpoch {
		return // the next state is here already
	}
	p.asked = false
	if err == nil && (r.Reason == "" || r.Reason == cluster.InvalidUpdateVersion || r.Reason == cluster.FencedLeaderEpoch) {
		p.settled = true
		return
	}
	for _, m := range c.NewISR {
		if !slices.Contains(p.state.ISR, m.Broker) {
			delete(p.back, m.Broker)
		}
	}
}
