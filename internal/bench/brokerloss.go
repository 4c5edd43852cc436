package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/controllerd/controllerd/cluster"
)

const catchUp = 200 * time.Millisecond

// lossCase is a cluster that loses one broker after another.
type lossCase struct{ brokers, topics, partitions, blockSize int }

var brokerLossRow = row{
	name: "brokerloss",
	what: `
One of 5 brokers is killed and its session's lease revoked, with three daemons and 10,000 partitions of 3 replicas, of which
6,000 have one there: from sending the revocation until the last record is committed, as the watch of a process of its own
sees it, and until the last handler of a live broker is called. Each round another broker. Bare: from the same signal, a
client that has the same blocks at hand changes and encodes them and puts them under as many compares, 16 transactions in
flight, beside as many watchers.

What holds it back is the work of two cores that all share, 165 ms in all: 75 ms of the four brokers, half of it in taking
commands through the gate; 40 ms of the active, a quarter of it in applying the watch and a quarter in deciding and encoding
before the first transaction leaves; 30 ms of the two standbys; 20 ms of etcd. The next step is to let the first
transactions of a plan leave while the rest of it is still decided.`,
	run: func(ctx context.Context, b *bench) ([]figure, error) {
		return brokerLoss(ctx, b, lossCase{brokers: 5, topics: 10, partitions: b.scaled(1000, 1)})
	},
}

var brokerLoss100kRow = row{
	name: "brokerloss100k",
	what: `
As brokerloss, with 100,000 partitions, of which 60,000 have a replica on the broker that is lost.

What holds it back: they take four plans, one after the other. Nothing of a plan leaves before it is made, which takes up to
42 ms (` + "`go test ./controller -run '^$' -bench LongestStep`" + `), and the next one waits until the last transaction of this
one is seen; meanwhile commands to brokers are built and sent on the same two cores.`,
	run: func(ctx context.Context, b *bench) ([]figure, error) {
		return brokerLoss(ctx, b, lossCase{brokers: 5, topics: 10, partitions: b.scaled(10_000, 1)})
	},
}

var brokerLoss20Row = row{
	name: "brokerloss20",
	what: `
As brokerloss, with 100,000 partitions on 20 brokers, so that 15,000 have a replica on the one that is lost, in nearly all
of the blocks.`,
	run: func(ctx context.Context, b *bench) ([]figure, error) {
		return brokerLoss(ctx, b, lossCase{brokers: 20, topics: 10, partitions: b.scaled(10_000, 1)})
	},
}

func brokerLoss(ctx context.Context, b *bench, c lossCase) ([]figure, error) {
	w, outside, err := newLossWorld(ctx, b, c)
	if err != nil {
		return nil, err
	}
	defer w.close()
	defer outside.close()
	ours, err := w.lossSeries(ctx, outside)
	if err != nil {
		return nil, err
	}
	bare, err := w.bareLoss(ctx, outside, bareWay{perKey: wholeBlocks, perTxn: blocksPerTxn, inFlight: inFlight})
	if err != nil {
		return nil, err
	}
	return []figure{
		{what: "until the last record is committed", ours: ours[0], bare: bare, times: 2},
		{what: "until the last handler is called", ours: ours[1], bare: bare, times: 3},
	}, nil
}

// newLossWorld is a cluster with three daemons in which all replicas are in
// sync, and a process that watches its etcd.
func newLossWorld(ctx context.Context, b *bench, c lossCase) (w *world, outside *watcher, err error) {
	if w, err = newWorld(ctx, b, 3); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if outside, err = startWatcher(ctx, w.addr); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			outside.close()
		}
	}()
	for id := range c.brokers {
		if err = w.startNode(ctx, cluster.BrokerID(id+1), catchUp); err != nil {
			return nil, nil, err
		}
	}
	if err = w.createTopics(ctx, topicsOf(c.topics, c.partitions, c.blockSize)); err != nil {
		return nil, nil, err
	}
	return w, outside, w.restore(ctx)
}

