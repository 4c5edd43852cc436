package scenarios

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// rounds is how often the active is killed inside each operation.
const rounds = 4

// inside is a world in which the active is killed while something is under way.
type inside struct {
	*world
	rng     *rand.Rand
	daemons int
}

// newInside has three daemons, brokers 0 to n-1, and what else opts say.
func newInside(t *testing.T, brokers int) *inside {
	t.Helper()
	w := &inside{world: newWorld(t), rng: rand.New(rand.NewPCG(1, uint64(len(t.Name()))))}
	for range 3 {
		w.another()
	}
	w.active(1, limit)
	w.startBrokers(brokers)
	return w
}

// another daemon takes the place of one that was killed, at the same address,
// where brokers look for it.
func (w *inside) another(at ...string) {
	w.t.Helper()
	w.daemons++
	opts := []daemonOption{brief}
	for _, addr := range at {
		opts = append(opts, listen(addr))
	}
	w.daemon(fmt.Sprint("d", w.daemons), opts...)
}

// kill does something, and kills the active within about the time that it took
// last. It returns how long the operation has taken.
func (w *inside) kill(last time.Duration, do func()) time.Duration {
	w.t.Helper()
	done := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(done)
		do()
	}()
	timer := time.NewTimer(time.Duration(w.rng.Int64N(int64(last) + 1)))
	defer timer.Stop()
	<-timer.C
	_, id := w.seat()
	w.world.mu.Lock()
	i := slices.IndexFunc(w.world.daemons, func(d *daemon) bool { return d.ID == id && d.alive() })
	var victim *daemon
	if i >= 0 {
		victim = w.world.daemons[i]
	}
	w.world.mu.Unlock()
	if victim != nil {
		victim.kill()
		w.another(victim.Endpoint)
	}
	<-done
	return time.Since(began)
}

// insist calls one daemon after the other until one has answered that it is
// done. done says why it is not, as far as the answer tells.
func insist[T any](w *world, what string, call func(context.Context, pb.AdminServiceClient) (T, error), done func(T) error) {
	var err error
	for n := 0; !poll(0, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		var resp T
		if resp, err = call(ctx, w.someAdmin(n)); err == nil {
			err = done(resp)
		}
		return err == nil
	}); n++ {
		if n > 400 {
			w.t.Errorf("%s: %v", what, err)
			return
		}
		pass(25 * time.Millisecond)
	}
}

// inTruth looks at a topic as etcd has it.
func (w *world) inTruth(name string, fn func(*cluster.Image, *cluster.Topic) bool) (ok bool) {
	w.tape.look(func(im *cluster.Image) {
		if t := im.Topics[name]; t != nil {
			ok = fn(im, t)
		}
	})
	return ok
}

// every reports whether something holds of each partition of a topic.
func every(im *cluster.Image, t *cluster.Topic, holds func(*cluster.Partition) bool) bool {
	ok := true
	im.Partitions(t, func(_ cluster.PartitionID, p *cluster.Partition) { ok = ok && p != nil && holds(p) })
	return ok
}

// atRest waits until nothing is left of what was begun: brokers hold what etcd
// says, no blocks are hidden, no deleted topic is on a broker.
func (w *inside) atRest() {
	w.t.Helper()
	w.converged(limit)
	w.await("nothing is left half done", limit, func() (rest bool) {
		w.tape.look(func(im *cluster.Image) { rest = len(im.HiddenBlocks()) == 0 && len(im.Tombstones) == 0 })
		return rest
	})
}

const (
	insidePartitions = 400
	firstGuess       = 300 * time.Millisecond // of how long an operation takes
)

