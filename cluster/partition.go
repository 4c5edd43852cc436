package cluster

import (
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// Partition is the record of one partition: its assignment and its state. It
// is never changed in place: a change is a new value.
type Partition struct {
	Replicas []BrokerID // in order of preference, not empty, no duplicates
	Adding   []BrokerID
	Removing []BrokerID
	Target   []BrokerID
	Leader   BrokerID   // in ISR, or NoLeader
	ISR      []BrokerID // not empty, within Replicas

	LeaderEpoch     LeaderEpoch
	PartitionEpoch  PartitionEpoch
	ControllerEpoch Epoch // of the term that wrote it
	Recovery        pb.RecoveryState
	Cause           pb.ChangeCause
	ChangedMs       int64 // wall clock of the writer, for people only
	// Decided is the revision of the image that the record was decided from. A
	// replica whose broker epoch is higher has restarted since.
	Decided store.Rev

	unknown []byte // fields of a newer version
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
	case p.Leader != NoLeader && !slices.Contains(p.ISR, p.Leader):
		return fmt.Errorf("leader %d is not in the ISR %v", p.Leader, p.ISR)
	case p.LeaderEpoch < 0 || p.PartitionEpoch < 0 || p.ControllerEpoch < 0:
		return fmt.Errorf("negative epoch")
	case p.LeaderEpoch == math.MaxInt32 || p.PartitionEpoch == math.MaxInt32 || p.ControllerEpoch >= MaxEpoch:
		return fmt.Errorf("an epoch that cannot rise any more")
	}
	return nil
}

func hasDuplicates(ids []BrokerID) bool {
	for i, id := range ids {
		if slices.Contains(ids[:i], id) {
			return true
		}
	}
	return false
}

func within(ids, all []BrokerID) bool {
	for _, id := range ids {
		if !slices.Contains(all, id) {
			return false
		}
	}
	return true
}

// Record is the partition as it is stored and sent.
func (p *Partition) Record(index int32) *pb.PartitionRecord {
	r := &pb.PartitionRecord{
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
	r.ProtoReflect().SetUnknown(p.unknown)
	return r
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

func partitionOf(r *pb.PartitionRecord) Partition {
	return Partition{
		Replicas:        BrokerIDs(r.GetReplicas()),
		Adding:          BrokerIDs(r.GetAdding()),
		Removing:        BrokerIDs(r.GetRemoving()),
		Target:          BrokerIDs(r.GetTarget()),
		Leader:          BrokerID(r.GetLeader()),
		ISR:             BrokerIDs(r.GetIsr()),
		LeaderEpoch:     LeaderEpoch(r.GetLeaderEpoch()),
		PartitionEpoch:  PartitionEpoch(r.GetPartitionEpoch()),
		ControllerEpoch: Epoch(r.GetControllerEpoch()),
		Recovery:        r.GetRecovery(),
		Cause:           r.GetCause(),
		ChangedMs:       r.GetChangedMs(),
		Decided:         store.Rev(r.GetDecidedRevision()),
		unknown:         r.ProtoReflect().GetUnknown(),
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

// DefaultBlockSize is how many partition records share a key.
const DefaultBlockSize = 16

// BlockOf names the block that holds a partition.
func BlockOf(p PartitionID, blockSize int32) BlockID {
	return BlockID{Topic: p.Topic, Index: p.Index / blockSize}
}

// Block is the value of one key under `partitions/`.
type Block struct {
	ID         BlockID
	ModRev     store.Rev
	partitions []numbered // in order of index
	unknown    []byte
}

type numbered struct {
	index     int32
	partition *Partition
}

// Partition is the record of one partition, nil if the block has none.
func (b *Block) Partition(index int32) *Partition {
	if b == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(b.partitions, index, func(n numbered, x int32) int { return int(n.index) - int(x) })
	if !ok {
		return nil
	}
	return b.partitions[i].partition
}

// With is the block with some records put in or replaced. b may be nil: a
// block that does not exist yet.
func (b *Block) With(changes map[int32]*Partition) *Block {
	out := &Block{}
	if b != nil {
		out.ID, out.unknown, out.partitions = b.ID, b.unknown, slices.Clone(b.partitions)
	}
	for index, p := range changes {
		i, ok := slices.BinarySearchFunc(out.partitions, index, func(n numbered, x int32) int { return int(n.index) - int(x) })
		if ok {
			out.partitions[i].partition = p
		} else {
			out.partitions = slices.Insert(out.partitions, i, numbered{index, p})
		}
	}
	return out
}

// Encode is the block's value.
func (b *Block) Encode() []byte {
	m := &pb.PartitionBlock{Partitions: make([]*pb.PartitionRecord, len(b.partitions))}
	for i, n := range b.partitions {
		m.Partitions[i] = n.partition.Record(n.index)
	}
	m.ProtoReflect().SetUnknown(b.unknown)
	return Encode(m)
}

func decodeBlock(id BlockID, kv store.KV) (*Block, error) {
	var m pb.PartitionBlock
	if err := proto.Unmarshal(kv.Value, &m); err != nil {
		return nil, fmt.Errorf("decode block: %w", err)
	}
	if len(m.GetPartitions()) == 0 {
		return nil, fmt.Errorf("decode block: no records")
	}
	b := &Block{ID: id, ModRev: kv.ModRev, unknown: m.ProtoReflect().GetUnknown()}
	records := make([]Partition, len(m.GetPartitions()))
	b.partitions = make([]numbered, len(records))
	last := int32(-1)
	for i, r := range m.GetPartitions() {
		if r.GetPartition() <= last {
			return nil, fmt.Errorf("decode block: partition %d out of order", r.GetPartition())
		}
		last = r.GetPartition()
		records[i] = partitionOf(r)
		if err := records[i].check(); err != nil {
			return nil, fmt.Errorf("decode block: partition %d: %w", last, err)
		}
		b.partitions[i] = numbered{last, &records[i]}
	}
	return b, nil
}

// Encode is the stored form of a record.
func Encode(m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", m, err)) // only a string that is not UTF-8, which no caller lets in
	}
	return b
}
