package scenarios

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/etcdtest"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// alone lets only its leader be in the ISR of a partition, by hand, as who edits
// what is there and looks whether it still was. It returns the leader.
func (w *world) alone(id cluster.PartitionID) (leader cluster.BrokerID) {
	w.t.Helper()
	w.await("the ISR is edited", limit, func() bool {
		var key string
		var rev store.Rev
		var value []byte
		w.tape.look(func(im *cluster.Image) {
			p := im.Partition(id)
			if p == nil || p.Leader == cluster.NoLeader {
				return
			}
			block := cluster.BlockOf(id, im.TopicByID(id.Topic).BlockSize())
			n := p.Clone()
			n.ISR, n.LeaderEpoch, n.PartitionEpoch = []cluster.BrokerID{p.Leader}, p.LeaderEpoch+1, p.PartitionEpoch+1
			key, leader = w.keys.Block(block), p.Leader
			rev, value = im.ModRev(key), im.Block(block).With(map[int32]*cluster.Partition{id.Index: &n}, nil).Encode()
		})
		if key == "" {
			return false
		}
		resp, err := w.client.Txn(w.call()).If(clientv3.Compare(clientv3.ModRevision(key), "=", int64(rev))).Then(clientv3.OpPut(key, string(value))).Commit()
		if err != nil || !resp.Succeeded {
			return false
		}
		w.tape.byHand(resp.Header.Revision)
		return true
	})
	return leader
}

// fromTheISR looks through the history for leaders, and for members of an ISR
// that its leader has not asked for, who were not in the ISR that etcd held
// before. It returns how many changes of leaders there were.
func (w *world) fromTheISR() (elections int) {
	w.t.Helper()
	before := map[string]*pb.PartitionRecord{}
	for _, c := range w.tape.after(0, func(string) bool { return true }) {
		b := &pb.PartitionBlock{}
		if kind, _, err := w.keys.RecordOf(c.KV.Key); err != nil || kind != "partitions" || c.Deleted || proto.Unmarshal(c.KV.Value, b) != nil {
			continue
		}
		for _, p := range b.GetPartitions() {
			name := fmt.Sprint(c.KV.Key, "/", p.GetPartition())
			old := before[name]
			before[name] = p
			if old == nil || w.tape.wasByHand(c.KV.ModRev) || proto.Equal(old, p) {
				continue
			}
			if p.GetLeader() != old.GetLeader() && p.GetLeader() != int32(cluster.NoLeader) {
				elections++
				if !slices.Contains(old.GetIsr(), p.GetLeader()) {
					w.t.Errorf("revision %d: %d leads %s, the ISR was %v", c.KV.ModRev, p.GetLeader(), name, old.GetIsr())
				}
			}
			if p.GetCause() != pb.ChangeCause_CHANGE_CAUSE_ISR_ALTERED && slices.ContainsFunc(p.GetIsr(), func(b int32) bool { return !slices.Contains(old.GetIsr(), b) }) {
				w.t.Errorf("revision %d: the ISR of %s is %v after %v, by %v", c.KV.ModRev, name, p.GetIsr(), old.GetIsr(), p.GetCause())
			}
		}
	}
	return elections
}

