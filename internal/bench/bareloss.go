package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// blocksPerTxn are those that fit beside two conditions of a guard.
const (
	blocksPerTxn = 126
	inFlight     = 16
)

// bareLoss does in etcd what the loss of a broker does, without anything
// around it.
func (w *world) bareLoss(ctx context.Context, outside *watcher) ([]time.Duration, error) {
	blocks, err := w.copyBlocks(ctx)
	if err != nil {
		return nil, err
	}
	for range 2 { // as many as standby daemons
		c, err := w.newContender(ctx)
		if err != nil {
			return nil, err
		}
		defer c.close()
		go drain(c.client.Watch(ctx, "/bare/", clientv3.WithPrefix()))
	}
	loser, err := w.newContender(ctx)
	if err != nil {
		return nil, err
	}
	defer loser.close()
	writer, err := w.newContender(ctx)
	if err != nil {
		return nil, err
	}
	defer writer.close()
	victim := int32(0)
	series, err := measure(ctx, "bare broker loss", func(ctx context.Context) ([]time.Duration, error) {
		victim = victim%lossBrokers + 1
		for _, b := range blocks {
			b.next = proto.CloneOf(b.record)
		}
		if err := loser.grant(ctx); err != nil {
			return nil, err
		}
		if err := loser.claim(ctx); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		watch := writer.client.Watch(ctx, "/bare/", clientv3.WithPrefix())
		guard, err := w.client.Put(ctx, bareEpoch, "x")
		if err != nil {
			return nil, err
		}
		if err := pause(ctx, settling); err != nil {
			return nil, err
		}
		outside.mark()
		began := time.Now()
		if _, err := w.client.Revoke(ctx, loser.lease); err != nil {
			return nil, err
		}
		for r := range watch {
			if slices.ContainsFunc(r.Events, func(ev *clientv3.Event) bool { return ev.Type == clientv3.EventTypeDelete }) {
				break
			}
		}
		go drain(watch)
		if err := writer.rewrite(ctx, blocks, victim, guard.Header.Revision); err != nil {
			return nil, err
		}
		committed, err := outside.blocks(ctx, len(blocks))
		return []time.Duration{committed.at.Sub(began)}, err
	})
	if err != nil {
		return nil, err
	}
	return series[0], nil
}

// drain reads a watch to its end: receiving and decoding is the client's work.
func drain(watch clientv3.WatchChan) {
	for range watch {
	}
}

// bareBlock is a block under a key of the bare client.
type bareBlock struct {
	key    string
	rev    int64
	record *pb.PartitionBlock
	next   *pb.PartitionBlock // a copy, to be changed
}

// copyBlocks puts copies of all blocks.
func (w *world) copyBlocks(ctx context.Context) ([]*bareBlock, error) {
	list, err := w.store.List(ctx, w.keys.Prefix()+"partitions/", false)
	if err != nil {
		return nil, err
	}
	var blocks []*bareBlock
	for _, kv := range list.KVs {
		b := &bareBlock{key: bareBlocks + fmt.Sprint(len(blocks)), record: &pb.PartitionBlock{}}
		if err := proto.Unmarshal(kv.Value, b.record); err != nil {
			return nil, err
		}
		resp, err := w.client.Put(ctx, b.key, string(kv.Value))
		if err != nil {
			return nil, err
		}
		b.rev = resp.Header.Revision
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// rewrite takes a broker out of all blocks and puts them, in transactions as
// large as ours. One goroutine changes and encodes, as in the loop.
func (c *contender) rewrite(ctx context.Context, blocks []*bareBlock, victim int32, guard int64) error {
	slots := make(chan struct{}, inFlight)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for chunk := range slices.Chunk(blocks, blocksPerTxn) {
		conds := []clientv3.Cmp{
			clientv3.Compare(clientv3.ModRevision(bareEpoch), "=", guard),
			clientv3.Compare(clientv3.ModRevision(bareSeat), "=", 0),
		}
		var ops []clientv3.Op
		for _, b := range chunk {
			lose(b.next, victim)
			conds = append(conds, clientv3.Compare(clientv3.ModRevision(b.key), "=", b.rev))
			ops = append(ops, clientv3.OpPut(b.key, string(cluster.Encode(b.next))))
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			resp, err := c.client.Txn(ctx).If(conds...).Then(ops...).Commit()
			if err == nil && !resp.Succeeded {
				err = errors.New("a condition of the bare client failed")
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			for _, b := range chunk {
				b.rev = resp.Header.Revision
			}
		})
	}
	wg.Wait()
	return failed
}

// lose does what the rule does: the broker leaves the ISR and loses its leads.
func lose(block *pb.PartitionBlock, victim int32) {
	for _, p := range block.GetPartitions() {
		i := slices.Index(p.GetIsr(), victim)
		if i < 0 {
			continue
		}
		p.Isr = slices.Delete(p.GetIsr(), i, i+1)
		if p.GetLeader() == victim {
			p.Leader = p.GetIsr()[0]
		}
		p.LeaderEpoch++
		p.PartitionEpoch++
	}
}