// lossSeries is how long it takes until a loss is committed, and until the last
// handler is called.
func (w *world) lossSeries(ctx context.Context, outside *watcher) ([][]float64, error) {
	victim, brokers := cluster.BrokerID(0), cluster.BrokerID(len(w.nodes))
	ours, err := measure(ctx, "broker loss", func(ctx context.Context) ([]time.Duration, error) {
		victim = victim%brokers + 1
		return w.loseBroker(ctx, outside, victim)
	})
	if err != nil {
		return nil, err
	}
	return ours, w.checkOrder()
}

// restore waits until all replicas are in sync, and all brokers know it.
func (w *world) restore(ctx context.Context) error {
	err := w.await(ctx, "all replicas to be in sync", func(im *cluster.Image) bool {
		whole := len(im.Brokers) == len(w.nodes)
		for _, t := range im.Topics {
			im.Partitions(t, func(_ cluster.PartitionID, p *cluster.Partition) {
				whole = whole && p != nil && len(p.ISR) == len(p.Replicas)
			})
		}
		return whole
	})
	if err != nil {
		return err
	}
	return w.settle(ctx)
}

// loseBroker kills a broker and ends its session, and brings it back.
func (w *world) loseBroker(ctx context.Context, outside *watcher, victim cluster.BrokerID) ([]time.Duration, error) {
	w.nodes[victim].Kill()
	_ = w.nodes[victim].Wait()
	delete(w.nodes, victim)
	if err := pause(ctx, settling); err != nil {
		return nil, err
	}
	var gone *cluster.Broker
	var blocks, handlers int
	w.look(func(im *cluster.Image) {
		gone, blocks, handlers = im.Brokers[victim], blocksOf(im, victim), handlersWithout(im, victim)
	})
	outside.mark()
	w.countCalls()
	w.rest()
	defer w.resume()
	began := time.Now()
	if err := w.store.Revoke(ctx, gone.Lease); err != nil {
		return nil, err
	}
	committed, err := outside.blocks(ctx, blocks)
	if err != nil {
		return nil, err
	}
	called, err := w.awaitCalls(ctx, handlers)
	if err != nil {
		return nil, err
	}
	w.resume()
	if err := w.checkLoss(ctx, victim, committed.rev); err != nil {
		return nil, err
	}
	if err := w.startNode(ctx, victim, catchUp); err != nil {
		return nil, err
	}
	return []time.Duration{committed.at.Sub(began), called.Sub(began)}, w.restore(ctx)
}

// blocksOf is the number of blocks that the loss of a broker changes.
func blocksOf(im *cluster.Image, victim cluster.BrokerID) int {
	blocks := map[cluster.BlockID]bool{}
	im.Hosted(victim, func(t *cluster.Topic, id cluster.PartitionID, p *cluster.Partition) {
		if slices.Contains(p.ISR, victim) {
			blocks[cluster.BlockOf(id, t.BlockSize())] = true
		}
	})
	return len(blocks)
}

// handlersWithout is the number of handlers that the loss of a broker calls:
// those of all other replicas of what it hosted.
func handlersWithout(im *cluster.Image, victim cluster.BrokerID) int {
	n := 0
	im.Hosted(victim, func(_ *cluster.Topic, _ cluster.PartitionID, p *cluster.Partition) { n += len(p.Replicas) - 1 })
	return n
}

// checkLoss fails if the broker is still in an ISR, or if a block was changed
// after the revision that was taken for the last.
func (w *world) checkLoss(ctx context.Context, victim cluster.BrokerID, last int64) error {
	if err := w.await(ctx, "the last record", func(im *cluster.Image) bool { return int64(im.Rev) >= last }); err != nil {
		return err
	}
	var wrong error
	w.look(func(im *cluster.Image) {
		im.Hosted(victim, func(t *cluster.Topic, id cluster.PartitionID, p *cluster.Partition) {
			block := im.Block(cluster.BlockOf(id, t.BlockSize()))
			if slices.Contains(p.ISR, victim) || int64(block.ModRev) > last {
				wrong = fmt.Errorf("%s-%d at revision %d has ISR %v without broker %d", t.Name, id.Index, block.ModRev, p.ISR, victim)
			}
		})
	})
	return wrong
}
