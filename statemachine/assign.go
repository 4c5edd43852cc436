package statemachine

import (
	"slices"
	"strings"

	"github.com/controllerd/controllerd/cluster"
)

// Site is a broker to place replicas on.
type Site struct {
	ID   cluster.BrokerID
	Rack string // empty: not known
}

// AutoAssign places partitions as Kafka does: leaders round robin from
// startIndex on, further replicas at a distance that begins with shift and
// grows with each round; if the brokers have racks, on as many of them as
// possible. It returns the replicas of each partition from firstPartition on.
//
// startIndex and shift are at least 0, usually random numbers below the number
// of sites. Refused are, in this order, no partitions (INVALID_PARTITIONS), a
// replication factor below 1 or above the number of sites
// (INVALID_REPLICATION_FACTOR), and racks that only some of the sites have
// (INVALID_REPLICA_ASSIGNMENT).
func AutoAssign(sites []Site, partitions, rf int32, startIndex, shift int, firstPartition int32) ([][]cluster.BrokerID, *Rejection) {
	switch {
	case partitions < 1:
		return nil, reject(cluster.InvalidPartitions, "%d partitions, want at least 1", partitions)
	case rf < 1:
		return nil, reject(cluster.InvalidReplicationFactor, "replication factor %d, want at least 1", rf)
	case int(rf) > len(sites):
		return nil, reject(cluster.InvalidReplicationFactor, "replication factor %d is more than the %d brokers", rf, len(sites))
	}
	sites = slices.SortedFunc(slices.Values(sites), func(a, b Site) int { return int(a.ID) - int(b.ID) })
	racks, without := countRacks(sites)
	if racks > 0 && len(without) > 0 {
		return nil, reject(cluster.InvalidReplicaAssignment, "brokers %v have no rack, others have one: give all of them a rack, or none", without)
	}
	a := assigner{sites: sites, racks: max(1, racks)}
	if racks > 0 {
		a.sites = alternateRacks(sites)
	}
	out := make([][]cluster.BrokerID, partitions)
	for i := range out {
		p := int(firstPartition) + i
		if p > 0 && p%len(sites) == 0 {
			shift++
		}
		out[i] = a.place((p+startIndex)%len(sites), shift, int(rf))
	}
	return out, nil
}

// assigner places partitions on sites in the order in which they take turns.
type assigner struct {
	sites []Site
	racks int // 1 if there are none
}

// place chooses the replicas of one partition whose first is at index first.
// While a rack is unused, sites of used racks are passed over.
func (a assigner) place(first, shift, rf int) []cluster.BrokerID {
	out := make([]cluster.BrokerID, 1, rf)
	out[0] = a.sites[first].ID
	used := make([]string, 1, min(rf, a.racks))
	used[0] = a.sites[first].Rack
	for k := 0; len(out) < rf; k++ {
		site := a.sites[(first+1+(shift*a.racks+k)%(len(a.sites)-1))%len(a.sites)]
		fresh := !slices.Contains(used, site.Rack)
		if slices.Contains(out, site.ID) || !fresh && len(used) < a.racks {
			continue
		}
		out = append(out, site.ID)
		if fresh {
			used = append(used, site.Rack)
		}
	}
	return out
}

// alternateRacks orders sites so that neighbours are on different racks as
// long as possible: one of each rack in turn, racks in order of name.
func alternateRacks(sites []Site) []Site {
	turn := make(map[string]int, len(sites))
	type seat struct {
		Site
		round int
	}
	seats := make([]seat, len(sites))
	for i, s := range sites {
		seats[i] = seat{s, turn[s.Rack]}
		turn[s.Rack]++
	}
	slices.SortStableFunc(seats, func(a, b seat) int {
		if a.round != b.round {
			return a.round - b.round
		}
		return strings.Compare(a.Rack, b.Rack)
	})
	out := make([]Site, len(seats))
	for i, s := range seats {
		out[i] = s.Site
	}
	return out
}

// countRacks is the number of different racks, and the sites without one.
func countRacks(sites []Site) (racks int, without []cluster.BrokerID) {
	seen := map[string]bool{}
	for _, s := range sites {
		if s.Rack == "" {
			without = append(without, s.ID)
		} else {
			seen[s.Rack] = true
		}
	}
	return len(seen), without
}
