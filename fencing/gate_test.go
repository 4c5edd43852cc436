package fencing

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/unfenced"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

const (
	uuid = "cluster-1"
	self = cluster.BrokerID(1)
)

var topicA, topicB = cluster.TopicID{15: 0xa}, cluster.TopicID{15: 0xb}

// registered is the gate of broker 1 in broker epoch 10 that has heard of
// controller epoch 5.
func registered(t *testing.T) *Gate {
	t.Helper()
	g := NewGate(self, "")
	if err := g.Registered(uuid, 10); err != nil {
		t.Fatal(err)
	}
	g.Adopt(5)
	return g
}

func stamp(be cluster.BrokerEpoch, ce cluster.Epoch) *pb.Stamp {
	return Term{ClusterUUID: uuid, ControllerID: "c1", Epoch: ce}.Stamp(Target{Broker: self, Epoch: be}, 100)
}

func state(p, le, pe int32, isr ...int32) *pb.PartitionState {
	return &pb.PartitionState{Partition: p, Leader: isr[0], LeaderEpoch: le, PartitionEpoch: pe, Isr: isr, Replicas: []int32{1, 2, 3}}
}

func states(id cluster.TopicID, name string, partitions ...*pb.PartitionState) *pb.TopicStates {
	return &pb.TopicStates{TopicId: id[:], Topic: name, Partitions: partitions}
}

func leaderAndIsr(s *pb.Stamp, topics ...*pb.TopicStates) *pb.Command {
	return &pb.Command{Stamp: s, Body: &pb.Command_LeaderAndIsr{LeaderAndIsr: &pb.LeaderAndIsr{Topics: topics}}}
}

func updateMetadata(s *pb.Stamp, live *pb.LiveBrokers, topics ...*pb.TopicStates) *pb.Command {
	return &pb.Command{Stamp: s, Body: &pb.Command_UpdateMetadata{UpdateMetadata: &pb.UpdateMetadata{LiveBrokers: live, Topics: topics}}}
}

func actions(v Verdict) []Action {
	out := make([]Action, len(v.Decisions))
	for i, d := range v.Decisions {
		out[i] = d.Action
	}
	return out
}

func expect(t *testing.T, g *Gate, cmd *pb.Command, want ...Action) Verdict {
	t.Helper()
	v := g.Admit(cmd)
	if v.Refused() {
		t.Fatalf("refused: %v", v.Refusal)
	}
	if got := actions(v); !slices.Equal(got, want) {
		t.Fatalf("decided %v, want %v", got, want)
	}
	return v
}

func TestRefusal(t *testing.T) {
	change := func(f func(*pb.Stamp)) *pb.Stamp {
		s := stamp(10, 9)
		f(s)
		return s
	}
	for _, c := range []struct {
		name  string
		stamp *pb.Stamp
		want  pb.Refusal
	}{
		{"current", stamp(10, 5), pb.Refusal_REFUSAL_UNSPECIFIED},
		{"newer controller", stamp(10, 9), pb.Refusal_REFUSAL_UNSPECIFIED},
		{"stale controller", stamp(10, 4), pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH},
		{"earlier incarnation", stamp(9, 9), pb.Refusal_REFUSAL_STALE_BROKER_EPOCH},
		{"later incarnation", stamp(11, 9), pb.Refusal_REFUSAL_UNAVAILABLE},
		{"other broker", change(func(s *pb.Stamp) { s.BrokerId = 2 }), pb.Refusal_REFUSAL_WRONG_BROKER},
		{"other cluster", change(func(s *pb.Stamp) { s.ClusterUuid = "x" }), pb.Refusal_REFUSAL_INCONSISTENT_CLUSTER_ID},
		{"other cluster and other broker", change(func(s *pb.Stamp) { s.ClusterUuid, s.BrokerId = "x", 2 }), pb.Refusal_REFUSAL_INCONSISTENT_CLUSTER_ID},
		{"other broker and earlier incarnation", change(func(s *pb.Stamp) { s.BrokerId, s.BrokerEpoch = 2, 9 }), pb.Refusal_REFUSAL_WRONG_BROKER},
		{"earlier incarnation and stale controller", stamp(9, 4), pb.Refusal_REFUSAL_STALE_BROKER_EPOCH},
		{"no stamp", nil, pb.Refusal_REFUSAL_INCONSISTENT_CLUSTER_ID},
	} {
		for body, cmd := range map[string]*pb.Command{
			"LeaderAndIsr":   leaderAndIsr(c.stamp, states(topicA, "a", state(0, 1, 1, 1))),
			"UpdateMetadata": updateMetadata(c.stamp, &pb.LiveBrokers{}, states(topicA, "a", state(0, 1, 1, 1))),
		} {
			t.Run(c.name+"/"+body, func(t *testing.T) {
				g := registered(t)
				v := g.Admit(cmd)
				if v.Refusal != c.want {
					t.Fatalf("refusal %v, want %v", v.Refusal, c.want)
				}
				if v.ControllerEpoch != g.ControllerEpoch() {
					t.Errorf("verdict says epoch %d, the gate %d", v.ControllerEpoch, g.ControllerEpoch())
				}
				if v.Refused() {
					unchanged(t, g)
				}
			})
		}
	}
}

