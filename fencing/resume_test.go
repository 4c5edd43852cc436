package fencing

import (
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// A resume point is believed of the newest controller only, of a stream without
// a gap, and when every failure has been heard of.
func TestProgress(t *testing.T) {
	p := func(begins bool, ce, point, failures int64) *pb.Progress {
		return &pb.Progress{Begins: begins, ControllerEpoch: ce, ClaimRevision: 3, ResumePoint: point, Failures: failures}
	}
	for name, c := range map[string]struct {
		tell func(g *Gate, f *Feed)
		want int64
	}{
		"a stream that begins": {func(g *Gate, f *Feed) { g.Progress(f, p(true, 2, 7, 0)) }, 7},
		"one that goes on":     {func(g *Gate, f *Feed) { g.Progress(f, p(true, 2, 7, 0)); g.Progress(f, p(false, 2, 9, 0)) }, 9},
		"one that never began": {func(g *Gate, f *Feed) { g.Progress(f, p(false, 2, 7, 0)) }, 0},
		"it may say less":      {func(g *Gate, f *Feed) { g.Progress(f, p(true, 2, 7, 0)); g.Progress(f, p(false, 2, 5, 0)) }, 5},
		"or nothing":           {func(g *Gate, f *Feed) { g.Progress(f, p(true, 2, 7, 0)); g.Progress(f, p(false, 2, 0, 0)) }, 0},
		"an older controller":  {func(g *Gate, f *Feed) { g.Progress(f, p(true, 1, 7, 0)) }, 0},
		"after a refusal": {func(g *Gate, f *Feed) {
			g.Progress(f, p(true, 2, 7, 0))
			g.Obeyed(f, &pb.Command{}, &Verdict{Refusal: pb.Refusal_REFUSAL_UNAVAILABLE})
			g.Progress(f, p(false, 2, 9, 0))
		}, 7},
		"begun again": {func(g *Gate, f *Feed) {
			g.Obeyed(f, &pb.Command{}, &Verdict{Refusal: pb.Refusal_REFUSAL_UNAVAILABLE})
			g.Obeyed(f, &pb.Command{Progress: p(true, 2, 9, 0)}, &Verdict{})
		}, 9},
		"a failure": {func(g *Gate, f *Feed) {
			g.Progress(f, p(true, 2, 7, 0))
			g.Failed(cluster.PartitionID{}, 0)
		}, 0},
		"a failure not heard of": {func(g *Gate, f *Feed) {
			g.Progress(f, p(true, 2, 7, 0))
			f.Failures++
			g.Failed(cluster.PartitionID{}, 0)
			g.Progress(f, p(false, 2, 9, 0))
		}, 0},
		"a failure heard of": {func(g *Gate, f *Feed) {
			f.Failures++
			g.Failed(cluster.PartitionID{}, 0)
			g.Progress(f, p(true, 2, 4, 1))
		}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			g, f := NewGate(1, "u"), &Feed{}
			g.Adopt(2)
			c.tell(g, f)
			if got := g.Hello().GetResume().GetRevision(); got != c.want {
				t.Errorf("resumes at %d, want %d", got, c.want)
			}
		})
	}
}

// The digests follow what the gate holds, whatever it is told.
func TestDigests(t *testing.T) {
	g := NewGate(1, "u")
	if err := g.Registered("u", 5); err != nil {
		t.Fatal(err)
	}
	stamp := Term{ClusterUUID: "u", ControllerID: "c", Epoch: 1}.Stamp(Target{Broker: 1, Epoch: 5}, 9)
	id := cluster.TopicID{1}
	states := func(ps ...*pb.PartitionState) []*pb.TopicStates {
		return []*pb.TopicStates{{TopicId: id[:], Topic: "a", Partitions: ps}}
	}
	for _, ps := range [][]*pb.PartitionState{
		{{Partition: 0}, {Partition: 1, LeaderEpoch: 3, PartitionEpoch: 4}},
		{{Partition: 0, PartitionEpoch: 1}, {Partition: 1, LeaderEpoch: 2, PartitionEpoch: 9}},
		{{Partition: 0, LeaderEpoch: 1, PartitionEpoch: 2}},
	} {
		g.Admit(&pb.Command{Stamp: stamp, Body: &pb.Command_LeaderAndIsr{LeaderAndIsr: &pb.LeaderAndIsr{Topics: states(ps...)}}})
		g.Admit(&pb.Command{Stamp: stamp, Body: &pb.Command_UpdateMetadata{UpdateMetadata: &pb.UpdateMetadata{Topics: states(ps...)}}})
	}
	var want cluster.Digest
	want.Add(cluster.PartitionID{Topic: id, Index: 0}, 1, 2)
	want.Add(cluster.PartitionID{Topic: id, Index: 1}, 3, 4)
	pong := g.Pong(7)
	for name, d := range map[string]*pb.Digest{"hosted": pong.GetHosted(), "metadata": pong.GetMetadata()} {
		if d.GetCount() != want.Count || d.GetSum() != want.Sum {
			t.Errorf("%s: %v, want %+v", name, d, want)
		}
	}
	if pong.GetSequence() != 7 {
		t.Errorf("answers ping %d", pong.GetSequence())
	}
}
