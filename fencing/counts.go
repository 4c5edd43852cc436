package fencing

import (
	"slices"

	"github.com/controllerd/controllerd/cluster"
)

// Counts are what a gate holds, and how the ISRs of what the broker leads have
// changed since the gate was made.
type Counts struct {
	Hosted, Leading int // partitions, by the newest states
	Offline         int // replicas whose storage has failed
	Strays          int // replicas that nobody has assigned to this broker
	// States of partitions that the broker led, and still leads, whose ISR lacks
	// members of the one before, or has others.
	IsrShrinks, IsrExpands int64
}

// Counts takes the same time however much the gate holds.
func (g *Gate) Counts() Counts {
	c := g.counts
	c.Hosted, c.Offline, c.Strays = int(g.digests.hosted.Count), len(g.offline), len(g.strays)
	return c
}

// count takes in that a state has replaced another, or what was stopped: nil.
func (g *Gate) count(old, now *PartitionState) {
	led, leads := old != nil && old.Leader == g.broker, now != nil && now.Leader == g.broker
	switch {
	case leads && !led:
		g.counts.Leading++
	case led && !leads:
		g.counts.Leading--
	case led && leads:
		if lacks(now.ISR, old.ISR) {
			g.counts.IsrShrinks++
		}
		if lacks(old.ISR, now.ISR) {
			g.counts.IsrExpands++
		}
	}
}

// lacks reports whether some of the members are not in the ISR.
func lacks(isr, members []cluster.BrokerID) bool {
	return slices.ContainsFunc(members, func(id cluster.BrokerID) bool { return !slices.Contains(isr, id) })
}