// unchanged checks that the gate is as registered left it.
func unchanged(t *testing.T, g *Gate) {
	t.Helper()
	if g.ControllerEpoch() != 5 || g.BrokerEpoch() != 10 || g.ClusterUUID() != uuid {
		t.Errorf("a refused command changed the gate: %v", g.Hello())
	}
	if len(g.Replicas()) != 0 || g.Live() != nil || len(g.metadata) != 0 || len(g.topics) != 0 {
		t.Errorf("a refused command left state: %v %v", g.Replicas(), g.Live())
	}
}

func TestNotRegisteredYet(t *testing.T) {
	for name, g := range map[string]*Gate{"new": NewGate(self, ""), "pinned": NewGate(self, uuid)} {
		v := g.Admit(leaderAndIsr(stamp(10, 7), states(topicA, "a", state(0, 1, 1, 1))))
		if v.Refusal != pb.Refusal_REFUSAL_UNAVAILABLE || v.ControllerEpoch != 0 {
			t.Errorf("%s: %v at epoch %d, want UNAVAILABLE at 0", name, v.Refusal, v.ControllerEpoch)
		}
	}
}

func TestEpochsWithoutAController(t *testing.T) {
	g := NewGate(self, uuid)
	if err := g.Registered(uuid, 10); err != nil {
		t.Fatal(err)
	}
	for ce, want := range map[cluster.Epoch]pb.Refusal{
		0: pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH, -1: pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH,
	} {
		if v := g.Admit(leaderAndIsr(stamp(10, ce))); v.Refusal != want {
			t.Errorf("epoch %d: %v, want %v", ce, v.Refusal, want)
		}
	}
	expect(t, g, leaderAndIsr(stamp(10, 1)))
}

func TestControllerEpochNeverFalls(t *testing.T) {
	g := registered(t)
	expect(t, g, leaderAndIsr(stamp(10, 8)))
	g.Adopt(6)
	if v := g.Admit(updateMetadata(stamp(10, 7), &pb.LiveBrokers{})); v.Refusal != pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH || v.ControllerEpoch != 8 {
		t.Errorf("epoch 7 after 8: %v with highest %d", v.Refusal, v.ControllerEpoch)
	}
	g.Adopt(12)
	if v := g.Admit(leaderAndIsr(stamp(10, 11))); v.Refusal != pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH || v.ControllerEpoch != 12 {
		t.Errorf("epoch 11 after a renewal told of 12: %v with highest %d", v.Refusal, v.ControllerEpoch)
	}
	if err := g.Registered(uuid, 20); err != nil {
		t.Fatal(err)
	}
	if h := g.Hello(); h.GetControllerEpoch() != 12 || h.GetBrokerEpoch() != 20 {
		t.Errorf("a new registration: hello %v", h)
	}
}

