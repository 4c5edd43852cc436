package statemachine

import (
	"fmt"
	"slices"

	"github.com/controllerd/controllerd/cluster"
)

// ReplicaState is Kafka's state of a replica. It is derived from the records
// of the partition and of the broker, never stored.
type ReplicaState uint8

// The states of a replica.
const (
	ReplicaNonExistent ReplicaState = iota // not one of the partition's replicas
	ReplicaNew                             // being added by a reassignment: it may be created
	ReplicaOnline                          // its broker may lead
	ReplicaOffline                         // its broker is not live, or draining
	replicaStates
)

func (s ReplicaState) String() string {
	return [...]string{"NonExistent", "New", "Online", "Offline"}[s]
}

// replicaEdges are the legal edges, from row to column. What they forbid is
// that a replica which holds data becomes New: a broker that lost a disk would
// create it again, empty.
var replicaEdges = [replicaStates][replicaStates]bool{
	ReplicaNonExistent: {ReplicaNonExistent: true, ReplicaNew: true, ReplicaOnline: true, ReplicaOffline: true},
	ReplicaNew:         {ReplicaNonExistent: true, ReplicaNew: true, ReplicaOnline: true, ReplicaOffline: true},
	ReplicaOnline:      {ReplicaNonExistent: true, ReplicaOnline: true, ReplicaOffline: true},
	ReplicaOffline:     {ReplicaNonExistent: true, ReplicaOnline: true, ReplicaOffline: true},
}

// ReplicaStateOf derives the state of a broker's replica, p may be nil.
func ReplicaStateOf(p *cluster.Partition, id cluster.BrokerID, v View) ReplicaState {
	switch {
	case p == nil || !slices.Contains(p.Replicas, id):
		return ReplicaNonExistent
	case slices.Contains(p.Adding, id):
		return ReplicaNew
	case v.Online(id):
		return ReplicaOnline
	}
	return ReplicaOffline
}

// checkReplicas holds a change of a partition against the table of replicas.
// The brokers do not matter: both of the states that depend on them have the
// same edges.
func checkReplicas(old, p *cluster.Partition) error {
	for _, id := range p.Replicas {
		from, to := ReplicaStateOf(old, id, View{}), ReplicaStateOf(p, id, View{})
		if !replicaEdges[from][to] {
			return fmt.Errorf("replica on broker %d goes from %s to %s", id, from, to)
		}
	}
	return nil
}
