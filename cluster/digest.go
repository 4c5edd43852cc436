package cluster

import "encoding/binary"

// Digest is a count and a sum of partition states, by which two holders of
// many of them see whether they hold the same. It is not safe against somebody
// who makes up states on purpose.
type Digest struct {
	Count int64
	Sum   uint64
}

// Add takes a state in.
func (d *Digest) Add(id PartitionID, le LeaderEpoch, pe PartitionEpoch) {
	d.Include(DigestOf(id, le, pe))
}

// Remove takes a state out that was taken in.
func (d *Digest) Remove(id PartitionID, le LeaderEpoch, pe PartitionEpoch) {
	d.Exclude(DigestOf(id, le, pe))
}

// DigestOf is the digest of one state.
func DigestOf(id PartitionID, le LeaderEpoch, pe PartitionEpoch) Digest {
	return Digest{Count: 1, Sum: mix(id, le, pe)}
}

// Include takes in what another digest holds.
func (d *Digest) Include(o Digest) {
	d.Count += o.Count
	d.Sum += o.Sum
}

// Exclude takes out what another digest holds.
func (d *Digest) Exclude(o Digest) {
	d.Count -= o.Count
	d.Sum -= o.Sum
}

// mix is a hash of a state: each 8 bytes go through the finalizer of
// SplitMix64.
func mix(id PartitionID, le LeaderEpoch, pe PartitionEpoch) uint64 {
	h := uint64(uint32(id.Index))
	for _, v := range []uint64{
		binary.LittleEndian.Uint64(id.Topic[:8]), binary.LittleEndian.Uint64(id.Topic[8:]),
		uint64(uint32(le))<<32 | uint64(uint32(pe)),
	} {
		h ^= v
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}
