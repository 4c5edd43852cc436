package controller

import (
	"fmt"
	"slices"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

func expand(requestID string, topics ...*pb.NewPartitions) rpc.CreatePartitions {
	return rpc.CreatePartitions{CreatePartitionsRequest: &pb.CreatePartitionsRequest{Topics: topics, RequestId: requestID, Reason: "why"}}
}

// expanded are the results of a request for more partitions: the error, or how
// many there are to be.
func (b *bench) expanded(id int64) string {
	b.t.Helper()
	a := b.answerOf(id)
	if a.Err != nil {
		b.t.Fatal(a.Err)
	}
	out := ""
	for _, r := range a.Response.(*pb.CreatePartitionsResponse).GetResults() {
		if out += r.GetTopic() + " " + r.GetError(); r.GetError() == "" {
			out += fmt.Sprint(r.GetPartitions())
		}
		out += ";"
	}
	return out
}

// A topic gets more partitions: those that are there stay as they are, the
// others are chosen or as they are given, also in a block that is shared.
func TestExpand(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 5, 4)
	before := b.l.im.Partition(b.partition("a", 4)).Clone()
	id := b.ask(expand("r1", &pb.NewPartitions{Topic: "a", Count: 10}, &pb.NewPartitions{Topic: "b", Count: 3}))[0]
	b.run()
	if got := b.expanded(id); got != "a 10;b UNKNOWN_TOPIC_OR_PARTITION;" {
		t.Fatal(got)
	}
	a := func() *cluster.Topic { return b.l.im.Topics["a"] }
	if a().Made() != 10 || a().Record.GetExpandReason() != "why" {
		t.Fatalf("%v", a().Record)
	}
	if now := b.l.im.Partition(b.partition("a", 4)); now.PartitionEpoch != before.PartitionEpoch || !slices.Equal(now.Replicas, before.Replicas) {
		t.Errorf("partition 4 was %+v, is %+v", before, now)
	}
	for i := int32(5); i < 10; i++ {
		if p := b.l.im.Partition(b.partition("a", i)); p == nil || len(p.Replicas) != 3 || p.Cause != pb.ChangeCause_CHANGE_CAUSE_EXPANDED {
			t.Errorf("partition %d: %+v", i, p)
		}
	}
	given := []*pb.ReplicaAssignment{{Replicas: []int32{3, 1, 2}}, {Replicas: []int32{2, 3, 1}}, {Replicas: []int32{1, 2, 3}}}
	dry := expand("", &pb.NewPartitions{Topic: "a", Count: 13, Assignments: given})
	dry.ValidateOnly = true
	id = b.ask(dry)[0]
	b.run()
	if got := b.expanded(id); got != "a 13;" || a().Wanted() != 10 {
		t.Errorf("a dry run: %s, %d", got, a().Wanted())
	}
	ids := b.ask(expand("r2", &pb.NewPartitions{Topic: "a", Count: 13, Assignments: given}), expand("r3", &pb.NewPartitions{Topic: "a", Count: 12}))
	b.run()
	if got := b.expanded(ids[0]) + b.expanded(ids[1]); got != "a 13;a INVALID_PARTITIONS;" || a().Made() != 13 || a().Wanted() != 13 {
		t.Errorf("%s: %v", got, a().Record)
	}
	for i, g := range given {
		if p := b.l.im.Partition(b.partition("a", 10+int32(i))); !slices.Equal(p.Replicas, cluster.BrokerIDs(g.GetReplicas())) || p.Leader != p.Replicas[0] {
			t.Errorf("partition %d: %+v", 10+i, p)
		}
	}
	id = b.ask(expand("r2", &pb.NewPartitions{Topic: "a", Count: 13, Assignments: given}))[0]
	b.run()
	if got := b.expanded(id); got != "a 13;" {
		t.Errorf("the same request again: %s", got)
	}
}

// A chunk of it fails, because somebody writes to the topic: it is decided again.
func TestExpandAgain(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 5, 4)
	b.held = commits
	id := b.ask(expand("r", &pb.NewPartitions{Topic: "a", Count: 6, Assignments: []*pb.ReplicaAssignment{{Replicas: []int32{3, 1, 2}}}}))[0]
	b.edit("a", 4, func(p *cluster.Partition) { p.PartitionEpoch++ })
	b.held = nothing
	b.run()
	if got := b.expanded(id); got != "a 6;" || b.l.im.Topics["a"].Made() != 6 || b.l.Stats.GuardFailed == 0 {
		t.Errorf("%s, %d guards failed: %v", got, b.l.Stats.GuardFailed, b.l.im.Topics["a"].Record)
	}
	if p := b.l.im.Partition(b.partition("a", 4)); p.PartitionEpoch != 1 {
		t.Errorf("the other write is gone: %+v", p)
	}
}
