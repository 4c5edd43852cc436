package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

var alterLoadRow = row{
	name: "alterload",
	what: `
AlterPartition while very many other partitions change: a cluster as in brokerloss100k loses one broker, while 64 callers, each
with a partition in another block that has no replica there, always have one change of its ISR outstanding. The time until a
change is answered, of those that were sent between the revocation and the last record of the loss; and of those in the second
before.`,
	run: func(ctx context.Context, b *bench) ([]figure, error) {
		w, outside, err := newLossWorld(ctx, b, lossCase{brokers: 5, topics: 10, partitions: b.scaled(10_000, 1)})
		if err != nil {
			return nil, err
		}
		defer w.close()
		defer outside.close()
		victim := cluster.BrokerID(0)
		took, err := measure(ctx, "broker loss under load", func(ctx context.Context) ([]time.Duration, error) {
			victim = victim%5 + 1
			return w.loseUnderLoad(ctx, victim)
		})
		if err != nil {
			return nil, err
		}
		return []figure{
			{what: "until the last record is committed", ours: took[0]},
			{what: "before the loss, median of the changes", ours: took[1]},
			{what: "before the loss, 99 of 100 changes", ours: took[2]},
			{what: "during the loss, median of the changes", ours: took[3]},
			{what: "during the loss, 99 of 100 changes", ours: took[4]},
		}, nil
	},
}

// change is one AlterPartition.
type change struct{ sent, answered time.Time }

// loseUnderLoad kills a broker and ends its session while callers change other
// partitions.
func (w *world) loseUnderLoad(ctx context.Context, victim cluster.BrokerID) ([]time.Duration, error) {
	w.nodes[victim].Kill()
	_ = w.nodes[victim].Wait()
	delete(w.nodes, victim)
	var gone *cluster.Broker
	var without []cluster.PartitionID
	w.look(func(im *cluster.Image) {
		gone, without = im.Brokers[victim], partitionsWithout(im, victim)
	})
	if len(without) < outstanding {
		return nil, errors.New("too few partitions without a replica on the broker")
	}
	stop, changes := w.keepFlipping(ctx, without)
	defer stop()
	began := time.Now()
	if err := pause(ctx, time.Second); err != nil {
		return nil, err
	}
	lost := time.Now()
	if err := w.store.Revoke(ctx, gone.Lease); err != nil {
		return nil, err
	}
	// The callers write some of the blocks too, so the end is seen in the counts,
	// in which they make a difference of 64 at most.
	err := w.await(ctx, "the loss to be committed", func(im *cluster.Image) bool {
		return im.HealthOfAll().UnderReplicated >= im.Load(victim).Replicas
	})
	if err != nil {
		return nil, err
	}
	committed := time.Now()
	stop()
	before, during := within(changes(), began, lost), within(changes(), lost, committed)
	if len(before) == 0 || len(during) == 0 {
		return nil, errors.New("no change was answered")
	}
	if err := w.startNode(ctx, victim, catchUp); err != nil {
		return nil, err
	}
	return []time.Duration{
		committed.Sub(lost), share(before, 0.5), share(before, 0.99), share(during, 0.5), share(during, 0.99),
	}, w.restore(ctx)
}

// partitionsWithout are partitions in different blocks that have no replica on
// a broker.
func partitionsWithout(im *cluster.Image, victim cluster.BrokerID) []cluster.PartitionID {
	var out []cluster.PartitionID
	for _, t := range im.SortedTopics() {
		last := int32(-1)
		im.Partitions(t, func(id cluster.PartitionID, p *cluster.Partition) {
			if block := id.Index / t.BlockSize(); len(out) < outstanding && block != last && p != nil && !slices.Contains(p.Replicas, victim) {
				out, last = append(out, id), block
			}
		})
	}
	return out
}

// keepFlipping has one change of each partition outstanding until stop, which
// leaves the ISRs whole. A change that is refused is asked anew, from the state
// as it is.
func (w *world) keepFlipping(ctx context.Context, ids []cluster.PartitionID) (stop func(), changes func() []change) {
	admin, _, err := w.active(ctx)
	if err != nil {
		return func() {}, func() []change { return nil }
	}
	service := pb.NewBrokerServiceClient(w.conns[admin])
	ended := make(chan struct{})
	var wg sync.WaitGroup
	all := make([][]change, len(ids))
	for i, id := range ids {
		wg.Go(func() {
			var r *pb.AlterPartitionRequest
			for ctx.Err() == nil {
				if r == nil {
					w.look(func(im *cluster.Image) { r = requestFor(im, id) })
				}
				shrinks := r == nil || len(r.GetTopics()[0].GetPartitions()[0].GetNewIsr()) == 1
				select {
				case <-ended:
					if shrinks {
						return
					}
				default:
				}
				if r == nil {
					_ = pause(ctx, time.Millisecond)
					continue
				}
				c := change{sent: time.Now()}
				resp, err := service.AlterPartition(ctx, r)
				c.answered = time.Now()
				if err != nil || resp.GetTopics()[0].GetPartitions()[0].GetError() != "" {
					r = nil
					_ = pause(ctx, time.Millisecond)
					continue
				}
				all[i] = append(all[i], c)
				r.Topics[0].Partitions[0] = nextEntry(resp.GetTopics()[0].GetPartitions()[0].GetState())
			}
		})
	}
	stop = sync.OnceFunc(func() {
		close(ended)
		wg.Wait()
	})
	return stop, func() []change { return slices.Concat(all...) }
}

// within is how long the changes took that were sent in a time.
func within(changes []change, from, to time.Time) []time.Duration {
	var out []time.Duration
	for _, c := range changes {
		if c.sent.After(from) && c.sent.Before(to) {
			out = append(out, c.answered.Sub(c.sent))
		}
	}
	slices.Sort(out)
	return out
}

// share is the time that such a share of the sorted times does not exceed.
func share(sorted []time.Duration, part float64) time.Duration {
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}
