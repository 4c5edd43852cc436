package statemachine

import (
	"math/rand/v2"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// NewTopic is a topic that is being made. Its partitions may be made in slices,
// each from an image of its own.
type NewTopic struct {
	// Record makes the partitions visible: they must be stored first.
	Record *pb.TopicRecord

	id           cluster.TopicID
	given        []*pb.ReplicaAssignment // nil: the replicas are chosen
	sites        []Site
	start, shift int
}

// BeginTopic validates a new topic, makes its record, and draws from the seed
// where the placement of its partitions begins. Draining brokers get replicas
// only if there are too few others.
func BeginTopic(im *cluster.Image, t Term, nt *pb.NewTopic, id cluster.TopicID, requestID string, seed uint64) (*NewTopic, *Rejection) {
	if rej := ValidateNewTopic(im, nt); rej != nil {
		return nil, rej
	}
	partitions, rf := Shape(nt)
	n := &NewTopic{id: id, given: nt.GetAssignments(), Record: &pb.TopicRecord{
		TopicId:           id[:],
		PartitionsWanted:  partitions,
		PartitionsMade:    partitions,
		ReplicationFactor: rf,
		BlockSize:         blockSize(nt),
		Config:            nt.GetConfig(),
		RequestId:         requestID,
		CreatedMs:         t.NowMs,
	}}
	if len(n.given) == 0 {
		n.sites = sitesFor(im, int(rf))
		rng := rand.New(rand.NewPCG(seed, 0))
		n.start, n.shift = rng.IntN(len(n.sites)), rng.IntN(len(n.sites))
		if _, rej := n.place(0, 1); rej != nil {
			return nil, rej
		}
	}
	return n, nil
}

// Partitions makes the first records of the partitions from one index up to
// another, in order. A partition begins at epochs 0 with its online replicas as
// ISR and the first of them as leader.
func (n *NewTopic) Partitions(im *cluster.Image, t Term, from, to int32) []Write {
	placed, rej := n.place(from, to)
	if rej != nil {
		return nil // BeginTopic has placed one
	}
	v := ViewOf(im)
	parts := make([]Write, len(placed))
	for i, replicas := range placed {
		parts[i] = Write{ID: cluster.PartitionID{Topic: n.id, Index: from + int32(i)}, New: newPartition(replicas, v)}
		t.stamp(&parts[i].New)
	}
	return parts
}

// place chooses the replicas of partitions, or takes those that are given.
func (n *NewTopic) place(from, to int32) ([][]cluster.BrokerID, *Rejection) {
	if len(n.given) > 0 {
		out := make([][]cluster.BrokerID, 0, to-from)
		for _, a := range n.given[from:to] {
			out = append(out, cluster.BrokerIDs(a.GetReplicas()))
		}
		return out, nil
	}
	passed := max(0, int(from)-1) / len(n.sites) // rounds, each of which adds one to the shift
	return AutoAssign(n.sites, to-from, n.Record.GetReplicationFactor(), n.start, n.shift+passed, from)
}
