package cluster

import (
	"fmt"
	"iter"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/store"
)

// DefaultBlockSize is how many partition records share a key.
const DefaultBlockSize = 16

// BlockOf names the block that holds a partition.
func BlockOf(p PartitionID, blockSize int32) BlockID {
	return BlockID{Topic: p.Topic, Index: p.Index / blockSize}
}

// Block is the value of one key under `partitions/`.
type Block struct {
	ID         BlockID
	slot       int32 // in the image's hostIndex
	ModRev     store.Rev
	partitions []Partition // in order of index
	unknown    []byte      // fields of a newer version
	// fields are those of a newer version in the records, by index; nil: none.
	fields map[int32][]byte
	// reasons are why somebody has asked for the last change of a record, by
	// index; nil: nobody has said.
	reasons map[int32]string
}

// Reason is why somebody has asked for the last change of a partition, empty if
// nobody has said, or if it was a rule.
func (b *Block) Reason(index int32) string {
	if b == nil {
		return ""
	}
	return b.reasons[index]
}

// Partition is the record of one partition, nil if the block has none.
func (b *Block) Partition(index int32) *Partition {
	if b == nil {
		return nil
	}
	if i, ok := b.find(index); ok {
		return &b.partitions[i]
	}
	return nil
}

// Partitions are the records of the block by index, in order.
func (b *Block) Partitions() iter.Seq2[int32, *Partition] {
	return func(yield func(int32, *Partition) bool) {
		for i := range b.partitions {
			if p := &b.partitions[i]; !yield(p.index, p) {
				return
			}
		}
	}
}

// find is the position of a partition, at once if none below it is missing.
func (b *Block) find(index int32) (int, bool) {
	if len(b.partitions) == 0 {
		return 0, false
	}
	if i := int(index - b.partitions[0].index); i >= 0 && i < len(b.partitions) && b.partitions[i].index == index {
		return i, true
	}
	return slices.BinarySearchFunc(b.partitions, index, func(p Partition, x int32) int { return int(p.index) - int(x) })
}

// With is the block with some records put in or replaced, for the reasons that
// were given, if any. Fields of a newer version stay in a record that is
// replaced. b may be nil: a block that does not exist yet.
func (b *Block) With(changes map[int32]*Partition, reasons map[int32]string) *Block {
	out := &Block{}
	if b != nil {
		*out = Block{ID: b.ID, unknown: b.unknown, fields: b.fields, partitions: slices.Clone(b.partitions)}
		for index, reason := range b.reasons {
			if changes[index] == nil {
				out.explain(index, reason)
			}
		}
	}
	for index, reason := range reasons {
		out.explain(index, reason)
	}
	for index, p := range changes {
		i, ok := out.find(index)
		if !ok {
			out.partitions = slices.Insert(out.partitions, i, Partition{})
		}
		out.partitions[i] = *p
		out.partitions[i].index = index
	}
	return out
}

func (b *Block) explain(index int32, reason string) {
	if reason == "" {
		return
	}
	if b.reasons == nil {
		b.reasons = map[int32]string{}
	}
	b.reasons[index] = reason
}

// Encode is the stored form of a record.
func Encode(m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", m, err)) // only a string that is not UTF-8, which no caller lets in
	}
	return b
}
