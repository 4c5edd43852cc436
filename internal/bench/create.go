package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

const createBrokers = 5

var createRow = row{
	name: "create",
	what: `
Topics with 3 replicas are created by one request, with three daemons and 5 brokers, each round in a cluster of its own:
from sending the request until the last block or record is committed, as the watch of a process of its own sees it, until
the request is answered, and until the last handler of a broker is called. 1 topic of 100,000 partitions, 1,000 of 100, and
25,000 of 2, which are 50,000 partitions. Bare: a client that has the same blocks and records at hand encodes them and puts
them under as many conditions, blocks first, 16 transactions in flight, beside as many watchers.`,
	run: createRows,
}

func createRows(ctx context.Context, b *bench) ([]figure, error) {
	var figures []figure
	for _, size := range []struct{ topics, partitions int }{
		{1, b.scaled(100_000, 1)}, {b.scaled(1_000, 1), 100}, {b.scaled(25_000, 1), 2},
	} {
		what := fmt.Sprintf("%d of %d", size.topics, size.partitions)
		series, err := measure(ctx, "create "+what, func(ctx context.Context) ([]time.Duration, error) {
			return createOnce(ctx, b, topicsOf(size.topics, size.partitions, 0))
		})
		if err != nil {
			return nil, err
		}
		bare := series[3]
		figures = append(figures,
			figure{what: what + ": until the last record is committed", ours: series[0], bare: bare},
			figure{what: what + ": until the request is answered", ours: series[1], bare: bare},
			figure{what: what + ": until the last handler is called", ours: series[2], bare: bare})
	}
	return figures, nil
}

// createOnce creates topics in a new cluster and has a bare client do the same.
func createOnce(ctx context.Context, b *bench, topics []*pb.NewTopic) ([]time.Duration, error) {
	w, err := newWorld(ctx, b, 3)
	if err != nil {
		return nil, err
	}
	defer w.close()
	outside, err := startWatcher(ctx, w.addr)
	if err != nil {
		return nil, err
	}
	defer outside.close()
	for id := range createBrokers {
		if err := w.startNode(ctx, cluster.BrokerID(id+1), catchUp); err != nil {
			return nil, err
		}
	}
	admin, err := w.admin(ctx)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, settling); err != nil {
		return nil, err
	}
	keys, handlers := keysAndHandlers(topics)
	outside.mark()
	w.countCalls()
	w.rest()
	defer w.resume()
	began := time.Now()
	if err := create(ctx, admin, topics...); err != nil {
		return nil, err
	}
	answered := time.Now()
	committed, err := outside.blocks(ctx, keys)
	if err != nil {
		return nil, err
	}
	called, err := w.awaitCalls(ctx, handlers)
	if err != nil {
		return nil, err
	}
	w.resume()
	bare, err := w.bareCreate(ctx, outside, keys)
	return []time.Duration{committed.at.Sub(began), answered.Sub(began), called.Sub(began), bare}, err
}

// keysAndHandlers is how many keys the topics need, and how many handlers hear
// of them.
func keysAndHandlers(topics []*pb.NewTopic) (keys, handlers int) {
	for _, t := range topics {
		size := t.GetBlockSize()
		if size == 0 {
			size = cluster.DefaultBlockSize
		}
		keys += 1 + int((t.GetPartitions()+size-1)/size)
		handlers += int(t.GetPartitions() * t.GetReplicationFactor())
	}
	return keys, handlers
}

// bareCreate puts copies of all that was created.
func (w *world) bareCreate(ctx context.Context, outside *watcher, keys int) (time.Duration, error) {
	values, err := w.stored(ctx, "partitions/", func() proto.Message { return &pb.PartitionBlock{} })
	if err != nil {
		return 0, err
	}
	records, err := w.stored(ctx, "topics/", func() proto.Message { return &pb.TopicRecord{} })
	if err != nil {
		return 0, err
	}
	values = append(values, records...)
	if len(values) != keys {
		return 0, fmt.Errorf("%d keys were created, not %d", len(values), keys)
	}
	end, err := w.bareStandbys(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	writer, err := w.newContender(ctx)
	if err != nil {
		return 0, err
	}
	defer writer.close()
	go drain(writer.client.Watch(ctx, "/bare/", clientv3.WithPrefix()))
	guard, err := w.client.Put(ctx, bareEpoch, "x")
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, settling); err != nil {
		return 0, err
	}
	outside.mark()
	began := time.Now()
	_, err = writer.write(ctx, bareWay{perTxn: blocksPerTxn, inFlight: inFlight}, values, guard.Header.Revision,
		func(proto.Message) bool { return true })
	if err != nil {
		return 0, err
	}
	committed, err := outside.blocks(ctx, keys)
	return committed.at.Sub(began), err
}

// stored is what etcd holds, to be put under keys of a bare client.
func (w *world) stored(ctx context.Context, dir string, empty func() proto.Message) ([]*bareBlock, error) {
	list, err := w.store.List(ctx, w.keys.Prefix()+dir, false)
	if err != nil {
		return nil, err
	}
	var out []*bareBlock
	for _, kv := range list.KVs {
		b := &bareBlock{key: bareBlocks + strings.TrimPrefix(kv.Key, w.keys.Prefix()), next: empty()}
		if err := proto.Unmarshal(kv.Value, b.next); err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}
