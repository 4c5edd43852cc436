package fencing

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// differences are the vectors where the gate does something else than Kafka, on
// purpose: what it says instead, and why.
var differences = map[string]struct{ says, why string }{
	"broker epoch in request = own +1": {
		"REFUSAL_UNAVAILABLE",
		"the answer to Register is still on its way; were it admitted, nothing would tell this incarnation from a later one",
	},
	"same leader epoch, larger partition epoch is ignored on the ZK path": {
		"ISR_ADOPTED",
		"a leader that missed the answer to its AlterPartition learns the ISR from the command; no handler runs, as in Kafka",
	},
	"LeaderAndIsr per partition: local epoch 5, request 4": {
		"ALREADY",
		"something newer is held, so the sender has nothing left to send; the error's name stands for its own epoch only",
	},
	"stopReplica existing partition LeaderEpochNotProvided": {
		"FENCED_LEADER_EPOCH", "every StopReplica names a leader epoch",
	},
	"stopReplica existing partition DeletePartition/NotProvided": {
		"FENCED_LEADER_EPOCH", "every StopReplica names a leader epoch",
	},
	"stopReplica existing partition DeletePartition/DeleteSentinel": {
		"FENCED_LEADER_EPOCH", "a tombstone names a leader epoch above all of the topic's",
	},
	"LeaderAndIsr for a broker that is not in the replica list": {
		"ADMITTED",
		"a command is made from a committed record and sent to its replicas only; the handler sees the replicas",
	},
}

type vector struct {
	Name, Kind, Source string
	Input, Expected    json.RawMessage
}

func vectors(t *testing.T, kind string) []vector {
	t.Helper()
	data, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []vector
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(v vector) bool { return v.Kind != kind })
	if len(all) == 0 {
		t.Fatalf("no vectors of kind %s", kind)
	}
	return all
}

func (v vector) decode(t *testing.T, input, expected any) {
	t.Helper()
	for raw, into := range map[*json.RawMessage]any{&v.Input: input, &v.Expected: expected} {
		if err := json.Unmarshal(*raw, into); err != nil {
			t.Fatal(err)
		}
	}
}

// check compares what the gate says with Kafka's answer, or with what stands in
// the table of differences.
func (v vector) check(t *testing.T, got, kafka string) {
	t.Helper()
	if d, ok := differences[v.Name]; ok {
		if got != d.says {
			t.Errorf("says %s, want %s because %s", got, d.says, d.why)
		}
		return
	}
	if got != kafka {
		t.Errorf("says %s, Kafka %s (%s)", got, kafka, v.Source)
	}
}

// says is the verdict on a command with at most one partition, in one word.
func says(v Verdict) string {
	switch {
	case v.Refused():
		return v.Refusal.String()
	case len(v.Decisions) > 0:
		return v.Decisions[0].Action.String()
	}
	return "accepted"
}

func TestVectorBrokerEpoch(t *testing.T) {
	kafka := map[string]string{
		"STALE_BROKER_EPOCH for LeaderAndIsr, UpdateMetadata and StopReplica": "REFUSAL_STALE_BROKER_EPOCH",
		"accepted": "accepted",
	}
	for _, v := range vectors(t, "broker.brokerEpoch") {
		t.Run(v.Name, func(t *testing.T) {
			var in struct {
				Delta *cluster.BrokerEpoch
				Steps []string
			}
			var want struct {
				Result           string
				CacheEqualsStore bool
			}
			v.decode(t, &in, &want)
			if in.Delta == nil {
				walkCache(t, in.Steps, want.CacheEqualsStore)
				return
			}
			for _, cmd := range []*pb.Command{leaderAndIsr(stamp(10+*in.Delta, 5)), updateMetadata(stamp(10+*in.Delta, 5), nil)} {
				v.check(t, says(registered(t).Admit(cmd)), kafka[want.Result])
			}
		})
	}
}

// walkCache restarts another broker and compares the broker epochs that the
// gate holds with those that the store gave.
func walkCache(t *testing.T, steps []string, want bool) {
	g := registered(t)
	epochs := map[string][]*pb.LiveBroker{
		"steady":         {{Id: 1, BrokerEpoch: 10}, {Id: 2, BrokerEpoch: 11}},
		"shutdown other": {{Id: 1, BrokerEpoch: 10}},
		"restart other":  {{Id: 1, BrokerEpoch: 10}, {Id: 2, BrokerEpoch: 14}},
	}
	for _, step := range steps {
		store, ok := epochs[step]
		if !ok {
			t.Fatalf("unknown step %q", step)
		}
		expect(t, g, updateMetadata(stamp(10, 5), &pb.LiveBrokers{Brokers: store}))
		equal := slices.EqualFunc(g.Live(), store, func(a LiveBroker, b *pb.LiveBroker) bool {
			return int32(a.ID) == b.GetId() && int64(a.Epoch) == b.GetBrokerEpoch()
		})
		if equal != want {
			t.Errorf("%s: the gate holds %v, the store %v", step, g.Live(), store)
		}
	}
}

// epochs are one leader epoch or several.
type epochs []int32

func (e *epochs) UnmarshalJSON(data []byte) error {
	var one int32
	if json.Unmarshal(data, &one) == nil {
		*e = epochs{one}
		return nil
	}
	return json.Unmarshal(data, (*[]int32)(e))
}

