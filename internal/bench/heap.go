package main

import (
	"context"
	"fmt"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

const (
	heapBound = 400 // bytes a partition
	garbage   = 20  // answers that a daemon makes before it is asked again
)

var heapRow = row{
	name: "heap",
	what: `
Live heap of a daemon that holds 1,000,000 partitions of 3 replicas, when all brokers have been told everything: the bytes
that its latest collection found live, after two more have ended, less those of the same daemon before there were topics,
for each partition. The daemon is active, or stands by. It says itself what it holds, among the counters of its status.
There is nothing to compare with.`,
	run: heap,
}

func heap(ctx context.Context, b *bench) ([]figure, error) {
	w, err := newWorld(ctx, b, 0)
	if err != nil {
		return nil, err
	}
	defer w.close()
	for _, id := range []string{"active", "standby"} {
		if err := w.startDaemon(ctx, id); err != nil {
			return nil, err
		}
	}
	if id, _, err := w.active(ctx); err != nil || id != "active" {
		return nil, fmt.Errorf("daemon %s is active (%w)", id, err)
	}
	if err := w.populate(ctx, 3, 0, 0); err != nil {
		return nil, err
	}
	empty, err := w.heaps(ctx)
	if err != nil {
		return nil, err
	}
	each := b.scaled(perTopic, 1)
	if err := w.createTopics(ctx, topicsOf(millionTopics, each, 0)); err != nil {
		return nil, err
	}
	if err := w.settle(ctx); err != nil {
		return nil, err
	}
	series, err := measureValues(ctx, "heap", func(ctx context.Context) ([]float64, error) {
		full, err := w.heaps(ctx)
		if err != nil {
			return nil, err
		}
		for i := range full {
			full[i] = (full[i] - empty[i]) / float64(millionTopics*each)
		}
		return full, nil
	})
	if err != nil {
		return nil, err
	}
	return []figure{
		{what: "active, a partition", unit: bytes, ours: series[0], below: heapBound},
		{what: "standby, a partition", unit: bytes, ours: series[1], below: heapBound},
	}, nil
}

// heaps are the live bytes of the active daemon and of the standby, after two
// more collections.
func (w *world) heaps(ctx context.Context) ([]float64, error) {
	var out []float64
	for _, id := range []string{"active", "standby"} {
		live, err := w.heapOf(ctx, id)
		if err != nil {
			return nil, err
		}
		out = append(out, live)
	}
	return out, nil
}

// heapOf has a daemon answer until it has collected twice.
func (w *world) heapOf(ctx context.Context, id string) (float64, error) {
	admin := pb.NewAdminServiceClient(w.conns[id])
	counters := func() (map[string]int64, error) {
		resp, err := admin.DescribeController(ctx, &pb.DescribeControllerRequest{})
		if err != nil {
			return nil, fmt.Errorf("ask daemon %s for its heap: %w", id, err)
		}
		return resp.GetCounters(), nil
	}
	first, err := counters()
	if err != nil {
		return 0, err
	}
	for {
		for range garbage { // also where there is no such topic
			_, _ = admin.DescribeTopic(ctx, &pb.DescribeTopicRequest{Name: "topic-1", FromPartition: 1, PageSize: 10_000})
		}
		now, err := counters()
		if err != nil {
			return 0, err
		}
		if now[rpc.CollectionsCounter] >= first[rpc.CollectionsCounter]+2 {
			return float64(now[rpc.HeapCounter]), nil
		}
	}
}