func TestLeaderAndIsr(t *testing.T) {
	for _, c := range []struct {
		name   string
		state  *pb.PartitionState
		want   Action
		le, pe int32 // held afterwards; 5 and 7 before
	}{
		{"higher leader epoch", state(0, 6, 8, 2), Admitted, 6, 8},
		{"higher leader epoch, lower partition epoch", state(0, 6, 1, 2), Admitted, 6, 1},
		{"the same again", state(0, 5, 7, 1), Already, 5, 7},
		{"higher partition epoch", state(0, 5, 8, 1, 2), IsrAdopted, 5, 8},
		{"lower partition epoch", state(0, 5, 6, 1), Already, 5, 7},
		{"lower leader epoch", state(0, 4, 9, 1), Already, 5, 7},
		{"another partition", state(1, 0, 0, 1), Admitted, 5, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := registered(t)
			expect(t, g, leaderAndIsr(stamp(10, 5), states(topicA, "a", state(0, 5, 7, 1))), Admitted)
			expect(t, g, leaderAndIsr(stamp(10, 5), states(topicA, "a", c.state)), c.want)
			s, ok := g.Replica(cluster.PartitionID{Topic: topicA})
			if !ok || int32(s.LeaderEpoch) != c.le || int32(s.PartitionEpoch) != c.pe {
				t.Fatalf("held %d/%d, want %d/%d", s.LeaderEpoch, s.PartitionEpoch, c.le, c.pe)
			}
			if c.want == IsrAdopted && !slices.Equal(s.ISR, []cluster.BrokerID{1, 2}) {
				t.Errorf("ISR %v was not adopted", s.ISR)
			}
		})
	}
}

func TestLeaderAndIsrInOrder(t *testing.T) {
	g := registered(t)
	short := &pb.TopicStates{TopicId: []byte{1, 2}, Topic: "short", Partitions: []*pb.PartitionState{state(0, 1, 1, 1)}}
	v := expect(t, g, leaderAndIsr(stamp(10, 5),
		states(topicA, "a", state(3, 1, 1, 1), state(0, 1, 1, 1), state(3, 1, 1, 1), state(3, 1, 2, 1, 2), state(3, 2, 3, 2)),
		states(topicB, "a", state(0, 9, 9, 1)),
		short,
		states(topicB, "b", state(0, 0, 0, 1)),
	), Admitted, Admitted, Already, IsrAdopted, Admitted, Inconsistent, Inconsistent, Admitted)
	if d := v.Decisions[0]; d.State.Topic != "a" || d.State.Partition != (cluster.PartitionID{Topic: topicA, Index: 3}) {
		t.Errorf("first decision is about %s %v", d.State.Topic, d.State.Partition)
	}
	want := []cluster.PartitionID{{Topic: topicA}, {Topic: topicA, Index: 3}, {Topic: topicB}}
	if got := g.Replicas(); !slices.Equal(got, want) {
		t.Errorf("hosts %v, want %v", got, want)
	}
}

func TestFailedHandler(t *testing.T) {
	p := cluster.PartitionID{Topic: topicA}
	cmd := func(le, pe int32) *pb.Command {
		return leaderAndIsr(stamp(10, 5), states(topicA, "a", state(0, le, pe, 1)))
	}
	g := registered(t)
	expect(t, g, cmd(5, 7), Admitted)
	g.Failed(p, 5)
	expect(t, g, cmd(4, 6), Already) // still fenced
	expect(t, g, cmd(5, 6), Already)
	expect(t, g, cmd(5, 7), Admitted)
	expect(t, g, cmd(5, 7), Already) // it failed once, not twice

	g.Failed(p, 5)
	expect(t, g, cmd(5, 8), Admitted) // with what was written meanwhile

	g.Failed(p, 4)
	expect(t, g, cmd(5, 8), Already) // an older handler says nothing of the newest
	g.Failed(cluster.PartitionID{Topic: topicB}, 0)

	g.Failed(p, 5)
	expect(t, g, cmd(6, 9), Admitted)
	expect(t, g, cmd(6, 9), Already)
}

func TestNewIncarnationKeepsState(t *testing.T) {
	g := registered(t)
	cmd := leaderAndIsr(stamp(10, 5), states(topicA, "a", state(0, 5, 7, 1)))
	expect(t, g, cmd, Admitted)
	if err := g.Registered("cluster-2", 20); err == nil || g.BrokerEpoch() != 10 {
		t.Fatalf("registered in another cluster: error %v, broker epoch %d", err, g.BrokerEpoch())
	}
	if err := g.Registered(uuid, 20); err != nil {
		t.Fatal(err)
	}
	if v := g.Admit(cmd); v.Refusal != pb.Refusal_REFUSAL_STALE_BROKER_EPOCH {
		t.Errorf("command for the earlier incarnation: %v", v.Refusal)
	}
	cmd.Stamp.BrokerEpoch = 20
	expect(t, g, cmd, Already)
}

