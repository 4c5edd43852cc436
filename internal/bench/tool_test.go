package main

import (
	"slices"
	"testing"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

func TestCPUOf(t *testing.T) {
	const stat = "42 (a ) b) S 1 42 42 0 -1 4194304 100 0 0 0 1234 66 0 0 20 0 9 0 5000 1 2 3"
	if got, err := cpuOf(stat); err != nil || got != 13 {
		t.Errorf("CPU is %v (%v), want 13 s", got, err)
	}
	for _, bad := range []string{"", "42 (a) S 1 2", "42 (a) S 1 2 3 4 5 6 7 8 9 10 x y"} {
		if got, err := cpuOf(bad); err == nil {
			t.Errorf("CPU of %q is %v", bad, got)
		}
	}
}

func TestKeysAndHandlers(t *testing.T) {
	topics := append(topicsOf(2, 17, 0), topicsOf(1, 17, 4)...)
	if keys, handlers := keysAndHandlers(topics); keys != 3+3+6 || handlers != 3*17*3 {
		t.Errorf("%d keys and %d handlers, want 12 and 153", keys, handlers)
	}
}

// TestNextEntry: the ISR goes from all replicas to the leader, and back.
func TestNextEntry(t *testing.T) {
	p := &pb.PartitionRecord{Partition: 7, Leader: 2, LeaderEpoch: 3, PartitionEpoch: 4, Replicas: []int32{1, 2}, Isr: []int32{1, 2}}
	for _, want := range [][]int32{{2}, {1, 2}} {
		e := nextEntry(p)
		var isr []int32
		for _, m := range e.GetNewIsr() {
			isr = append(isr, m.GetBrokerId())
		}
		if !slices.Equal(isr, want) || e.GetPartition() != 7 || e.GetLeaderEpoch() != 3 || e.GetPartitionEpoch() != 4 {
			t.Errorf("from ISR %v: %v, want ISR %v", p.Isr, e, want)
		}
		p.Isr = isr
	}
}

// TestBareChanges: what bare clients change is what a loss and an AlterPartition
// change.
func TestBareChanges(t *testing.T) {
	block := &pb.PartitionBlock{Partitions: []*pb.PartitionRecord{
		{Partition: 0, Leader: 1, Replicas: []int32{1, 2, 3}, Isr: []int32{1, 2, 3}},
		{Partition: 1, Leader: 2, Replicas: []int32{2, 3, 1}, Isr: []int32{2, 3}},
	}}
	first, second := block.Partitions[0], block.Partitions[1]
	if lose(block, 9) {
		t.Error("a broker without replicas changes the block")
	}
	if !lose(block, 1) || first.Leader != 2 || !slices.Equal(first.Isr, []int32{2, 3}) || first.LeaderEpoch != 1 || first.PartitionEpoch != 1 {
		t.Errorf("after the loss of its leader: %v", first)
	}
	if second.Leader != 2 || second.LeaderEpoch != 0 || second.PartitionEpoch != 0 {
		t.Errorf("the loss of a broker outside the ISR changes %v", second)
	}
	if !bareFlip(block) || !slices.Equal(first.Isr, first.Replicas) || first.PartitionEpoch != 2 {
		t.Errorf("after one flip: %v", first)
	}
	if !bareFlip(block) || !slices.Equal(first.Isr, []int32{2}) {
		t.Errorf("after two flips: %v", first)
	}
}

func TestScaled(t *testing.T) {
	b := bench{scale: 0.1}
	if a, c := b.scaled(100, 1), b.scaled(5, 3); a != 10 || c != 3 {
		t.Errorf("a tenth of 100 and of 5 is %d and %d, want 10 and at least 3", a, c)
	}
}
