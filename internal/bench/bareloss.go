package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// bareLoss does in etcd what the loss of a broker does, without anything
// around it.
func (w *world) bareLoss(ctx context.Context, outside *watcher, way bareWay) ([]float64, error) {
	blocks, err := w.copyBlocks(ctx, way.perKey)
	if err != nil {
		return nil, err
	}
	end, err := w.bareStandbys(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
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
	victim, brokers := int32(0), int32(len(w.nodes))
	return measureOne(ctx, "bare broker loss", func(ctx context.Context) (time.Duration, error) {
		victim = victim%brokers + 1
		for _, b := range blocks {
			b.next = proto.Clone(b.record)
		}
		if err := loser.grant(ctx); err != nil {
			return 0, err
		}
		if err := loser.claim(ctx); err != nil {
			return 0, err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		watch := writer.client.Watch(ctx, "/bare/", clientv3.WithPrefix())
		guard, err := w.client.Put(ctx, bareEpoch, "x")
		if err != nil {
			return 0, err
		}
		if err := pause(ctx, settling); err != nil {
			return 0, err
		}
		outside.mark()
		began := time.Now()
		if _, err := w.client.Revoke(ctx, loser.lease); err != nil {
			return 0, err
		}
		for r := range watch {
			if slices.ContainsFunc(r.Events, func(ev *clientv3.Event) bool { return ev.Type == clientv3.EventTypeDelete }) {
				break
			}
		}
		go drain(watch)
		n, err := writer.write(ctx, way, blocks, guard.Header.Revision, func(m proto.Message) bool { return lose(m, victim) })
		if err != nil {
			return 0, err
		}
		committed, err := outside.blocks(ctx, n)
		return committed.at.Sub(began), err
	})
}

// bareStandbys watch the keys of the bare clients, as many as there are standby
// daemons.
func (w *world) bareStandbys(ctx context.Context) (end func(), err error) {
	var all []*contender
	end = func() {
		for _, c := range all {
			c.close()
		}
	}
	for range len(w.daemons) - 1 {
		c, err := w.newContender(ctx)
		if err != nil {
			end()
			return nil, err
		}
		all = append(all, c)
		go drain(c.client.Watch(ctx, "/bare/", clientv3.WithPrefix()))
	}
	return end, nil
}

// drain reads a watch to its end: receiving and decoding is the client's work.
func drain(watch clientv3.WatchChan) {
	for range watch {
	}
}

// copyBlocks puts copies of all blocks, with so many records under a key.
func (w *world) copyBlocks(ctx context.Context, perKey int) ([]*bareBlock, error) {
	list, err := w.store.List(ctx, w.keys.Prefix()+"partitions/", false)
	if err != nil {
		return nil, err
	}
	if _, err := w.client.Delete(ctx, bareBlocks, clientv3.WithPrefix()); err != nil { // of another way
		return nil, err
	}
	var blocks []*bareBlock
	for _, kv := range list.KVs {
		whole := &pb.PartitionBlock{}
		if err := proto.Unmarshal(kv.Value, whole); err != nil {
			return nil, err
		}
		for part := range slices.Chunk(whole.GetPartitions(), perKey) {
			key := fmt.Sprintf("%s%s/%d", bareBlocks, strings.TrimPrefix(kv.Key, w.keys.Prefix()), part[0].GetPartition())
			blocks = append(blocks, &bareBlock{key: key, record: &pb.PartitionBlock{Partitions: part}})
		}
	}
	for _, b := range blocks {
		b.next = b.record
	}
	guard, err := w.client.Put(ctx, bareEpoch, "x")
	if err != nil {
		return nil, err
	}
	writer := &contender{client: w.client}
	_, err = writer.write(ctx, bareWay{perTxn: blocksPerTxn, inFlight: inFlight}, blocks, guard.Header.Revision,
		func(proto.Message) bool { return true })
	if err != nil {
		return nil, fmt.Errorf("copy blocks: %w", err)
	}
	return blocks, nil
}

// lose does what the rule does: the broker leaves the ISR and loses its leads.
// It reports whether that changes the block.
func lose(m proto.Message, victim int32) bool {
	changed := false
	for _, p := range m.(*pb.PartitionBlock).GetPartitions() {
		i := slices.Index(p.GetIsr(), victim)
		if i < 0 {
			continue
		}
		changed = true
		p.Isr = slices.Delete(p.GetIsr(), i, i+1)
		if p.GetLeader() == victim {
			p.Leader = p.GetIsr()[0]
		}
		p.LeaderEpoch++
		p.PartitionEpoch++
	}
	return changed
}
