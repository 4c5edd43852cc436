package controller

import (
	"fmt"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

func elect(kind pb.ElectionType, topics ...*pb.TopicPartitions) rpc.ElectLeaders {
	return rpc.ElectLeaders{ElectLeadersRequest: &pb.ElectLeadersRequest{Type: kind, Topics: topics, All: topics == nil, Reason: "why"}}
}

func (b *bench) elected(id int64) *pb.ElectLeadersResponse {
	b.t.Helper()
	a := b.answerOf(id)
	if a.Err != nil {
		b.t.Fatal(a.Err)
	}
	return a.Response.(*pb.ElectLeadersResponse)
}

// second lets the second replica lead the partitions of a topic from one on.
func (b *bench) second(name string, from int32) {
	b.t.Helper()
	for i := from; i < b.l.im.Topics[name].Made(); i++ {
		b.edit(name, i, func(p *cluster.Partition) {
			p.Leader = p.Replicas[1]
			p.LeaderEpoch++
			p.PartitionEpoch++
		})
	}
	b.run()
}

const (
	preferred  = pb.ElectionType_ELECTION_TYPE_PREFERRED
	designated = pb.ElectionType_ELECTION_TYPE_DESIGNATED
)

// Who is asked for gets the leadership, the reason is kept until the next
// change, and each partition has its own result.
func TestElectLeaders(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 4, 4)
	first := func() *cluster.Partition { return b.l.im.Partition(b.partition("a", 0)) }
	to := first().Replicas[1]
	r := elect(designated, &pb.TopicPartitions{Topic: "b"}, &pb.TopicPartitions{Topic: "a", Partitions: []int32{7, 0}})
	r.Leader = int32(to)
	r.ValidateOnly = true
	id := b.ask(r)[0]
	b.run()
	if a := b.elected(id); a.GetElected() != 1 || first().Leader == to || len(b.commits) != 1 {
		t.Fatalf("a dry run: %v, leader %d", a, first().Leader)
	}
	r.ValidateOnly = false
	id = b.ask(r)[0]
	b.run()
	a := b.elected(id)
	if got := fmt.Sprint(a.GetElected(), a.GetFailed(), a.GetNotNeeded()); got != "1 2 0" || a.GetRevision() == 0 {
		t.Errorf("%v", a)
	}
	want := fmt.Sprintf("a/0  %d from %d, a/7 UNKNOWN_TOPIC_OR_PARTITION -1 from -1, b/0 UNKNOWN_TOPIC_OR_PARTITION 0 from 0, ", to, first().Replicas[0])
	if got := resultsOf(a); got != want {
		t.Errorf("results %s\nwant %s", got, want)
	}
	if first().Leader != to || b.l.im.Reason(b.partition("a", 0)) != "why" || b.l.im.Reason(b.partition("a", 1)) != "" {
		t.Errorf("leader %d, reason %q", first().Leader, b.l.im.Reason(b.partition("a", 0)))
	}
	id = b.ask(elect(preferred))[0]
	b.run()
	if a := b.elected(id); a.GetElected() != 1 || a.GetNotNeeded() != 3 || len(a.GetResults()) != 1 || first().Leader == to {
		t.Errorf("of all: %v", a)
	}
	b.ask(b.shrink("a", 0))
	b.run()
	if got := b.l.im.Reason(b.partition("a", 0)); got != "" {
		t.Errorf("after another change the reason is %q", got)
	}
}

func resultsOf(a *pb.ElectLeadersResponse) (out string) {
	for _, r := range a.GetResults() {
		out += fmt.Sprintf("%s/%d %s %d from %d, ", r.GetTopic(), r.GetPartition(), r.GetError(), r.GetLeader(), r.GetPreviousLeader())
	}
	return out
}

// Very many partitions are elected over many plans, each counted once, though
// somebody else's write makes a part of one fail; others are answered in
// between.
func TestElectsOverPlans(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 400, 1)
	b.created("b", 3, 1)
	b.second("a", 100)
	b.l.cfg.Slice = 150
	b.held = commits
	id := b.ask(elect(preferred))[0]
	plans, alters := 0, int64(0)
	for ; !b.answered(id) && plans < 60; plans++ {
		if b.run(); plans == 2 {
			alters = b.ask(b.shrink("b", 0))[0]
			for i := range int32(400) { // by hand, the first that is on its way: what is not in its transaction commits
				if p := b.l.im.Partition(b.partition("a", i)); p.Leader != p.Replicas[0] {
					b.edit("a", i, func(p *cluster.Partition) { p.PartitionEpoch++ })
					break
				}
			}
		}
		for b.count(commits) > 0 {
			b.do(commits)
			if b.l.plan == nil || b.l.plan.all[0].phase == committing {
				break
			}
		}
	}
	b.held = nothing
	b.run()
	a := b.elected(id)
	if a.GetElected() != 300 || a.GetFailed() != 0 || a.GetNotNeeded() != 103 || len(a.GetResults()) != 300 || plans < 3 {
		t.Errorf("after %d plans: %d elected, %d failed, %d not needed, %d results", plans, a.GetElected(), a.GetFailed(), a.GetNotNeeded(), len(a.GetResults()))
	}
	if got := b.alterResult(alters); got != "ok 1" {
		t.Errorf("the leader in between: %s", got)
	}
	if b.l.Stats.GuardFailed != 1 {
		t.Errorf("%d transactions failed", b.l.Stats.GuardFailed)
	}
	b.l.im.Partitions(b.l.im.Topics["a"], func(id cluster.PartitionID, p *cluster.Partition) {
		if p.Leader != p.Replicas[0] {
			t.Errorf("broker %d leads %d", p.Leader, id.Index)
		}
	})
}

// An election waits until what the rules want of the partition is done.
func TestElectionWaitsForItsTurn(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 1, 1)
	b.second("a", 0)
	id := b.partition("a", 0)
	replicas := b.l.im.Partition(id).Replicas
	b.created("b", 1, 1)
	b.held = commits
	b.ask(b.shrink("b", 0)) // the plan in which both come waits for this one
	b.run()
	b.hand(store.Delete(keys.Broker(replicas[1])))
	r := elect(designated, &pb.TopicPartitions{Topic: "a", Partitions: []int32{0}})
	r.Leader = int32(replicas[2])
	asked := b.ask(r)[0]
	b.run()
	if !b.l.machine.Due(id) || b.answered(asked) {
		t.Fatal("nothing is due")
	}
	b.held = nothing
	b.run()
	want := fmt.Sprintf("a/0  %d from %d, ", replicas[2], replicas[0])
	if got := resultsOf(b.elected(asked)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