func TestVectorLeaderAndIsr(t *testing.T) {
	kafka := map[string]string{
		"NONE": "ADMITTED",
		"INCONSISTENT_TOPIC_ID for both (checked before the epoch)": "INCONSISTENT_TOPIC_ID",
		"STALE_CONTROLLER_EPOCH":                                    "REFUSAL_STALE_CONTROLLER_EPOCH",
		"applied":                                                   "ADMITTED",
		"ignored":                                                   "ALREADY",
	}
	for _, v := range vectors(t, "broker.leaderAndIsr") {
		t.Run(v.Name, func(t *testing.T) {
			var in leaderAndIsrInput
			var want struct {
				Partition, Top      string
				Applied             *bool
				PartitionEpochAfter int32
			}
			v.decode(t, &in, &want)
			answer := want.Partition + want.Top
			if want.Applied != nil {
				answer = map[bool]string{true: "applied", false: "ignored"}[*want.Applied]
			}
			for _, cmd := range in.commands() {
				g := in.gate(t)
				v.check(t, says(g.Admit(cmd)), kafka[answer])
				s, _ := g.Replica(cluster.PartitionID{Topic: topicA})
				if _, differs := differences[v.Name]; want.Applied != nil && !differs && int32(s.PartitionEpoch) != want.PartitionEpochAfter {
					t.Errorf("partition epoch %d afterwards, want %d", s.PartitionEpoch, want.PartitionEpochAfter)
				}
			}
		})
	}
}

// leaderAndIsrInput is the union of the inputs that the vectors have.
type leaderAndIsrInput struct {
	Local, Request         *struct{ LeaderEpoch, PartitionEpoch int32 }
	LocalLeaderEpoch       int32
	RequestLeaderEpoch     epochs
	LogTopicID             string `json:"logTopicId"`
	RequestTopicID         string `json:"requestTopicId"`
	InReplicas             *bool
	BrokerControllerEpoch  cluster.Epoch
	RequestControllerEpoch *cluster.Epoch
}

// gate is one that holds what the vector says is local.
func (in *leaderAndIsrInput) gate(t *testing.T) *Gate {
	g := registered(t)
	if in.RequestControllerEpoch != nil {
		g = NewGate(self, uuid)
		if err := g.Registered(uuid, 10); err != nil {
			t.Fatal(err)
		}
		g.Adopt(in.BrokerControllerEpoch)
		return g
	}
	local := state(0, in.LocalLeaderEpoch, 0, 1)
	if in.Local != nil {
		local = state(0, in.Local.LeaderEpoch, in.Local.PartitionEpoch, 1)
	}
	expect(t, g, leaderAndIsr(stamp(10, 5), states(topicA, "a", local)), Admitted)
	return g
}

// commands are the requests of the vector.
func (in *leaderAndIsrInput) commands() []*pb.Command {
	if in.RequestControllerEpoch != nil {
		return []*pb.Command{leaderAndIsr(stamp(10, *in.RequestControllerEpoch))}
	}
	if in.Request != nil {
		return []*pb.Command{leaderAndIsr(stamp(10, 5), states(topicA, "a", state(0, in.Request.LeaderEpoch, in.Request.PartitionEpoch, 1)))}
	}
	id := topicA
	if in.RequestTopicID != in.LogTopicID {
		id = topicB
	}
	var cmds []*pb.Command
	for _, le := range in.RequestLeaderEpoch {
		s := state(0, le, 0, 1)
		if in.InReplicas != nil && !*in.InReplicas {
			s.Leader, s.Isr, s.Replicas = 2, []int32{2}, []int32{2, 3}
		}
		cmds = append(cmds, leaderAndIsr(stamp(10, 5), states(id, "a", s)))
	}
	return cmds
}

func TestVectorStopReplica(t *testing.T) {
	for _, v := range vectors(t, "broker.stopReplica") {
		t.Run(v.Name, func(t *testing.T) {
			var in struct {
				BrokerControllerEpoch  cluster.Epoch
				RequestControllerEpoch *cluster.Epoch
				LocalReplica           string
				LocalLeaderEpoch       *int32
				RequestLeaderEpoch     int32
				Delete, IOError        bool
			}
			var want struct{ Top, Partition string }
			v.decode(t, &in, &want)
			ce := cluster.Epoch(5)
			g := registered(t)
			if in.RequestControllerEpoch != nil {
				ce = *in.RequestControllerEpoch
				g.Adopt(in.BrokerControllerEpoch)
			}
			if in.LocalLeaderEpoch != nil {
				expect(t, g, leaderAndIsr(stamp(10, 5), states(topicA, "a", state(0, *in.LocalLeaderEpoch, 0, 1))), Admitted)
			}
			cmd := &pb.Command{Stamp: stamp(10, ce), Body: &pb.Command_StopReplica{StopReplica: &pb.StopReplica{Topics: []*pb.TopicStops{{
				TopicId: topicA[:], Topic: "a", Partitions: []*pb.PartitionStop{{LeaderEpoch: in.RequestLeaderEpoch, Delete: in.Delete}},
			}}}}}
			answer := want.Partition
			if want.Top != "NONE" {
				answer = want.Top
			}
			kafka := map[string]string{
				"STALE_CONTROLLER_EPOCH": "REFUSAL_STALE_CONTROLLER_EPOCH", "FENCED_LEADER_EPOCH": "FENCED_LEADER_EPOCH",
				"NONE": "ADMITTED", "KAFKA_STORAGE_ERROR": "ADMITTED", // that is the handler's to say
			}[answer]
			if in.LocalReplica == "not hosted" && !in.Delete {
				kafka = "ALREADY"
			}
			v.check(t, says(g.Admit(cmd)), kafka)
		})
	}
}

func TestDifferencesAreOfVectors(t *testing.T) {
	known := map[string]bool{}
	for _, kind := range []string{"broker.brokerEpoch", "broker.leaderAndIsr", "broker.stopReplica"} {
		for _, v := range vectors(t, kind) {
			known[v.Name] = true
		}
	}
	for name := range differences {
		if !known[name] {
			t.Errorf("no vector is called %q", name)
		}
	}
}