func TestUpdateMetadata(t *testing.T) {
	g := registered(t)
	p := cluster.PartitionID{Topic: topicA}
	live := &pb.LiveBrokers{Brokers: []*pb.LiveBroker{
		{Id: 2, BrokerEpoch: 22, Rack: "r", Endpoints: []*pb.Endpoint{{Listener: "PLAINTEXT", Address: "b2:9092"}}}, {Id: 1, BrokerEpoch: 10},
	}}
	v := expect(t, g, updateMetadata(stamp(10, 5), live, states(topicA, "a", state(0, 1, 1, 1))), Admitted)
	if len(v.Live) != 2 || v.Live[0].ID != 1 || v.Live[1].Epoch != 22 || v.Live[1].Endpoints[0].Address != "b2:9092" {
		t.Errorf("live brokers %v", v.Live)
	}
	if len(g.Replicas()) != 0 {
		t.Error("metadata made the broker host a partition")
	}
	for _, c := range []struct {
		le, pe int32
		want   Action
	}{{1, 1, Already}, {1, 0, Already}, {1, 2, Admitted}, {0, 9, Already}, {2, 0, Admitted}, {1, 3, Already}} {
		if v := expect(t, g, updateMetadata(stamp(10, 5), nil, states(topicA, "a", state(0, c.le, c.pe, 1))), c.want); v.Live != nil {
			t.Errorf("%d/%d: live brokers out of nothing", c.le, c.pe)
		}
	}
	if s, ok := g.Metadata(p); !ok || s.LeaderEpoch != 2 || s.PartitionEpoch != 0 {
		t.Errorf("metadata %d/%d, want 2/0", s.LeaderEpoch, s.PartitionEpoch)
	}
	if len(g.Live()) != 2 {
		t.Errorf("a command without live brokers left %v", g.Live())
	}
	if v := expect(t, g, updateMetadata(stamp(10, 5), &pb.LiveBrokers{})); v.Live == nil || len(g.Live()) != 0 {
		t.Errorf("nobody is live, the gate says %v", g.Live())
	}
	if _, ok := g.Metadata(cluster.PartitionID{Topic: topicB}); ok {
		t.Error("metadata of a partition never heard of")
	}
}

func TestCommitted(t *testing.T) {
	p := cluster.PartitionID{Topic: topicA}
	for _, c := range []struct {
		name   string
		le, pe int32
		want   bool
	}{
		{"newer ISR", 5, 8, true},
		{"the ISR held", 5, 7, false},
		{"older ISR", 5, 6, false},
		{"another election", 6, 8, false},
		{"an earlier election", 4, 9, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := registered(t)
			record := &pb.PartitionRecord{LeaderEpoch: c.le, PartitionEpoch: c.pe, Leader: 1, Isr: []int32{1, 2, 3}, Replicas: []int32{1, 2, 3}}
			if _, ok := g.Committed(p, record); ok {
				t.Error("taken in for a partition that is not hosted")
			}
			expect(t, g, leaderAndIsr(stamp(10, 5), states(topicA, "a", state(0, 5, 7, 1, 2))), Admitted)
			s, ok := g.Committed(p, record)
			if ok != c.want {
				t.Fatalf("taken in: %t, want %t", ok, c.want)
			}
			if ok && (s.Topic != "a" || len(s.ISR) != 3 || s.PartitionEpoch != 8) {
				t.Errorf("state %+v", s)
			}
			expect(t, g, leaderAndIsr(stamp(10, 5), states(topicA, "a", state(0, 5, 7, 1, 2))), Already)
		})
	}
}

func TestTakenOut(t *testing.T) {
	g := registered(t)
	expect(t, g, leaderAndIsr(stamp(10, 5), states(topicA, "a", state(0, 5, 7, 1))), Admitted)
	g.TakeOut(unfenced.Open())
	expect(t, g, leaderAndIsr(stamp(9, 4), states(topicA, "a", state(0, 4, 6, 2))), Admitted)
	expect(t, g, updateMetadata(stamp(9, 4), &pb.LiveBrokers{}, states(topicA, "a", state(0, 4, 6, 2), state(0, 3, 3, 1))), Admitted, Admitted)
	if g.ControllerEpoch() != 5 {
		t.Errorf("epoch fell to %d", g.ControllerEpoch())
	}
}

func TestStamp(t *testing.T) {
	want := &pb.Stamp{ClusterUuid: uuid, ControllerId: "c1", ControllerEpoch: 5, BrokerId: 1, BrokerEpoch: 10, Revision: 100}
	if got := stamp(10, 5); !proto.Equal(got, want) {
		t.Errorf("stamp %v, want %v", got, want)
	}
}
