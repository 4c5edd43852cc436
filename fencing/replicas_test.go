package fencing

import (
	"slices"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// desk is a gate with one stream, whose commands are made from revisions that
// the test names.
type desk struct {
	*Gate
	t    *testing.T
	feed Feed
}

func newDesk(t *testing.T, found ...HeldReplica) *desk {
	d := &desk{Gate: gateAt(5), t: t}
	d.Found(found)
	return d
}

// say takes a command through the gate.
func (d *desk) say(rev int64, begins bool, set func(*pb.Command)) Verdict {
	cmd := commandOf(d.Gate, set)
	cmd.Stamp.Revision = rev
	if begins {
		cmd.Progress = &pb.Progress{Begins: true, ControllerEpoch: 1}
	}
	v := d.Admit(cmd)
	d.Obeyed(&d.feed, cmd, &v)
	return v
}

// begin is the first word of a full sync.
func (d *desk) begin(rev int64) {
	d.say(rev, true, func(c *pb.Command) {
		c.Body = &pb.Command_UpdateMetadata{UpdateMetadata: &pb.UpdateMetadata{LiveBrokers: &pb.LiveBrokers{}}}
	})
}

func (d *desk) lead(rev int64, id cluster.TopicID, le int32, partitions ...int32) []Action {
	states := &pb.TopicStates{TopicId: id[:], Topic: "t"}
	for _, p := range partitions {
		states.Partitions = append(states.Partitions, &pb.PartitionState{Partition: p, LeaderEpoch: le, Leader: 1, Isr: []int32{1}, Replicas: []int32{1}})
	}
	v := d.say(rev, false, func(c *pb.Command) {
		c.Body = &pb.Command_LeaderAndIsr{LeaderAndIsr: &pb.LeaderAndIsr{Topics: []*pb.TopicStates{states}}}
	})
	var out []Action
	for _, x := range v.Decisions {
		out = append(out, x.Action)
	}
	return out
}

// finish ends a full sync, and returns which partitions are stray by it.
func (d *desk) finish(rev, since int64, topics ...cluster.TopicID) []int32 {
	fs := &pb.FullSync{SinceRevision: since}
	for _, id := range topics {
		fs.TopicIds = append(fs.TopicIds, id[:])
	}
	v := d.say(rev, false, func(c *pb.Command) { c.Body = &pb.Command_FullSync{FullSync: fs} })
	var out []int32
	for _, s := range v.Strays {
		if !s.Stop || s.Delete {
			d.t.Errorf("a stray is to be %+v", s)
		}
		out = append(out, s.Partition.Index)
	}
	return out
}

func (d *desk) expectHeld(hosted, strays []int32) {
	d.t.Helper()
	var have, astray []int32
	for _, id := range d.Replicas() {
		have = append(have, id.Index)
	}
	for _, r := range HeldReplicas(d.Hello().GetStrays()) {
		astray = append(astray, r.Partition.Index)
	}
	if !slices.Equal(have, hosted) || !slices.Equal(astray, strays) {
		d.t.Errorf("hosts %v with strays %v, want %v and %v", have, astray, hosted, strays)
	}
	if n := d.Pong(1).GetHosted().GetCount(); n != int64(len(hosted)) {
		d.t.Errorf("the digest counts %d, want %d", n, len(hosted))
	}
}

func diskHas(id cluster.TopicID, le cluster.LeaderEpoch, partitions ...int32) []HeldReplica {
	var out []HeldReplica
	for _, p := range partitions {
		out = append(out, HeldReplica{"t", cluster.PartitionID{Topic: id, Index: p}, le})
	}
	return out
}

// What a full sync does not name of a topic that it covers is stray, whether a
// command of before or an earlier process has brought it.
func TestFullSync(t *testing.T) {
	d := newDesk(t, diskHas(oldTopic, 3, 7, 8)...)
	d.begin(10)
	d.lead(10, oldTopic, 1, 0, 1, 2)
	d.begin(20)
	d.lead(20, oldTopic, 1, 0, 7)
	d.lead(21, oldTopic, 2, 1)
	if got := d.finish(25, 20, oldTopic); !slices.Equal(got, []int32{2, 8}) {
		t.Fatalf("strays %v", got)
	}
	d.expectHeld([]int32{0, 1, 7}, []int32{2, 8})
	if got := d.finish(25, 20, oldTopic); got != nil {
		t.Errorf("a second time: %v", got)
	}
}

func TestNoStrays(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(*desk) []int32
	}{
		{"another topic is covered", func(d *desk) []int32 { d.begin(20); return d.finish(20, 20, newTopic) }},
		{"nothing is covered", func(d *desk) []int32 { d.begin(20); return d.finish(20, 20) }},
		{"the sync has not come to its end", func(d *desk) []int32 { d.begin(20); return nil }},
		{"no revision", func(d *desk) []int32 { d.begin(20); return d.finish(20, 0, oldTopic) }},
		{"a stream that has not begun", func(d *desk) []int32 { d.feed = Feed{}; return d.finish(20, 20, oldTopic) }},
		{"a command of the sync was refused", func(d *desk) []int32 {
			d.begin(20)
			d.say(20, false, func(c *pb.Command) { c.Stamp.BrokerEpoch++ })
			return d.finish(20, 20, oldTopic)
		}},
		{"the sync is of an older controller", func(d *desk) []int32 {
			d.begin(20)
			d.Adopt(2)
			return d.finish(20, 20, oldTopic)
		}},
		{"a younger stream has named them", func(d *desk) []int32 {
			d.begin(20)
			d.lead(22, oldTopic, 1, 0)
			return d.finish(20, 20, oldTopic)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDesk(t)
			d.begin(10)
			d.lead(10, oldTopic, 1, 0)
			if got := tc.end(d); got != nil {
				t.Errorf("strays %v", got)
			}
			d.expectHeld([]int32{0}, nil)
		})
	}
}