// The active dies inside creations and deletions: each topic is there once and
// whole, or gone with all that belonged to it.
func TestActiveDiesInsideCreationAndDeletion(t *testing.T) {
	t.Parallel()
	w := newInside(t, 3)
	took := firstGuess
	for n := range rounds {
		name := fmt.Sprint("made-", n)
		took = w.kill(took, func() { _, _ = w.tryCreate(w.call(), name, insidePartitions, 3) })
		if !w.inTruth(name, func(im *cluster.Image, t *cluster.Topic) bool {
			return t.Made() == insidePartitions && t.Wanted() == insidePartitions &&
				every(im, t, func(p *cluster.Partition) bool { return len(p.Replicas) == 3 && p.Leader != cluster.NoLeader })
		}) {
			t.Fatalf("topic %s is not whole", name)
		}
	}
	w.atRest()
	took = firstGuess
	for n := range rounds {
		name := fmt.Sprint("made-", n)
		var id cluster.TopicID
		w.inTruth(name, func(_ *cluster.Image, t *cluster.Topic) bool { id = t.ID; return true })
		w.world.mu.Lock()
		delete(w.made, name)
		w.world.mu.Unlock()
		took = w.kill(took, func() {
			req := &pb.DeleteTopicsRequest{Topics: []*pb.TopicToDelete{{Name: name, TopicId: id[:]}}}
			insist(w.world, "delete "+name, func(ctx context.Context, a pb.AdminServiceClient) (*pb.DeleteTopicsResponse, error) {
				return a.DeleteTopics(ctx, req)
			}, func(resp *pb.DeleteTopicsResponse) error {
				if got := resp.GetResults()[0].GetError(); got != "" && got != string(cluster.UnknownTopicID) {
					return errors.New(got)
				}
				return nil
			})
		})
	}
	w.atRest()
	w.tape.look(func(im *cluster.Image) {
		if len(im.Topics) != 0 {
			t.Errorf("%d topics are left", len(im.Topics))
		}
	})
}

// The active dies inside elections that somebody has asked for: each partition
// is led by whom the request names, in one leader epoch more for each election.
func TestActiveDiesInsideElections(t *testing.T) {
	t.Parallel()
	w := newInside(t, 3)
	w.create("orders", insidePartitions, 3)
	w.converged(limit)
	took := firstGuess
	for n := range rounds {
		leader := int32(n % 3)
		req := &pb.ElectLeadersRequest{Type: pb.ElectionType_ELECTION_TYPE_DESIGNATED, Leader: leader, Topics: []*pb.TopicPartitions{{Topic: "orders"}}}
		took = w.kill(took, func() {
			insist(w.world, "elect", func(ctx context.Context, a pb.AdminServiceClient) (*pb.ElectLeadersResponse, error) {
				return a.ElectLeaders(ctx, req)
			}, func(resp *pb.ElectLeadersResponse) error {
				if resp.GetFailed() > 0 {
					return fmt.Errorf("%v", resp.GetResults()[0])
				}
				return nil
			})
		})
		if !w.inTruth("orders", func(im *cluster.Image, t *cluster.Topic) bool {
			return every(im, t, func(p *cluster.Partition) bool {
				return p.Leader == cluster.BrokerID(leader) && len(p.ISR) == 3 && p.LeaderEpoch <= cluster.LeaderEpoch(n+1)
			})
		}) {
			t.Fatalf("round %d: not all partitions are led by broker %d", n, leader)
		}
	}
	w.atRest()
}

