package fencing

import (
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protodelim"

	"bytes"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// FuzzAdmit takes any commands through the gate, each with its length before
// it: epochs never fall, and a refused command changes nothing.
func FuzzAdmit(f *testing.F) {
	f.Fuzz(func(t *testing.T, stream []byte) {
		g := registered(t)
		for r := bytes.NewReader(stream); ; {
			cmd := &pb.Command{}
			if protodelim.UnmarshalFrom(r, cmd) != nil {
				return
			}
			ce, before := g.ControllerEpoch(), hostedBy(g)
			v := g.Admit(cmd)
			after := hostedBy(g)
			if g.ControllerEpoch() < ce || v.ControllerEpoch != g.ControllerEpoch() {
				t.Fatalf("controller epoch %d after %d, answered %d", g.ControllerEpoch(), ce, v.ControllerEpoch)
			}
			if v.Refused() && (!reflect.DeepEqual(before, after) || len(v.Decisions) != 0) {
				t.Fatalf("refused with %v, and yet %v became %v", v.Refusal, before, after)
			}
			for id, s := range before {
				now, ok := after[id]
				if ok && now.Compare(&s) < 0 {
					t.Fatalf("partition %s went back from %+v to %+v", id, s, now)
				}
			}
			if got := g.Replicas(); !slices.IsSortedFunc(got, cluster.PartitionID.Compare) {
				t.Fatalf("replicas out of order: %v", got)
			}
		}
	})
}

func hostedBy(g *Gate) map[cluster.PartitionID]PartitionState {
	out := map[cluster.PartitionID]PartitionState{}
	for _, id := range g.Replicas() {
		out[id], _ = g.Replica(id)
	}
	return out
}