// A stray is assigned again by a command that is younger than the sync, at
// whatever leader epoch, and by no older one. It outlives the incarnation.
func TestStrayIsAssignedAgain(t *testing.T) {
	d := newDesk(t, diskHas(oldTopic, 3, 0)...)
	d.begin(20)
	d.finish(25, 20, oldTopic)
	d.expectHeld(nil, []int32{0})
	if err := d.Registered("c", 6); err != nil {
		t.Fatal(err)
	}
	d.expectHeld(nil, []int32{0})
	if got := d.lead(24, oldTopic, 9, 0); got[0] != Already {
		t.Errorf("a late command: %v", got)
	}
	d.expectHeld(nil, []int32{0})
	if got := d.lead(26, oldTopic, 3, 0); got[0] != Admitted {
		t.Errorf("a new command: %v", got)
	}
	d.expectHeld([]int32{0}, nil)
	if !d.Exists(cluster.PartitionID{Topic: oldTopic}) {
		t.Error("its data is forgotten")
	}
}

// The data of a stray is deleted by a StopReplica that names its leader epoch
// or a higher one.
func TestStrayIsDeleted(t *testing.T) {
	d := newDesk(t, diskHas(oldTopic, 3, 0)...)
	d.begin(20)
	d.finish(25, 20, oldTopic)
	for _, c := range []struct {
		le   int32
		del  bool
		want Action
	}{{2, true, Fenced}, {3, false, Already}, {3, true, Admitted}, {3, true, Already}} {
		if got := stopOn(d.Gate, oldTopic, c.le, c.del); got != c.want {
			t.Errorf("leader epoch %d, delete %v: %v, want %v", c.le, c.del, got, c.want)
		}
	}
	d.expectHeld(nil, nil)
	d.Applied(&PartitionState{Partition: cluster.PartitionID{Topic: oldTopic}, Delete: true})
	if d.Exists(cluster.PartitionID{Topic: oldTopic}) {
		t.Error("the data is remembered")
	}
	d.begin(30)
	if got := d.finish(30, 30, oldTopic); got != nil {
		t.Errorf("strays %v", got)
	}
}