// The active dies inside expansions, of which the replicas are chosen or given:
// each topic has the partitions that it is to have, and those that it had are as
// they were.
func TestActiveDiesInsideExpansion(t *testing.T) {
	t.Parallel()
	w := newInside(t, 3)
	w.create("orders", 10, 3)
	w.converged(limit)
	took := firstGuess
	count := int32(10)
	for n := range rounds {
		np := &pb.NewPartitions{Topic: "orders", Count: count + insidePartitions}
		if n%2 == 1 {
			for range insidePartitions {
				np.Assignments = append(np.Assignments, &pb.ReplicaAssignment{Replicas: []int32{2, 1, 0}})
			}
		}
		req := &pb.CreatePartitionsRequest{Topics: []*pb.NewPartitions{np}, RequestId: fmt.Sprint("request-", n)}
		took = w.kill(took, func() {
			insist(w.world, "expand", func(ctx context.Context, a pb.AdminServiceClient) (*pb.CreatePartitionsResponse, error) {
				return a.CreatePartitions(ctx, req)
			}, func(resp *pb.CreatePartitionsResponse) error {
				if r := resp.GetResults()[0]; r.GetError() != "" {
					return errors.New(r.GetMessage())
				}
				return nil
			})
		})
		w.await("the partitions are made", limit, func() bool {
			return w.inTruth("orders", func(im *cluster.Image, t *cluster.Topic) bool { return t.Made() == np.GetCount() })
		})
		if !w.inTruth("orders", func(im *cluster.Image, t *cluster.Topic) bool {
			for i := count; i < np.GetCount(); i++ {
				p := im.Partition(cluster.PartitionID{Topic: t.ID, Index: i})
				if p == nil || p.Leader == cluster.NoLeader || n%2 == 1 && !slices.Equal(p.Replicas, []cluster.BrokerID{2, 1, 0}) {
					return false
				}
			}
			return every(im, t, func(p *cluster.Partition) bool { return len(p.Replicas) == 3 && p.LeaderEpoch == 0 })
		}) {
			t.Fatalf("round %d: the partitions are not as they should be", n)
		}
		count = np.GetCount()
	}
	w.atRest()
}

// follows lets a broker's leaders take all live replicas into the ISR.
func follows(w *world) brokerOption {
	return func(n *node, _ *broker.Config) {
		n.apply = func(_ context.Context, s broker.PartitionState) error {
			if s.Leader == n.id && !s.Stop && len(s.ISR) < len(s.Replicas) {
				go n.letIn(w, s)
			}
			return nil
		}
	}
}

