package scenarios

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// stopping makes a broker stop in order when the function that it returns is
// called, which waits until it has.
func stopping(w *world) (brokerOption, func(*node)) {
	ends := map[*node]context.CancelFunc{}
	return func(n *node, cfg *broker.Config) {
			ctx, cancel := context.WithCancel(context.Background())
			ends[n] = cancel
			n.ctx = ctx
			cfg.ShutdownTimeout = limit
		}, func(n *node) {
			w.t.Helper()
			ends[n]()
			if err := n.Wait(); err != nil {
				w.t.Errorf("broker %d ended with %v", n.id, err)
			}
			n.mu.Lock()
			n.ended = true
			n.mu.Unlock()
		}
}

// Kafka's testControlledShutdown: a partition on 0, 1 and 2 loses 2, then 1, then
// 0. Broker 0 leads all the time, the ISR is [0 1] after the first, and the last
// one stays in it. No broker that stops is missed for a moment: who leads has been
// told before it is gone.
func TestControlledShutdown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a")
	w.daemon("b")
	option, stop := stopping(w)
	var brokers []*node
	for id := range cluster.BrokerID(4) {
		opts := []brokerOption{option}
		if id == 3 {
			opts = nil // it sees what the others leave
		}
		brokers = append(brokers, w.broker(id, opts...))
		w.registered(brokers[id])
	}
	resp, err := w.someAdmin(0).CreateTopics(w.call(), &pb.CreateTopicsRequest{Topics: []*pb.NewTopic{{Name: "test", Assignments: []*pb.ReplicaAssignment{{Replicas: []int32{0, 1, 2}}}}}})
	if err != nil || resp.GetResults()[0].GetError() != "" {
		t.Fatal(resp, err)
	}
	w.converged(soon)
	for _, step := range []struct {
		stops  cluster.BrokerID
		leader cluster.BrokerID
		isr    []cluster.BrokerID
	}{{2, 0, ids(0, 1)}, {1, 0, ids(0)}, {0, cluster.NoLeader, ids(0)}} {
		began := time.Now()
		if step.stops == 0 {
			go brokers[0].kill() // nobody can take over: it would wait for that
		} else {
			stop(brokers[step.stops])
		}
		w.await(fmt.Sprintf("broker %d has left", step.stops), limit, func() (gone bool) {
			w.tape.look(func(im *cluster.Image) { gone = im.Brokers[step.stops] == nil })
			return gone
		})
		w.await("the rest is as it should be", soon, func() bool {
			return w.inTruth("test", func(im *cluster.Image, t *cluster.Topic) bool {
				return every(im, t, func(p *cluster.Partition) bool { return p.Leader == step.leader && slices.Equal(p.ISR, step.isr) })
			})
		})
		t.Logf("broker %d has left after %v", step.stops, time.Since(began))
	}
}

// Kafka's testControllerRejectControlledShutdownRequestWithStaleBrokerEpoch.
func TestControllerRejectControlledShutdownRequestWithStaleBrokerEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.daemon("a")
	b := w.startBrokers(1)[0]
	w.create("orders", 2, 1)
	_, err := pb.NewBrokerServiceClient(a.conn).ControlledShutdown(w.call(), &pb.ControlledShutdownRequest{BrokerId: 0, BrokerEpoch: int64(b.Epoch()) - 1})
	if rpc.ReasonOf(err) != cluster.StaleBrokerEpoch {
		t.Errorf("answered %v", err)
	}
	resp, err := pb.NewBrokerServiceClient(a.conn).ControlledShutdown(w.call(), &pb.ControlledShutdownRequest{BrokerId: 0, BrokerEpoch: int64(b.Epoch())})
	if err != nil || resp.GetRemaining() != 0 { // nobody waits for partitions with one replica
		t.Errorf("answered %v, %v", resp, err)
	}
}

// drain asks for it until it is answered.
func (w *world) drain(id cluster.BrokerID, cancel bool) {
	insist(w, "drain", func(ctx context.Context, a pb.AdminServiceClient) (*pb.DrainBrokerResponse, error) {
		return a.DrainBroker(ctx, &pb.DrainBrokerRequest{BrokerId: int32(id), Cancel: cancel, Reason: "test"})
	}, func(resp *pb.DrainBrokerResponse) error {
		if resp.GetRemaining() > 0 {
			return fmt.Errorf("%v remain", resp.GetPartitions())
		}
		return nil
	})
}

// The active dies inside drains and their ends: a broker that drains leads
// nothing and is in no ISR when that was answered, and after the end it leads what
// it led.
func TestActiveDiesInsideDrain(t *testing.T) {
	t.Parallel()
	w := newInside(t, 0)
	for id := range cluster.BrokerID(3) {
		w.registered(w.broker(id, follows(w.world)))
	}
	w.create("orders", insidePartitions, 3)
	w.converged(limit)
	if _, err := w.someAdmin(0).AlterSettings(w.call(), &pb.AlterSettingsRequest{
		Set: map[string]string{cluster.ImbalanceInterval: "1", cluster.ImbalanceFirst: "0", cluster.ImbalancePercentage: "0"},
	}); err != nil {
		t.Fatal(err)
	}
	took := firstGuess
	for n := range rounds {
		id := cluster.BrokerID(n % 3)
		took = w.kill(took, func() { w.drain(id, false) })
		w.await("the broker leads nothing", limit, func() bool {
			return w.inTruth("orders", func(im *cluster.Image, t *cluster.Topic) bool {
				return every(im, t, func(p *cluster.Partition) bool {
					return p.Leader != id && p.Leader != cluster.NoLeader && !slices.Contains(p.ISR, id)
				})
			})
		})
		w.drain(id, true)
		w.await("all is as it was", 2*limit, func() bool {
			return w.inTruth("orders", func(im *cluster.Image, t *cluster.Topic) bool {
				return every(im, t, func(p *cluster.Partition) bool { return p.Leader == p.Replicas[0] && len(p.ISR) == 3 })
			})
		})
	}
	w.atRest()
}
