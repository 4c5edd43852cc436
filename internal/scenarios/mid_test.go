package scenarios

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

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
