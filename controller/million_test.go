package controller

import (
	"fmt"
	"runtime"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// listOf is what a daemon lists that starts beside a cluster at rest: so many
// partitions of 3 replicas in blocks of 16, on so many brokers.
func listOf(topics, partitions, brokers int32) store.Batch {
	var kvs []store.KV
	put := func(key string, value []byte) {
		rev := store.Rev(len(kvs) + 1)
		kvs = append(kvs, store.KV{Key: key, Value: value, CreateRev: rev, ModRev: rev})
	}
	put(keys.Cluster(), cluster.Encode(&pb.ClusterRecord{Uuid: "u"}))
	for id := range brokers {
		put(keys.Broker(cluster.BrokerID(id)), cluster.Encode(&pb.BrokerRecord{NodeUuid: "n", Nonce: "x", ControlAddress: "b:1"}))
	}
	each := partitions / topics
	for t := range topics {
		id := cluster.TopicID{byte(t >> 24), byte(t >> 16), byte(t >> 8), byte(t), 15: 1}
		for first := int32(0); first < each; first += cluster.DefaultBlockSize {
			block := &pb.PartitionBlock{}
			for i := first; i < min(first+cluster.DefaultBlockSize, each); i++ {
				block.Partitions = append(block.Partitions, recordAtRest(t*each+i, i, brokers))
			}
			put(keys.Block(cluster.BlockID{Topic: id, Index: first / cluster.DefaultBlockSize}), cluster.Encode(block))
		}
	}
	for t := range topics {
		id := cluster.TopicID{byte(t >> 24), byte(t >> 16), byte(t >> 8), byte(t), 15: 1}
		put(keys.Topic(fmt.Sprint("topic-", t)), cluster.Encode(&pb.TopicRecord{
			TopicId: id[:], PartitionsWanted: each, PartitionsMade: each, ReplicationFactor: 3, BlockSize: cluster.DefaultBlockSize,
		}))
	}
	b := store.Batch{Rev: store.Rev(len(kvs)), Reset: true}
	for _, kv := range kvs {
		b.Changes = append(b.Changes, store.Change{KV: kv})
	}
	return b
}

// recordAtRest asks for nothing: all of its replicas are in sync, its preferred
// leader leads. Every tenth ISR is in another order.
func recordAtRest(n, index, brokers int32) *pb.PartitionRecord {
	shift := 1 + n/brokers%(brokers-2)
	replicas := []int32{n % brokers, (n + shift) % brokers, (n + shift + 1) % brokers}
	isr := replicas
	if n%10 == 0 {
		isr = []int32{replicas[0], replicas[2], replicas[1]}
	}
	return &pb.PartitionRecord{
		Partition: index, Replicas: replicas, Isr: isr, Leader: replicas[0], LeaderEpoch: 3, PartitionEpoch: 5, ControllerEpoch: 2,
		Cause: pb.ChangeCause_CHANGE_CAUSE_ISR_ALTERED, ChangedMs: 1_700_000_000_000, DecidedRevision: 1 << 12,
	}
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// heapOf is the live heap of a daemon at rest, in bytes a partition, less that
// of one that has seen nothing.
func heapOf(tb testing.TB, topics, partitions int32) float64 {
	l := newIdleBench(nil, "c1").l
	empty := liveHeap()
	l.observe(listOf(topics, partitions, 100))
	heap := liveHeap() - empty
	if n := l.Sweep() + l.machine.Agenda(); n != 0 {
		tb.Fatalf("%d partitions are not at rest", n)
	}
	return float64(heap) / float64(partitions)
}

// TestHeap: a partition costs at most the 400 bytes that the design allows.
func TestHeap(t *testing.T) {
	for _, topics := range []int32{1, 2000} {
		if n := heapOf(t, topics, 128_000); n < 168 || n > 400 {
			t.Errorf("%d topics: %.0f bytes a partition", topics, n)
		}
	}
}

// BenchmarkHeap is the live heap of a daemon at rest: its image, its agenda,
// its change list and what it remembers for watches, after two collections,
// less that of the daemon that has seen nothing. Design: at most 400 bytes a
// partition at a million.
func BenchmarkHeap(b *testing.B) {
	const partitions = 1_000_000
	for _, topics := range []int32{1, 1000, 25_000} {
		b.Run(fmt.Sprint("topics=", topics), func(b *testing.B) {
			for range b.N {
				b.ReportMetric(heapOf(b, topics, partitions), "B/partition")
			}
		})
	}
}

// BenchmarkLoad is taking in a list of a million partitions, beside decoding
// its blocks and nothing else.
func BenchmarkLoad(b *testing.B) {
	const partitions = 1_000_000
	for _, topics := range []int32{1, 25_000} {
		list := listOf(topics, partitions, 100)
		b.Run(fmt.Sprint("topics=", topics), func(b *testing.B) {
			for range b.N {
				newIdleBench(nil, "c1").l.observe(list)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/partitions, "ns/partition")
		})
		b.Run(fmt.Sprint("topics=", topics, "/bare"), func(b *testing.B) {
			for range b.N {
				var blocks []*pb.PartitionBlock
				for _, c := range list.Changes {
					block := &pb.PartitionBlock{}
					if err := proto.Unmarshal(c.KV.Value, block); err == nil {
						blocks = append(blocks, block)
					}
				}
				runtime.KeepAlive(blocks)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/partitions, "ns/partition")
		})
	}
}