// letIn proposes replicas that are missing from an ISR, until they are in, or
// another leader epoch has come.
func (n *node) letIn(w *world, s broker.PartitionState) {
	for n.alive() {
		now, ok := n.Partition(s.Partition)
		if !ok || now.LeaderEpoch != s.LeaderEpoch {
			return
		}
		live := map[cluster.BrokerID]cluster.BrokerEpoch{}
		for _, b := range n.Live() {
			live[b.ID] = b.Epoch
		}
		c := broker.IsrChange{Partition: s.Partition, LeaderEpoch: now.LeaderEpoch, PartitionEpoch: now.PartitionEpoch}
		for _, id := range now.Replicas {
			if e, ok := live[id]; ok {
				c.NewISR = append(c.NewISR, broker.IsrMember{Broker: id, Epoch: e})
			}
		}
		if len(now.ISR) == len(now.Replicas) {
			return
		}
		if len(c.NewISR) <= len(now.ISR) { // those that are missing are away
			pass(100 * time.Millisecond)
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, _ = n.AlterPartition(ctx, []broker.IsrChange{c})
		cancel()
		pass(20 * time.Millisecond)
	}
}

// reassign asks for other replicas of all partitions of a topic, until that is
// answered.
func (w *world) reassign(topic string, partitions int, target []int32, most *int32) {
	req := &pb.AlterPartitionReassignmentsRequest{Reason: "test", MaxMoves: most}
	for i := range partitions {
		req.Partitions = append(req.Partitions, &pb.PartitionReassignment{Topic: topic, Partition: int32(i), Target: &pb.ReplicaAssignment{Replicas: target}})
	}
	insist(w, "reassign", func(ctx context.Context, a pb.AdminServiceClient) (*pb.AlterPartitionReassignmentsResponse, error) {
		return a.AlterPartitionReassignments(ctx, req)
	}, func(resp *pb.AlterPartitionReassignmentsResponse) error {
		if resp.GetFailed() > 0 {
			return fmt.Errorf("%v", resp.GetResults()[0])
		}
		return nil
	})
}

// moved reports whether all partitions of a topic have the replicas, in sync, and
// nothing is left to do.
func (w *world) moved(topic string, replicas ...cluster.BrokerID) bool {
	return w.inTruth(topic, func(im *cluster.Image, t *cluster.Topic) bool {
		return every(im, t, func(p *cluster.Partition) bool {
			return slices.Equal(p.Replicas, replicas) && len(p.ISR) == len(replicas) && len(p.Adding)+len(p.Removing)+len(p.Target) == 0
		})
	})
}

// The active dies inside reassignments, some of whose moves wait for their turn:
// each ends with the replicas that were asked for, all in sync, the former ones
// deleted, and at no time with fewer in sync than there were.
func TestTP3ActiveDiesInsideReassignment(t *testing.T) {
	t.Parallel()
	const partitions = 100
	w := newInside(t, 0)
	var brokers []*node
	for id := range cluster.BrokerID(5) {
		brokers = append(brokers, w.broker(id, follows(w.world)))
		w.registered(brokers[id])
	}
	w.create("orders", partitions, 3)
	w.converged(limit)
	w.reassign("orders", partitions, []int32{0, 1, 2}, nil)
	w.await("the first move is at its end", limit, func() bool { return w.moved("orders", 0, 1, 2) })
	most := int32(20)
	for n, target := range [][]int32{{2, 3, 4}, {0, 1, 4}, {3, 1, 2}, {0, 1, 2}} {
		w.kill(time.Second, func() { w.reassign("orders", partitions, target, &most) })
		w.await(fmt.Sprintf("move %d is at its end", n), 2*limit, func() bool { return w.moved("orders", cluster.BrokerIDs(target)...) })
	}
	w.atRest()
	id := cluster.TopicID{}
	w.inTruth("orders", func(_ *cluster.Image, t *cluster.Topic) bool { id = t.ID; return true })
	for _, b := range brokers {
		held := 0
		for _, p := range b.Partitions() {
			if p.Topic == id {
				held++
			}
		}
		if want := map[bool]int{true: partitions}[b.id <= 2]; held != want || len(b.Strays()) > 0 {
			t.Errorf("broker %d holds %d replicas, want %d, and %d strays", b.id, held, want, len(b.Strays()))
		}
	}
	w.neverMoreThan(int(most))
}

// neverMoreThan holds the history against the most partitions that may add
// replicas at once, and what moves may do to what is in sync.
func (w *world) neverMoreThan(most int) {
	w.t.Helper()
	adding := map[string]int{} // by block
	isr := map[string]int{}    // in sync, of those that were there
	worst, seen := 0, false
	for _, c := range w.tape.after(0, func(key string) bool { return len(key) > 0 }) {
		m := &pb.SettingsRecord{}
		if c.KV.Key == w.keys.Settings() && proto.Unmarshal(c.KV.Value, m) == nil && m.GetConfig()[cluster.MaxMoves] == fmt.Sprint(most) {
			seen = true // before, more were allowed
		}
		block := &pb.PartitionBlock{}
		if kind, _, err := w.keys.RecordOf(c.KV.Key); err != nil || kind != "partitions" || c.Deleted || proto.Unmarshal(c.KV.Value, block) != nil {
			continue
		}
		n := 0
		for _, p := range block.GetPartitions() {
			if len(p.GetAdding()) > 0 {
				n++
			}
			name := fmt.Sprint(c.KV.Key, p.GetPartition())
			if p.GetCause() == pb.ChangeCause_CHANGE_CAUSE_REASSIGNMENT && len(p.GetIsr()) < min(isr[name], len(p.GetReplicas())) && len(p.GetIsr()) < 3 {
				w.t.Errorf("revision %d: a move leaves %v in sync of %v", c.KV.ModRev, p.GetIsr(), p.GetReplicas())
			}
			isr[name] = len(p.GetIsr())
		}
		adding[c.KV.Key] = n
		all := 0
		for _, n := range adding {
			all += n
		}
		if seen {
			worst = max(worst, all)
		}
	}
	if !seen || worst > most || worst == 0 {
		w.t.Errorf("%d partitions were adding replicas at once, %d may", worst, most)
	}
}

// With max.moves no revision of etcd has more partitions that are adding
// replicas; while automation stands still none that waits begins, but a failure
// is looked after and an operator's command done.
func TestMaxMovesAndFreeze(t *testing.T) {
	t.Parallel()
	const partitions = 40
	w := newWorld(t)
	w.daemon("a")
	w.active(1, soon)
	var brokers []*node
	for id := range cluster.BrokerID(4) {
		brokers = append(brokers, w.broker(id, follows(w)))
		w.registered(brokers[id])
	}
	w.create("orders", partitions, 2)
	w.create("lone", 1, 4)
	most := int32(5)
	on, off := true, false
	settings := func(r *pb.AlterSettingsRequest) {
		t.Helper()
		if _, err := w.someAdmin(0).AlterSettings(w.call(), r); err != nil {
			t.Fatal(err)
		}
	}
	settings(&pb.AlterSettingsRequest{
		Set:    map[string]string{cluster.MaxMoves: "5", cluster.ImbalanceInterval: "1", cluster.ImbalanceFirst: "0", cluster.ImbalancePercentage: "0"},
		Freeze: &on, Reason: "test",
	})
	w.reassign("orders", partitions, []int32{2, 3}, nil)
	count := func() (n cluster.Moves) {
		w.tape.look(func(im *cluster.Image) { n = im.MovesOfAll() })
		return n
	}
	w.await("what has begun is at its end", limit, func() bool { n := count(); return n.Moving == 0 && n.Leaving == 0 && n.Queued > 0 })
	waits := count().Queued

	// A leader other than the first replica, an election after a failure, a topic.
	if _, err := w.someAdmin(0).ElectLeaders(w.call(), &pb.ElectLeadersRequest{
		Type: pb.ElectionType_ELECTION_TYPE_DESIGNATED, Leader: 3, Topics: []*pb.TopicPartitions{{Topic: "lone"}},
	}); err != nil {
		t.Fatal(err)
	}
	w.create("payments", 1, 2)
	leads := func(id cluster.BrokerID) bool {
		return w.inTruth("lone", func(im *cluster.Image, t *cluster.Topic) bool {
			return every(im, t, func(p *cluster.Partition) bool { return p.Leader == id })
		})
	}
	w.await("broker 3 leads as it was asked to", soon, func() bool { return leads(3) })
	pass(2500 * time.Millisecond) // two intervals
	if !leads(3) || count().Queued != waits || count().Moving != 0 {
		t.Errorf("while automation stands still: broker 3 leads: %v, %+v, %d waited", leads(3), count(), waits)
	}
	brokers[3].kill()
	w.await("another broker leads", limit, func() bool { return !leads(3) && w.offline() == 0 })
	brokers[3] = w.broker(3, follows(w))
	w.registered(brokers[3])
	if count().Queued != waits {
		t.Errorf("%d wait, %d did", count().Queued, waits)
	}
	settings(&pb.AlterSettingsRequest{Freeze: &off, Reason: "test"})
	if !poll(2*limit, func() bool { return w.moved("orders", 2, 3) }) {
		resp, err := w.someAdmin(0).ListPartitionReassignments(w.call(), &pb.ListPartitionReassignmentsRequest{})
		t.Fatalf("not all moves are at their end: %v, %v", resp, err)
	}
	w.await("leaders are balanced", limit, func() (ok bool) {
		w.tape.look(func(im *cluster.Image) { ok = im.HealthOfAll().NotPreferred == 0 })
		return ok
	})
	w.neverMoreThan(int(most))
}
