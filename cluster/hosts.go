package cluster

import (
	"math/bits"
	"slices"
)

// hostIndex says which blocks have replicas on which broker. A broker may host
// a part of nearly every block, so its blocks are a set of bits, one for each
// block of the image.
type hostIndex struct {
	blocks []BlockID // by slot
	free   []int32   // slots that no block has
	on     map[BrokerID]*blockSet
}

// blockSet is a set of slots.
type blockSet struct {
	words []uint64
	n     int
}

func newHostIndex() hostIndex { return hostIndex{on: map[BrokerID]*blockSet{}} }

// change takes in that a block of the image was replaced. old or block is nil
// if there was none, or is none any more.
func (x *hostIndex) change(old, block *Block) {
	if block != nil {
		if old != nil {
			block.slot = old.slot
		} else {
			block.slot = x.take(block.ID)
		}
	}
	if old.sameHosts(block) {
		return
	}
	if old != nil {
		for i := range old.partitions {
			for _, id := range old.partitions[i].Replicas {
				x.remove(id, old.slot)
			}
		}
	}
	if block != nil {
		for i := range block.partitions {
			for _, id := range block.partitions[i].Replicas {
				x.add(id, block.slot)
			}
		}
	} else if old != nil {
		x.free = append(x.free, old.slot)
	}
}

// take gives a block a slot.
func (x *hostIndex) take(id BlockID) int32 {
	if n := len(x.free); n > 0 {
		slot := x.free[n-1]
		x.free = x.free[:n-1]
		x.blocks[slot] = id
		return slot
	}
	x.blocks = append(x.blocks, id)
	return int32(len(x.blocks) - 1)
}

func (x *hostIndex) add(id BrokerID, slot int32) {
	s := x.on[id]
	if s == nil {
		s = &blockSet{}
		x.on[id] = s
	}
	word, bit := int(slot/64), uint64(1)<<(slot%64)
	if word >= len(s.words) {
		s.words = append(s.words, make([]uint64, word+1-len(s.words))...)
	}
	if s.words[word]&bit == 0 {
		s.words[word] |= bit
		s.n++
	}
}

func (x *hostIndex) remove(id BrokerID, slot int32) {
	s := x.on[id]
	if s == nil {
		return
	}
	if word, bit := int(slot/64), uint64(1)<<(slot%64); s.words[word]&bit != 0 {
		s.words[word] &^= bit
		if s.n--; s.n == 0 {
			delete(x.on, id)
		}
	}
}

// of are the blocks of a broker, in order.
func (x *hostIndex) of(id BrokerID) []BlockID {
	s := x.on[id]
	if s == nil {
		return nil
	}
	out := make([]BlockID, 0, s.n)
	for i, w := range s.words {
		for ; w != 0; w &= w - 1 {
			out = append(out, x.blocks[64*i+bits.TrailingZeros64(w)])
		}
	}
	slices.SortFunc(out, func(a, b BlockID) int { return PartitionID(a).Compare(PartitionID(b)) })
	return out
}

// next is the first slot from the given one on that a block of the broker has,
// -1 if there is none.
func (x *hostIndex) next(id BrokerID, from int32) int32 {
	s := x.on[id]
	if s == nil {
		return -1
	}
	for i := int(from / 64); i < len(s.words); i++ {
		w := s.words[i]
		if i == int(from/64) {
			w &= ^uint64(0) << (from % 64)
		}
		if w != 0 {
			return int32(64*i + bits.TrailingZeros64(w))
		}
	}
	return -1
}

// sameHosts reports whether no replica has moved, which is so in most changes.
func (b *Block) sameHosts(c *Block) bool {
	if b == nil || c == nil || len(b.partitions) != len(c.partitions) {
		return false
	}
	for i := range b.partitions {
		if !slices.Equal(b.partitions[i].Replicas, c.partitions[i].Replicas) {
			return false
		}
	}
	return true
}
