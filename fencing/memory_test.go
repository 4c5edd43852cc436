package fencing

import (
	"reflect"
	"slices"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// The newest that is remembered of a partition is told, wherever it stands, and
// the highest revision.
func TestMemory(t *testing.T) {
	d := newDesk(t, diskHas(oldTopic, 3, 1, 2)...)
	id := func(i int32) cluster.PartitionID { return cluster.PartitionID{Topic: oldTopic, Index: i} }
	d.begin(20)
	d.lead(20, oldTopic, 7, 0, 1)
	metadata := func(le, pe int32, partitions ...int32) {
		states := &pb.TopicStates{TopicId: oldTopic[:], Topic: "t"}
		for _, p := range partitions {
			states.Partitions = append(states.Partitions, &pb.PartitionState{
				Partition: p, LeaderEpoch: le, PartitionEpoch: pe, Leader: 2, Isr: []int32{2, 3}, Replicas: []int32{2, 3},
			})
		}
		d.say(30, false, func(c *pb.Command) {
			c.Body = &pb.Command_UpdateMetadata{UpdateMetadata: &pb.UpdateMetadata{Topics: []*pb.TopicStates{states}}}
		})
	}
	metadata(7, 1, 0, 3) // newer by partition epoch
	metadata(6, 9, 1)    // older by leader epoch
	d.admitStop(&PartitionState{Topic: "t", Partition: id(4), LeaderEpoch: 9, Stop: true, Delete: true, Leader: cluster.NoLeader})

	if got, want := d.Remembered(), []cluster.PartitionID{id(0), id(1), id(2), id(3), id(4)}; !slices.Equal(got, want) {
		t.Fatalf("remembers %v", got)
	}
	for i, want := range []struct {
		le, pe int32
		isr    int
	}{{7, 1, 2}, {7, 0, 1}, {3, 0, 0}, {7, 1, 2}, {9, 0, 0}} {
		s := d.Newest(id(int32(i)))
		if int32(s.LeaderEpoch) != want.le || int32(s.PartitionEpoch) != want.pe || len(s.ISR) != want.isr || s.Topic != "t" && s.Topic != "old" {
			t.Errorf("%d: %+v", i, s)
		}
	}
	if s := d.Newest(id(99)); s.LeaderEpoch != UnknownLeaderEpoch || s.ISR != nil {
		t.Errorf("of nothing: %+v", s)
	}
	d.say(10, false, func(c *pb.Command) {
		c.Stamp.ControllerEpoch = 0 // refused
		c.Stamp.Revision = 99
		c.Body = &pb.Command_StopReplica{StopReplica: &pb.StopReplica{}}
	})
	if got := d.Heard(); got != 30 {
		t.Errorf("heard of revision %d, want 30", got)
	}
	if err := d.Registered(d.ClusterUUID(), 40); err != nil || d.Heard() != 40 {
		t.Errorf("heard of revision %d after broker epoch 40, %v", d.Heard(), err)
	}
}

// States pass a message as they are.
func TestStatesOnTheWire(t *testing.T) {
	states := []PartitionState{
		{
			Topic: "a", Partition: cluster.PartitionID{Topic: oldTopic, Index: 3}, Leader: 1, ISR: []cluster.BrokerID{1, 2},
			Replicas: []cluster.BrokerID{1, 2, 3}, Adding: []cluster.BrokerID{3}, Removing: []cluster.BrokerID{2}, LeaderEpoch: 4,
			PartitionEpoch: 5, ControllerEpoch: 6, Recovery: pb.RecoveryState_RECOVERY_STATE_RECOVERING,
		},
		{Topic: "a", Partition: cluster.PartitionID{Topic: oldTopic, Index: 4}, Leader: cluster.NoLeader, LeaderEpoch: UnknownLeaderEpoch},
		{Topic: "b", Partition: cluster.PartitionID{Topic: newTopic}, Leader: cluster.NoLeader},
	}
	wire := WireStates(states)
	if len(wire) != 2 {
		t.Errorf("%d topics", len(wire))
	}
	if got := States(append(wire, &pb.TopicStates{TopicId: []byte{1}, Partitions: []*pb.PartitionState{{}}})); !reflect.DeepEqual(got, states) {
		t.Errorf("%+v, want %+v", got, states)
	}
}
