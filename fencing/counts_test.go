package fencing

import (
	"math/rand/v2"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// What is counted on the way is what counting anew finds, whatever the order of
// commands.
func TestCountsAreKept(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	g := registered(t)
	led := 0
	for i := range int32(5000) {
		p, le, pe := r.Int32N(4), i/100+r.Int32N(3), r.Int32N(6)
		isr := [][]int32{{1}, {2}, {1, 2}, {2, 1}, {3, 1, 2}}[r.IntN(5)]
		switch r.IntN(8) {
		case 0:
			g.Admit(&pb.Command{Stamp: stamp(10, 5), Body: &pb.Command_StopReplica{StopReplica: &pb.StopReplica{Topics: []*pb.TopicStops{
				{TopicId: topicA[:], Topic: "a", Partitions: []*pb.PartitionStop{{Partition: p, LeaderEpoch: le}}},
			}}}})
		case 1:
			if s, ok := g.Replica(cluster.PartitionID{Topic: topicA, Index: p}); ok {
				g.Committed(s.Partition, &pb.PartitionRecord{
					Leader: int32(s.Leader), LeaderEpoch: int32(s.LeaderEpoch), PartitionEpoch: pe, Isr: append(isr, int32(s.Leader)), Replicas: []int32{1, 2, 3},
				})
			}
		default:
			g.Admit(leaderAndIsr(stamp(10, 5), states(topicA, "a", state(p, le, pe, isr...))))
		}
		hosted, leading := g.Replicas(), 0
		for _, id := range hosted {
			if s, _ := g.Replica(id); s.Leader == self {
				leading++
			}
		}
		if c := g.Counts(); c.Hosted != len(hosted) || c.Leading != leading {
			t.Fatalf("counts %+v, there are %d, of which %d are led", c, len(hosted), leading)
		}
		led = max(led, leading)
	}
	if led < 3 {
		t.Errorf("no more than %d were led at a time", led)
	}
}

// Changes of the ISR count while the broker leads, once each.
func TestCountsOfISR(t *testing.T) {
	g := registered(t)
	for _, step := range []struct {
		le, pe int32
		isr    []int32
		want   [2]int64
	}{
		{1, 1, []int32{1, 2, 3}, [2]int64{0, 0}},
		{1, 2, []int32{1, 3}, [2]int64{1, 0}},
		{1, 2, []int32{1, 3}, [2]int64{1, 0}},
		{1, 3, []int32{1, 3, 2}, [2]int64{1, 1}},
		{2, 4, []int32{1}, [2]int64{2, 1}},
		{2, 5, []int32{1, 2}, [2]int64{2, 2}},
		{3, 6, []int32{2, 1}, [2]int64{2, 2}},
		{3, 7, []int32{2}, [2]int64{2, 2}},
		{4, 8, []int32{1}, [2]int64{2, 2}},
	} {
		g.Admit(leaderAndIsr(stamp(10, 5), states(topicA, "a", state(0, step.le, step.pe, step.isr...))))
		if c := g.Counts(); c.IsrShrinks != step.want[0] || c.IsrExpands != step.want[1] {
			t.Errorf("leader epoch %d, partition epoch %d: %+v, want %v", step.le, step.pe, c, step.want)
		}
	}
}
