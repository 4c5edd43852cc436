package cluster

import (
	"fmt"
	"math"
	"slices"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// Partition is the record of one partition: its assignment and its state. It
// is never changed in place: a change is a new value. Its slices are shared
// with other partitions.
//
// There may be millions of them, 16 in an array: at 168 bytes each that array
// is exactly one of the sizes that the allocator has.
type Partition struct {
	Replicas []BrokerID // in order of preference, not empty, no duplicates
	Adding   []BrokerID
	Removing []BrokerID
	Target   []BrokerID
	ISR      []BrokerID // not empty, within Replicas; may be the same slice

	ControllerEpoch Epoch    // of the term that wrote it
	Leader          BrokerID // in ISR, or NoLeader
	LeaderEpoch     LeaderEpoch
	PartitionEpoch  PartitionEpoch
	Recovery        pb.RecoveryState
	Cause           pb.ChangeCause
	index           int32 // in its topic; set in a Block only
	ChangedMs       int64 // wall clock of the writer, for people only
	// Decided is the revision of the image that the record was decided from. A
	// replica whose broker epoch is higher has restarted since.
	Decided store.Rev
}

// Clone is a copy that shares nothing.
func (p *Partition) Clone() Partition {
	c := *p
	c.Replicas = slices.Clone(p.Replicas)
	c.Adding = slices.Clone(p.Adding)
	c.Removing = slices.Clone(p.Removing)
	c.Target = slices.Clone(p.Target)
	c.ISR = slices.Clone(p.ISR)
	return c
}

// LedByPreferred reports whether the first replica leads. One that is being added
// and is not in sync yet cannot, and is not missed.
func (p *Partition) LedByPreferred() bool {
	first := p.Replicas[0]
	return p.Leader == first || slices.Contains(p.Adding, first) && !slices.Contains(p.ISR, first)
}

// Moving reports whether a reassignment is under way: replicas are being added,
// or some of them are to go.
func (p *Partition) Moving() bool {
	return len(p.Adding) > 0 || slices.ContainsFunc(p.Removing, func(id BrokerID) bool { return slices.Contains(p.Replicas, id) })
}

// Queued reports whether a reassignment is wanted that has not begun.
func (p *Partition) Queued() bool { return len(p.Target) > 0 }

// Left reports whether a broker was a replica and has yet to confirm that it has
// deleted it: it is still one of those to be removed.
func (p *Partition) Left(id BrokerID) bool {
	return slices.Contains(p.Removing, id) && !slices.Contains(p.Replicas, id)
}

// Leaving are the brokers that have Left.
func (p *Partition) Leaving() []BrokerID {
	var out []BrokerID
	for _, id := range p.Removing {
		if !slices.Contains(p.Replicas, id) {
			out = append(out, id)
		}
	}
	return out
}

// check reports what makes the record one that no rule could have written.
func (p *Partition) check() error {
	switch {
	case len(p.Replicas) == 0:
		return fmt.Errorf("no replicas")
	case hasDuplicates(p.Replicas):
		return fmt.Errorf("replicas %v name a broker twice", p.Replicas)
	case slices.Min(p.Replicas) < 0:
		return fmt.Errorf("replicas %v name a negative broker", p.Replicas)
	case len(p.ISR) == 0:
		return fmt.Errorf("empty ISR")
	case hasDuplicates(p.ISR) || !within(p.ISR, p.Replicas):
		return fmt.Errorf("ISR %v is not within the replicas %v", p.ISR, p.Replicas)
	case len(p.Adding) > 0 && (hasDuplicates(p.Adding) || !within(p.Adding, p.Replicas)):
		return fmt.Errorf("adding %v is not within the replicas %v", p.Adding, p.Replicas)
	case hasDuplicates(p.Removing) || hasDuplicates(p.Target):
		return fmt.Errorf("removing %v or target %v name a broker twice", p.Removing, p.Target)
	case p.Leader != NoLeader && !slices.Contains(p.ISR, p.Leader):
		return fmt.Errorf("leader %d is not in the ISR %v", p.Leader, p.ISR)
	case p.LeaderEpoch < 0 || p.PartitionEpoch < 0 || p.ControllerEpoch < 0:
		return fmt.Errorf("negative epoch")
	case p.LeaderEpoch == math.MaxInt32 || p.PartitionEpoch == math.MaxInt32 || p.ControllerEpoch >= MaxEpoch:
		return fmt.Errorf("an epoch that cannot rise any more")
	}
	return nil
}

// few is how many ids are quicker compared each with each than sorted. More
// stand only in records that somebody wrote by hand.
const few = 64

func hasDuplicates(ids []BrokerID) bool {
	if len(ids) > few {
		return len(slices.Compact(slices.Sorted(slices.Values(ids)))) < len(ids)
	}
	for i, id := range ids {
		if slices.Contains(ids[:i], id) {
			return true
		}
	}
	return false
}

func within(ids, all []BrokerID) bool {
	if len(all) > few {
		all = slices.Sorted(slices.Values(all))
		return !slices.ContainsFunc(ids, func(id BrokerID) bool { _, ok := slices.BinarySearch(all, id); return !ok })
	}
	for _, id := range ids {
		if !slices.Contains(all, id) {
			return false
		}
	}
	return true
}

// Record is the partition as it is stored and sent.
func (p *Partition) Record(index int32) *pb.PartitionRecord {
	return &pb.PartitionRecord{
		Partition:       index,
		Replicas:        WireIDs(p.Replicas),
		Adding:          WireIDs(p.Adding),
		Removing:        WireIDs(p.Removing),
		Target:          WireIDs(p.Target),
		Leader:          int32(p.Leader),
		LeaderEpoch:     int32(p.LeaderEpoch),
		PartitionEpoch:  int32(p.PartitionEpoch),
		Isr:             WireIDs(p.ISR),
		Recovery:        p.Recovery,
		ControllerEpoch: int64(p.ControllerEpoch),
		Cause:           p.Cause,
		ChangedMs:       p.ChangedMs,
		DecidedRevision: int64(p.Decided),
	}
}

// State is the partition as a command carries it. isNew allows the broker to
// create the replica.
func (p *Partition) State(index int32, isNew bool) *pb.PartitionState {
	return &pb.PartitionState{
		Partition:       index,
		Leader:          int32(p.Leader),
		LeaderEpoch:     int32(p.LeaderEpoch),
		PartitionEpoch:  int32(p.PartitionEpoch),
		Isr:             WireIDs(p.ISR),
		Replicas:        WireIDs(p.Replicas),
		Adding:          WireIDs(p.Adding),
		Removing:        WireIDs(p.Removing),
		IsNew:           isNew,
		Recovery:        p.Recovery,
		ControllerEpoch: int64(p.ControllerEpoch),
	}
}

// WireIDs are broker ids as messages carry them.
func WireIDs(ids []BrokerID) []int32 {
	if len(ids) == 0 {
		return nil
	}
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

// BrokerIDs are broker ids from a message.
func BrokerIDs(ids []int32) []BrokerID {
	if len(ids) == 0 {
		return nil
	}
	out := make([]BrokerID, len(ids))
	for i, id := range ids {
		out[i] = BrokerID(id)
	}
	return out
}
