package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

const (
	handoverBound  = 25 * time.Millisecond
	handoverTopics = 10
)

var handoverRow = row{
	name: "handover",
	what: `
Planned hand-over with two daemons and three brokers: from sending ` + "`controller resign`" + ` to the active daemon until a
broker has obeyed a command of the next epoch, and until an AlterPartition that was outstanding all the time is committed
under it. Its caller sends it again at once when it is refused; the SDK's callers wait 10 ms or more between two attempts.
Bare: the holder deletes its key, the other's watch fires, one transaction takes the seat and raises the epoch.`,
	run: func(ctx context.Context, b *bench) ([]figure, error) {
		figures, _, err := handovers(ctx, b, b.scaled(1_000, 1), b.scaled(perTopic/10, 1))
		return figures, err
	},
}

var handover1mRow = row{
	name: "handover1m",
	what: `
As handover, with 1,000,000 partitions beside 10,000. The last line compares the two: it has the second as bare.`,
	run: func(ctx context.Context, b *bench) ([]figure, error) {
		figures, both, err := handovers(ctx, b, b.scaled(1_000, 1), b.scaled(perTopic, 1))
		if err != nil {
			return nil, err
		}
		return append(figures, figure{what: "until both, the many as against the few", ours: both[1], bare: both[0], times: 2}), nil
	},
}

// handovers measures one after the other with so many partitions in each of ten
// topics. both is how long it takes until a broker has obeyed and an
// AlterPartition is committed.
func handovers(ctx context.Context, b *bench, partitions ...int) (figures []figure, both [][]float64, err error) {
	for _, each := range partitions {
		ours, bare, err := handoverOf(ctx, b, handoverTopics, each)
		if err != nil {
			return nil, nil, err
		}
		n := handoverTopics * each
		figures = append(figures,
			figure{what: fmt.Sprintf("%d partitions: until a broker obeys", n), ours: ours[0], bare: bare},
			figure{what: fmt.Sprintf("%d partitions: until the AlterPartition is committed", n), ours: ours[1], bare: bare},
			figure{what: fmt.Sprintf("%d partitions: until both", n), ours: ours[2], bare: bare, below: handoverBound.Seconds()})
		both = append(both, ours[2])
	}
	return figures, both, nil
}

func handoverOf(ctx context.Context, b *bench, topics, partitions int) (ours [][]float64, bare []float64, err error) {
	w, err := newWorld(ctx, b, 2)
	if err != nil {
		return nil, nil, err
	}
	defer w.close()
	if err := w.populate(ctx, 3, topics, partitions); err != nil {
		return nil, nil, err
	}
	alter, err := w.startAlter(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer alter.stop()
	ours, err = measure(ctx, "hand-over", func(ctx context.Context) ([]time.Duration, error) { return w.handOver(ctx, alter) })
	if err != nil {
		return nil, nil, err
	}
	alter.stop()
	if err := w.checkOrder(); err != nil {
		return nil, nil, err
	}
	bare, err = w.bareHandOver(ctx)
	return ours, bare, err
}

// populate starts brokers and creates topics with three replicas.
func (w *world) populate(ctx context.Context, brokers, topics, partitions int) error {
	for id := range brokers {
		if err := w.startNode(ctx, cluster.BrokerID(id+1), never); err != nil {
			return err
		}
	}
	if err := w.createTopics(ctx, topicsOf(topics, partitions, 0)); err != nil {
		return err
	}
	return w.settle(ctx)
}

// settle waits until every broker has been told all that etcd holds, and the
// same candidates stand as there are daemons, and a while longer.
func (w *world) settle(ctx context.Context) error {
	for {
		began := time.Now()
		if w.caughtUp() {
			break
		}
		// To look at a million partitions takes a while, and a core.
		if err := pause(ctx, max(10*time.Millisecond, 5*time.Since(began))); err != nil {
			return fmt.Errorf("brokers do not come to rest: %w", err)
		}
	}
	return pause(ctx, settling)
}

// caughtUp reports whether every replica on every node is at etcd's leader
// epoch.
func (w *world) caughtUp() bool {
	ok := true
	w.look(func(im *cluster.Image) {
		for _, n := range w.nodes {
			n.mu.Lock()
			im.Hosted(n.id, func(_ *cluster.Topic, id cluster.PartitionID, p *cluster.Partition) {
				le, told := n.applied[id]
				ok = ok && told && le == p.LeaderEpoch
			})
			n.mu.Unlock()
		}
	})
	return ok
}

func (w *world) handOver(ctx context.Context, alter *alterer) ([]time.Duration, error) {
	old, epoch, err := w.active(ctx)
	if err != nil {
		return nil, err
	}
	resigned := make(chan error, 1)
	committed := alter.under(epoch + 1)
	began := time.Now()
	go func() {
		_, err := pb.NewAdminServiceClient(w.conns[old]).ResignController(ctx, &pb.ResignControllerRequest{Reason: "bench"})
		resigned <- err
	}()
	obeyed, err := w.awaitCommand(ctx, epoch+1)
	if err != nil {
		return nil, err
	}
	var altered outcome
	select {
	case altered = <-committed:
	case <-ctx.Done():
		return nil, fmt.Errorf("waited for an AlterPartition of epoch %d in vain", epoch+1)
	}
	if altered.err != nil {
		return nil, altered.err
	}
	if err := <-resigned; err != nil {
		return nil, fmt.Errorf("resign: %w", err)
	}
	command, both := obeyed.Sub(began), max(obeyed.Sub(began), altered.at.Sub(began))
	// The one who resigned leaves the seat to others for a second, and a
	// broker needs some time to hear all from the next one.
	return []time.Duration{command, altered.at.Sub(began), both}, pause(ctx, 3*time.Second)
}

func (w *world) bareHandOver(ctx context.Context) ([]float64, error) {
	var pair [2]*contender
	for i := range pair {
		var err error
		if pair[i], err = w.newContender(ctx); err != nil {
			return nil, err
		}
		defer pair[i].close()
	}
	if err := pair[0].claim(ctx); err != nil {
		return nil, err
	}
	return measureOne(ctx, "bare hand-over", func(ctx context.Context) (time.Duration, error) {
		for _, c := range pair {
			if _, err := c.client.KeepAliveOnce(ctx, c.lease); err != nil {
				return 0, err
			}
		}
		done, err := pair[1].claimWhenEmpty(ctx)
		if err != nil {
			return 0, err
		}
		began := time.Now()
		if _, err := pair[0].client.Txn(ctx).Then(clientv3.OpDelete(bareSeat), clientv3.OpPut(bareTerm, "x")).Commit(); err != nil {
			return 0, err
		}
		taken := <-done
		slices.Reverse(pair[:])
		return taken.at.Sub(began), taken.err
	})
}