// The name of a topic is free once its last replica is stray.
func TestStrayFreesTheName(t *testing.T) {
	d := newDesk(t)
	d.begin(10)
	d.lead(10, oldTopic, 1, 0)
	if got := d.lead(10, newTopic, 0, 0); got[0] != Inconsistent {
		t.Errorf("another topic of the name: %v", got)
	}
	d.begin(20)
	d.finish(20, 20, oldTopic)
	if got := d.lead(21, newTopic, 0, 0); got[0] != Admitted {
		t.Errorf("another topic of the name afterwards: %v", got)
	}
}

func TestOfflineReplicas(t *testing.T) {
	d := newDesk(t, diskHas(oldTopic, 3, 9)...)
	d.begin(10)
	d.lead(10, oldTopic, 4, 0, 1)
	id := func(p int32) cluster.PartitionID { return cluster.PartitionID{Topic: oldTopic, Index: p} }
	if got := d.SetOffline(id(0), id(9)); len(got) != 2 || got[0] != (HeldReplica{"t", id(0), 4}) {
		t.Errorf("newly offline %v", got)
	}
	if got := d.SetOffline(id(0)); got != nil {
		t.Errorf("again %v", got)
	}
	if got := HeldReplicas(d.Hello().GetOffline()); !slices.Equal(got, []HeldReplica{{"t", id(0), 4}, {"t", id(9), 3}}) {
		t.Errorf("hello names %v", got)
	}
	if err := d.Registered("c", 6); err != nil {
		t.Fatal(err)
	}
	if d.Offline() != 2 {
		t.Error("a new registration has mended the storage")
	}
	if got := d.lead(11, oldTopic, 4, 0, 1); got[0] != Admitted || got[1] != Already {
		t.Errorf("the same state again: %v", got)
	}
	s, _ := d.Replica(id(0))
	d.Applied(&s)
	if got := d.OfflineAmong([]cluster.PartitionID{id(0), id(9)}); len(got) != 1 || got[0].Partition != id(9) {
		t.Errorf("offline afterwards %v", got)
	}
	stopOn(d.Gate, oldTopic, 4, true)
	if got := d.SetOffline(id(0)); got != nil {
		t.Errorf("a replica that was stopped is offline: %v", got)
	}
}

// What an earlier process has left of a topic that a full sync does not cover is
// left as it is, and no StopReplica deletes what is newer than it knows.
func TestFoundReplicasAreLeft(t *testing.T) {
	d := newDesk(t, diskHas(oldTopic, 3, 0)...)
	d.begin(20)
	if got := d.finish(25, 20, newTopic); got != nil {
		t.Errorf("strays %v of a topic that is not covered", got)
	}
	if got := stopOn(d.Gate, oldTopic, 2, true); got != Fenced {
		t.Errorf("an older StopReplica: %v", got)
	}
	if !d.Exists(cluster.PartitionID{Topic: oldTopic}) {
		t.Error("the data is forgotten")
	}
	if got := stopOn(d.Gate, oldTopic, 3, true); got != Admitted {
		t.Errorf("StopReplica of its leader epoch: %v", got)
	}
}

// Replicas of one topic, whose name is known of some only, keep theirs.
func TestWireReplicasKeepsNames(t *testing.T) {
	id := cluster.TopicID{7}
	all := []HeldReplica{{"", cluster.PartitionID{Topic: id}, -1}, {"orders", cluster.PartitionID{Topic: id, Index: 9}, 7}}
	if got := HeldReplicas(WireReplicas(all)); !slices.Equal(got, all) {
		t.Errorf("%v, want %v", got, all)
	}
}
