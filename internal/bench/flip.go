package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

const (
	outstanding = 64  // changes at a time
	inARow      = 100 // changes that each caller has committed in a round
)

var alterRow = row{
	name: "alter",
	what: `
AlterPartition of one partition each, with two daemons, three brokers and 64 blocks of 16 partitions: 64 callers, each with a
partition in another block, that always have one change of its ISR outstanding, 100 changes each; and one caller alone, 100
changes in a row. A change counts when it is answered, that is when it is committed. Bare: as many callers, each of which
changes, encodes and puts its block under a guard and the condition that it is the one known, one transaction outstanding,
through one client.

What holds it back, from a profile of the daemon: a change costs it a call of its own, which the bare client does not have.
Of its time a quarter goes to the owner (a twelfth to making plans, as much to taking in the watch), a sixth to serving the
calls, a tenth to transactions; the rest to reading, writing and waking. The next step is to answer the changes of one broker
that are decided together by one message.`,
	run: alterRows,
}

func alterRows(ctx context.Context, b *bench) ([]figure, error) {
	w, err := newWorld(ctx, b, 2)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if err := w.populate(ctx, 3, 1, outstanding*cluster.DefaultBlockSize); err != nil {
		return nil, err
	}
	many, err := w.flipSeries(ctx, outstanding)
	if err != nil {
		return nil, err
	}
	one, err := w.flipSeries(ctx, 1)
	if err != nil {
		return nil, err
	}
	end, err := w.bareStandbys(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	blocks, err := w.copyBlocks(ctx, wholeBlocks)
	if err != nil {
		return nil, err
	}
	bareMany, err := w.bareFlips(ctx, blocks)
	if err != nil {
		return nil, err
	}
	bareOne, err := w.bareFlips(ctx, blocks[:1])
	if err != nil {
		return nil, err
	}
	n := outstanding * inARow
	return []figure{
		{what: "64 outstanding: changes", unit: perSecond, ours: rates(n, many), bare: rates(n, bareMany), least: 1},
		{what: "one alone: mean of 100", ours: perChange(one), bare: perChange(bareOne)},
	}, nil
}

// perChange is the time that one change took, of those in a row.
func perChange(took []float64) []float64 {
	out := make([]float64, len(took))
	for i, s := range took {
		out[i] = s / inARow
	}
	return out
}

// flipSeries is how long n callers take, of partitions in different blocks.
func (w *world) flipSeries(ctx context.Context, n int) ([]float64, error) {
	admin, _, err := w.active(ctx)
	if err != nil {
		return nil, err
	}
	service := pb.NewBrokerServiceClient(w.conns[admin])
	var requests []*pb.AlterPartitionRequest
	w.look(func(im *cluster.Image) {
		topic := im.SortedTopics()[0]
		for i := range n {
			requests = append(requests, requestFor(im, cluster.PartitionID{Topic: topic.ID, Index: int32(i) * topic.BlockSize()}))
		}
	})
	return measureOne(ctx, fmt.Sprintf("%d outstanding", n), func(ctx context.Context) (time.Duration, error) {
		return together(n, func(i int) error { return flip(ctx, service, requests[i]) })
	})
}

// together is how long n callers take, and what failed first.
func together(n int, call func(i int) error) (time.Duration, error) {
	var wg sync.WaitGroup
	failed := make(chan error, n)
	began := time.Now()
	for i := range n {
		wg.Go(func() {
			if err := call(i); err != nil {
				failed <- err
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	select {
	case err := <-failed:
		return 0, err
	default:
		return took, nil
	}
}

// flip takes followers out of the ISR and puts them in again, in turn.
func flip(ctx context.Context, service pb.BrokerServiceClient, r *pb.AlterPartitionRequest) error {
	for range inARow {
		resp, err := service.AlterPartition(ctx, r)
		if err != nil {
			return err
		}
		result := resp.GetTopics()[0].GetPartitions()[0]
		if result.GetError() != "" {
			return fmt.Errorf("alter partition %d: %s: %s", result.GetPartition(), result.GetError(), result.GetMessage())
		}
		r.Topics[0].Partitions[0] = nextEntry(result.GetState())
	}
	return nil
}

// bareFlips is how long as many bare callers take as there are blocks.
func (w *world) bareFlips(ctx context.Context, blocks []*bareBlock) ([]float64, error) {
	guard, err := w.client.Put(ctx, bareEpoch, "x")
	if err != nil {
		return nil, err
	}
	caller, err := w.newContender(ctx)
	if err != nil {
		return nil, err
	}
	defer caller.close()
	return measureOne(ctx, fmt.Sprintf("bare %d outstanding", len(blocks)), func(ctx context.Context) (time.Duration, error) {
		return together(len(blocks), func(i int) error {
			for range inARow {
				_, err := caller.write(ctx, bareWay{perTxn: 1, inFlight: 1}, blocks[i:i+1], guard.Header.Revision, bareFlip)
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// bareFlip changes the ISR of the first partition of a block.
func bareFlip(m proto.Message) bool {
	p := m.(*pb.PartitionBlock).GetPartitions()[0]
	if len(p.GetIsr()) == len(p.GetReplicas()) {
		p.Isr = []int32{p.GetLeader()}
	} else {
		p.Isr = p.GetReplicas()
	}
	p.PartitionEpoch++
	return true
}
