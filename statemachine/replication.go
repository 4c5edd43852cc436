package statemachine

import (
	"cmp"
	"slices"

	"github.com/controllerd/controllerd/cluster"
)

// Resize are the replicas of a partition with another replication factor. Those
// that it has stay in their order. Fewer: those that are not live go first, then
// those outside the ISR, then the last. More: brokers on racks that have none yet
// are preferred, then those with the fewest replicas, which load counts.
//
// There must be enough sites; load must tell the same until it is told of the
// result.
func Resize(p *cluster.Partition, rf int, sites []Site, load func(cluster.BrokerID) int32) []cluster.BrokerID {
	out := slices.Clone(AssignmentOf(p).Target())
	if p.Queued() {
		out = slices.Clone(p.Target)
	}
	rank := func(id cluster.BrokerID) int { // who goes first has the lowest
		switch {
		case !slices.ContainsFunc(sites, func(s Site) bool { return s.ID == id }):
			return 0
		case !slices.Contains(p.ISR, id):
			return 1
		}
		return 2
	}
	for len(out) > rf {
		worst := len(out) - 1
		for i := len(out) - 1; i >= 0; i-- {
			if rank(out[i]) < rank(out[worst]) {
				worst = i
			}
		}
		out = slices.Delete(out, worst, worst+1)
	}
	for len(out) < rf {
		used := map[string]bool{}
		for _, s := range sites {
			if s.Rack != "" && slices.Contains(out, s.ID) {
				used[s.Rack] = true
			}
		}
		var best *Site
		for i := range sites {
			s := &sites[i]
			if slices.Contains(out, s.ID) {
				continue
			}
			if best == nil || cmp.Or(order(used[s.Rack], used[best.Rack]), cmp.Compare(load(s.ID), load(best.ID)), cmp.Compare(s.ID, best.ID)) < 0 {
				best = s
			}
		}
		if best == nil {
			return out
		}
		out = append(out, best.ID)
	}
	return out
}

// order puts false before true.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// SitesOf are the brokers that replicas can be added on: those that are live and
// not draining, in order.
func SitesOf(im *cluster.Image) []Site { return sitesFor(im, 0) }

// CheckFactor refuses a replication factor that a topic cannot have.
func CheckFactor(topic *cluster.Topic, rf int32, sites []Site) *Rejection {
	switch {
	case rf < 1:
		return reject(cluster.InvalidReplicationFactor, "replication factor %d, want at least 1", rf)
	case int(rf) > len(sites):
		return reject(cluster.InvalidReplicationFactor, "replication factor %d is more than the %d live brokers", rf, len(sites))
	}
	return checkBlockSize(topic.BlockSize(), rf)
}