// Somebody edits the ISR of a partition, or deletes its key, right before the
// controller changes the leader or the replicas of many, or between its decision
// and its write. The write is decided again from what etcd holds then, the other
// partitions get theirs, and nobody leads who was not in sync.
func TestTP6LostCompare(t *testing.T) {
	t.Parallel()
	const rounds, partitions = 50, 20 // two blocks
	w := newWorld(t)
	d := w.daemon("a")
	w.active(1, soon)
	for id := range cluster.BrokerID(4) {
		w.registered(w.broker(id, follows(w)))
	}
	var replicas [][]int32
	for i := range int32(partitions) {
		replicas = append(replicas, []int32{i % 3, (i + 1) % 3, (i + 2) % 3})
	}
	topic := w.assigned("orders", replicas...)
	w.converged(limit)
	rng := rand.New(rand.NewPCG(6, 6))
	whole := func(skip func(cluster.PartitionID) bool) bool {
		return w.inTruth("orders", func(im *cluster.Image, t *cluster.Topic) bool {
			ok := true
			im.Partitions(t, func(id cluster.PartitionID, p *cluster.Partition) {
				if skip != nil && skip(id) {
					return
				}
				ok = ok && p != nil && p.Leader != cluster.NoLeader && len(p.ISR) == len(p.Replicas) && len(p.Adding)+len(p.Removing)+len(p.Target) == 0
			})
			return ok
		})
	}
	failed := func() int64 {
		resp, err := d.admin.DescribeController(w.call(), &pb.DescribeControllerRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetCounters()["guards_failed"]
	}
	for n := range rounds {
		before := failed()
		id := cluster.PartitionID{Topic: topic, Index: rng.Int32N(partitions)}
		p := w.record(id)
		acts := map[string]func(){
			"the leader fails": func() { w.revoke(w.sessionLease(p.Leader)) },
			"an election": func() {
				req := &pb.ElectLeadersRequest{Type: pb.ElectionType_ELECTION_TYPE_PREFERRED, Topics: []*pb.TopicPartitions{{Topic: "orders"}}}
				if p.Leader == p.Replicas[0] {
					req.Type, req.Leader = pb.ElectionType_ELECTION_TYPE_DESIGNATED, int32(p.Replicas[1])
				}
				_, _ = d.admin.ElectLeaders(w.call(), req)
			},
			"a reassignment": func() {
				req := &pb.AlterPartitionReassignmentsRequest{}
				target := rng.Perm(4)[:3]
				for i := range int32(partitions) {
					req.Partitions = append(req.Partitions, &pb.PartitionReassignment{
						Topic: "orders", Partition: i, Target: &pb.ReplicaAssignment{Replicas: []int32{int32(target[0]), int32(target[1]), int32(target[2])}},
					})
				}
				_, _ = d.admin.AlterPartitionReassignments(w.call(), req)
			},
		}
		name := []string{"the leader fails", "an election", "a reassignment"}[n%3]
		removes, held := n%5 == 4, n%2 == 0
		what := fmt.Sprintf("round %d, %s, the key is deleted: %v, between decision and write: %v", n, name, removes, held)
		key, value := w.block(id)
		edit := func() {
			if removes {
				key, value = w.block(id)
				w.remove(key)
			} else {
				w.alone(id)
			}
		}
		done := make(chan struct{})
		act := func() { defer close(done); acts[name]() }
		if held {
			hold := d.faults.Add(etcdtest.Rule{Effect: etcdtest.Hold, Method: "Txn", Match: writes(w.keys.Prefix() + "partitions/")})
			go act()
			select {
			case <-hold.Hit():
			case <-done: // it had nothing to write
			case <-time.After(limit):
				t.Fatalf("%s: nothing is written", what)
			}
			edit()
			hold.Remove()
		} else {
			edit()
			pass(5 * time.Millisecond)
			go act()
		}
		select {
		case <-done:
		case <-time.After(limit):
			t.Fatalf("%s: it does not end", what)
		}
		if removes {
			w.await(what+": the daemon names it", soon, func() bool { return d.names("records are missing") })
			w.await(what+": the others are as they should be", limit, func() bool {
				return whole(func(x cluster.PartitionID) bool { return x.Index/16 == id.Index/16 })
			})
			w.tape.look(func(im *cluster.Image) {
				if im.ModRev(key) != 0 {
					t.Errorf("%s: it was made anew", what)
				}
			})
			w.put(key, value)
		}
		w.await(what+": all are as they should be", limit, func() bool { return whole(nil) && w.apart() == "" })
		if more := failed() - before; more > 20 {
			t.Errorf("%s: %d transactions have failed", what, more)
		}
	}
	if n := w.fromTheISR(); n < rounds {
		t.Errorf("there were %d elections", n)
	}
	if n := failed(); n < rounds/2-5 {
		t.Errorf("%d compares were lost", n)
	}
}
