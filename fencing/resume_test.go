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

// A full sync that was read in full takes the metadata with it that it did not
// name, and that of no other partition.
func TestFullSyncForgetsMetadata(t *testing.T) {
	d := newDesk(t)
	gone, stays, partly := cluster.TopicID{1}, cluster.TopicID{2}, cluster.TopicID{3}
	tell := func(rev int64, begins bool, id cluster.TopicID, partitions ...int32) {
		ts := &pb.TopicStates{TopicId: id[:], Topic: id.String()}
		for _, i := range partitions {
			ts.Partitions = append(ts.Partitions, &pb.PartitionState{Partition: i})
		}
		d.say(rev, begins, func(c *pb.Command) {
			c.Body = &pb.Command_UpdateMetadata{UpdateMetadata: &pb.UpdateMetadata{Topics: []*pb.TopicStates{ts}}}
		})
	}
	sync := func(rev, since int64, everything bool) []RemovedTopic {
		v := d.say(rev, false, func(c *pb.Command) {
			c.Body = &pb.Command_FullSync{FullSync: &pb.FullSync{SinceRevision: since, Everything: everything}}
		})
		return v.Removed
	}
	tell(10, true, gone, 0, 4)
	tell(10, false, stays, 0)
	tell(10, false, partly, 0, 1)
	tell(20, true, stays, 0)
	tell(21, false, partly, 1)
	if got := sync(22, 20, false); len(got) != 0 {
		t.Fatalf("not everything was read, and %v is forgotten", got)
	}
	got := sync(22, 20, true)
	if len(got) != 2 || got[0].ID != gone || got[0].Partitions != 5 || got[0].Name != gone.String() || got[1].ID != partly {
		t.Errorf("forgotten: %v", got)
	}
	for id, want := range map[cluster.PartitionID]bool{
		{Topic: gone}: false, {Topic: gone, Index: 4}: false, {Topic: stays}: true, {Topic: partly}: false, {Topic: partly, Index: 1}: true,
	} {
		if _, has := d.Metadata(id); has != want {
			t.Errorf("metadata of %v: %v", id, has)
		}
	}
	if n := d.Pong(0).GetMetadata().GetCount(); n != 2 {
		t.Errorf("digest of %d", n)
	}
}
