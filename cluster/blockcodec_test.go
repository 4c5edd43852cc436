package cluster

import (
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// FuzzDecodeBlock: what the codec reads and writes is what the message says.
func FuzzDecodeBlock(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		f.Add(Encode(randomBlock(rng)))
	}
	unpacked := protowire.AppendVarint(protowire.AppendTag(nil, fieldReplicas, protowire.VarintType), 0)
	unpacked = append(unpacked, protowire.AppendVarint(protowire.AppendTag(nil, fieldISR, protowire.VarintType), 0)...)
	overlong := append(slices.Clone(unpacked), 0xe8, 0x84, 0x00, 0x01)   // a tag that is longer than it need be
	longer := append(slices.Clone(unpacked), 0xfa, 0x00, 0x02, '0', '0') // the same, of a field that nobody knows
	for _, record := range [][]byte{unpacked, overlong, longer} {
		block := protowire.AppendBytes(protowire.AppendTag(nil, fieldPartitions, protowire.BytesType), record)
		f.Add(block)
		f.Add(append(block, 0xfa, 0x00, 0x02, '0', '0'))
	}
	f.Add([]byte("garbage"))
	f.Fuzz(func(t *testing.T, value []byte) {
		var m pb.PartitionBlock
		err := proto.Unmarshal(value, &m)
		b, got := decodeBlock(BlockID{}, store.KV{Value: value})
		if err != nil || !sensible(&m) {
			if got == nil {
				t.Fatalf("read %x, which is wrong: %v, %v", value, &m, err)
			}
			return
		}
		if got != nil {
			t.Fatalf("cannot read %v: %v", &m, got)
		}
		if want := Encode(&m); !slices.Equal(b.Encode(), want) {
			t.Fatalf("%v is written as %x, want %x", &m, b.Encode(), want)
		}
		for _, r := range m.GetPartitions() {
			p := b.Partition(r.GetPartition())
			if p.ChangedMs != r.GetChangedMs() || p.Cause != r.GetCause() || b.Reason(r.GetPartition()) != r.GetReason() || !p.equal(recordOf(r)) {
				t.Fatalf("%v is read as %v", r, p)
			}
		}
	})
}

// sensible reports whether a block holds records that a rule could have
// written, in order.
func sensible(m *pb.PartitionBlock) bool {
	last := int32(-1)
	for _, r := range m.GetPartitions() {
		if r.GetPartition() <= last || recordOf(r).check() != nil {
			return false
		}
		last = r.GetPartition()
	}
	return len(m.GetPartitions()) > 0
}

// recordOf is a record by way of its message.
func recordOf(r *pb.PartitionRecord) *Partition {
	return &Partition{
		Replicas: BrokerIDs(r.GetReplicas()), Adding: BrokerIDs(r.GetAdding()), Removing: BrokerIDs(r.GetRemoving()),
		Target: BrokerIDs(r.GetTarget()), ISR: BrokerIDs(r.GetIsr()), Leader: BrokerID(r.GetLeader()),
		LeaderEpoch: LeaderEpoch(r.GetLeaderEpoch()), PartitionEpoch: PartitionEpoch(r.GetPartitionEpoch()),
		ControllerEpoch: Epoch(r.GetControllerEpoch()), Recovery: r.GetRecovery(), Cause: r.GetCause(),
		ChangedMs: r.GetChangedMs(), Decided: store.Rev(r.GetDecidedRevision()),
	}
}

func randomBlock(rng *rand.Rand) *pb.PartitionBlock {
	m := &pb.PartitionBlock{}
	ids := func() []int32 { return []int32{rng.Int32N(300), 300 + rng.Int32N(300), 1000, 5}[rng.IntN(4):] }
	for i := range int32(20) {
		if rng.IntN(5) == 0 {
			continue
		}
		replicas := ids()
		r := &pb.PartitionRecord{
			Partition: i, Replicas: replicas, Isr: replicas[rng.IntN(len(replicas)):], Leader: -1, LeaderEpoch: rng.Int32N(9),
			PartitionEpoch: rng.Int32(), ControllerEpoch: rng.Int64N(9), Cause: pb.ChangeCause(rng.IntN(12)), ChangedMs: rng.Int64(),
			DecidedRevision: rng.Int64N(1000), Recovery: pb.RecoveryState(rng.IntN(3)),
		}
		if rng.IntN(3) == 0 {
			r.Leader, r.Adding, r.Removing, r.Target = r.Isr[0], ids(), ids(), ids()
		}
		if rng.IntN(4) == 0 {
			r.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 77, protowire.VarintType), rng.Uint64()))
		}
		m.Partitions = append(m.Partitions, r)
	}
	return m
}
