package fencing

import (
	"slices"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

var oldTopic, newTopic = cluster.TopicID{1}, cluster.TopicID{2}

func gateAt(be cluster.BrokerEpoch) *Gate {
	g := NewGate(1, "c")
	if err := g.Registered("c", be); err != nil {
		panic(err)
	}
	return g
}

// commandOf is a command for broker 1 under controller epoch 1.
func commandOf(g *Gate, set func(*pb.Command)) *pb.Command {
	cmd := &pb.Command{Stamp: &pb.Stamp{ClusterUuid: "c", ControllerEpoch: 1, BrokerId: 1, BrokerEpoch: int64(g.BrokerEpoch())}}
	set(cmd)
	return cmd
}

func leadOn(g *Gate, id cluster.TopicID, le int32) Action {
	v := g.Admit(commandOf(g, func(c *pb.Command) {
		c.Body = &pb.Command_LeaderAndIsr{LeaderAndIsr: &pb.LeaderAndIsr{Topics: []*pb.TopicStates{{
			TopicId: id[:], Topic: "t", Partitions: []*pb.PartitionState{{LeaderEpoch: le, Leader: 1, Isr: []int32{1}, Replicas: []int32{1}}},
		}}}}
	}))
	return v.Decisions[0].Action
}

func stopOn(g *Gate, id cluster.TopicID, le int32, del bool) Action {
	v := g.Admit(commandOf(g, func(c *pb.Command) {
		c.Body = &pb.Command_StopReplica{StopReplica: &pb.StopReplica{Topics: []*pb.TopicStops{{
			TopicId: id[:], Topic: "t", Partitions: []*pb.PartitionStop{{LeaderEpoch: le, Delete: del}},
		}}}}
	}))
	return v.Decisions[0].Action
}

func TestStopReplica(t *testing.T) {
	type step struct {
		name string
		do   func(*Gate) Action
		want Action
	}
	lead := func(id cluster.TopicID, le int32) func(*Gate) Action {
		return func(g *Gate) Action { return leadOn(g, id, le) }
	}
	stop := func(id cluster.TopicID, le int32, del bool) func(*Gate) Action {
		return func(g *Gate) Action { return stopOn(g, id, le, del) }
	}
	for _, tc := range []struct {
		name   string
		steps  []step
		hosted []cluster.TopicID
	}{
		{"unknown, keep", []step{{"stop", stop(oldTopic, 3, false), Already}}, nil},
		{"unknown, delete: there may be data", []step{
			{"stop", stop(oldTopic, 3, true), Admitted}, {"again", stop(oldTopic, 3, true), Already},
			{"what was sent before", lead(oldTopic, 2), Already},
		}, nil},
		{"lower leader epoch", []step{
			{"lead", lead(oldTopic, 3), Admitted}, {"stop", stop(oldTopic, 2, true), Fenced},
		}, []cluster.TopicID{oldTopic}},
		{"equal and higher leader epoch", []step{
			{"lead", lead(oldTopic, 3), Admitted}, {"equal", stop(oldTopic, 3, false), Admitted},
			{"then delete", stop(oldTopic, 3, true), Admitted}, {"keep after that", stop(oldTopic, 3, false), Already},
			{"what was sent before", lead(oldTopic, 3), Already},
			{"assigned again", lead(oldTopic, 4), Admitted}, {"higher", stop(oldTopic, 6, true), Admitted},
			{"late", lead(oldTopic, 5), Already},
		}, nil},
		{"the name is free at once", []step{
			{"lead", lead(oldTopic, 3), Admitted}, {"another topic", lead(newTopic, 0), Inconsistent},
			{"stop", stop(oldTopic, 4, true), Admitted}, {"another topic", lead(newTopic, 0), Admitted},
			{"stop again", stop(oldTopic, 4, true), Already}, {"late", lead(oldTopic, 3), Already},
		}, []cluster.TopicID{newTopic}},
		{"only its own id", []step{
			{"lead", lead(newTopic, 3), Admitted}, {"stop the old one", stop(oldTopic, 9, true), Admitted},
		}, []cluster.TopicID{newTopic}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := gateAt(5)
			for _, s := range tc.steps {
				if got := s.do(g); got != s.want {
					t.Errorf("%s: %v, want %v", s.name, got, s.want)
				}
			}
			var hosted []cluster.TopicID
			for _, id := range g.Replicas() {
				hosted = append(hosted, id.Topic)
			}
			if !slices.Equal(hosted, tc.hosted) {
				t.Errorf("hosts %v, want %v", hosted, tc.hosted)
			}
			if d := g.Pong(1).GetHosted(); d.GetCount() != int64(len(tc.hosted)) {
				t.Errorf("digest counts %d", d.GetCount())
			}
		})
	}
}

// A handler that failed to delete is tried again.
func TestFailedStop(t *testing.T) {
	g := gateAt(5)
	stopOn(g, oldTopic, 3, true)
	g.Failed(cluster.PartitionID{Topic: oldTopic}, 3)
	if got := stopOn(g, oldTopic, 3, true); got != Admitted {
		t.Errorf("%v after a failure", got)
	}
	if got := stopOn(g, oldTopic, 3, true); got != Already {
		t.Errorf("%v after that", got)
	}
}

// What was stopped is remembered as long as a command that was sent before can
// arrive: in one incarnation.
func TestStoppedIsForgotten(t *testing.T) {
	g := gateAt(5)
	stopOn(g, oldTopic, 3, true)
	if err := g.Registered("c", 6); err != nil {
		t.Fatal(err)
	}
	if len(g.hosted) != 0 {
		t.Errorf("remembers %d", len(g.hosted))
	}
}

func TestRemovedTopics(t *testing.T) {
	g := gateAt(5)
	tell := func(m *pb.UpdateMetadata) Verdict {
		return g.Admit(commandOf(g, func(c *pb.Command) { c.Body = &pb.Command_UpdateMetadata{UpdateMetadata: m} }))
	}
	states := &pb.UpdateMetadata{Topics: []*pb.TopicStates{{TopicId: oldTopic[:], Topic: "t", Partitions: []*pb.PartitionState{{}, {Partition: 1}}}}}
	removed := &pb.UpdateMetadata{RemovedTopics: []*pb.RemovedTopic{{TopicId: oldTopic[:], Topic: "t", Partitions: 2}}}
	tell(states)
	if v := tell(removed); len(v.Removed) != 1 || v.Removed[0].ID != oldTopic || v.Removed[0].Name != "t" {
		t.Errorf("removed %+v", v.Removed)
	}
	if v := tell(removed); len(v.Removed) != 0 {
		t.Errorf("removed again %+v", v.Removed)
	}
	if v := tell(states); v.Decisions[0].Action != Already {
		t.Errorf("late metadata: %v", v.Decisions[0].Action)
	}
	if _, known := g.Metadata(cluster.PartitionID{Topic: oldTopic, Index: 1}); known || g.Pong(1).GetMetadata().GetCount() != 0 {
		t.Error("metadata is still there")
	}
}
