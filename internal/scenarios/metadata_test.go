package scenarios

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

// watcher is a client of WatchMetadata: what it was told, by "topic/partition".
type watcher struct {
	t         *testing.T
	stream    pb.MetadataService_WatchMetadataClient
	rev       int64
	leaders   map[string][2]int32 // leader, leader epoch
	snapshots int
}

func (s *seats) watch(daemon string, rev int64) *watcher {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	s.t.Cleanup(cancel)
	stream, err := pb.NewMetadataServiceClient(s.conns[daemon]).WatchMetadata(ctx, &pb.WatchMetadataRequest{Revision: rev})
	if err != nil {
		s.t.Fatal(err)
	}
	return &watcher{t: s.t, stream: stream, rev: rev, leaders: map[string][2]int32{}}
}

// next reads one response.
func (w *watcher) next() *pb.WatchMetadataResponse {
	w.t.Helper()
	resp, err := w.stream.Recv()
	if err != nil {
		w.t.Fatal(err)
	}
	if proto.Size(resp) >= 1<<20 {
		w.t.Errorf("a response of %d bytes", proto.Size(resp))
	}
	if resp.GetSnapshot() {
		w.snapshots++
		w.rev, w.leaders = 0, map[string][2]int32{}
	}
	for _, t := range resp.GetTopics() {
		for _, p := range t.GetPartitions() {
			name := fmt.Sprintf("%s/%d", t.GetTopic(), p.GetPartition())
			if have := w.leaders[name]; p.GetLeaderEpoch() < have[1] {
				w.t.Errorf("%s went back from leader epoch %d to %d", name, have[1], p.GetLeaderEpoch())
			}
			w.leaders[name] = [2]int32{p.GetLeader(), p.GetLeaderEpoch()}
		}
	}
	if resp.GetRevision() != 0 {
		w.rev = resp.GetRevision()
	}
	return resp
}

// until reads until the client knows enough.
func (w *watcher) until(what string, enough func() bool) {
	w.t.Helper()
	for late := time.Now().Add(limit); !enough(); w.next() {
		if time.Now().After(late) {
			w.t.Fatalf("never told: %s", what)
		}
	}
}

// leader writes a partition's next leader by hand, and returns its revision.
func (s *seats) leader(id cluster.TopicID, block, size int32, le int32) int64 {
	s.t.Helper()
	b := &pb.PartitionBlock{}
	for i := range size {
		b.Partitions = append(b.Partitions, &pb.PartitionRecord{
			Partition: block*size + i, Replicas: []int32{1, 2, 3}, Isr: []int32{1, 2, 3}, Leader: 1 + le%3, LeaderEpoch: le, PartitionEpoch: le,
			DecidedRevision: int64(s.rev()),
		})
	}
	key := s.keys.Block(cluster.BlockID{Topic: id, Index: block})
	r, err := s.store.Commit(context.Background(), store.Txn{
		If: []store.Cond{store.Missing("never/written")}, Then: []store.Op{store.Put(key, cluster.Encode(b))},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return int64(r.Rev)
}

// topic writes a topic by hand, of which the leaders exist.
func (s *seats) topic(name string, id cluster.TopicID, partitions, size int32) {
	s.t.Helper()
	for block := range partitions / size {
		s.leader(id, block, size, 1)
	}
	record := &pb.TopicRecord{TopicId: id[:], PartitionsMade: partitions, PartitionsWanted: partitions, ReplicationFactor: 3, BlockSize: size}
	if _, err := s.store.Commit(context.Background(), store.Txn{
		If: []store.Cond{store.Missing("never/written")}, Then: []store.Op{store.Put(s.keys.Topic(name), cluster.Encode(record))},
	}); err != nil {
		s.t.Fatal(err)
	}
}

// onlySee keeps the daemons from deciding anything about what was written by
// hand: there are brokers 1 to 3 for all of the test.
func (s *seats) onlySee() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for id := int32(1); id <= 3; id++ {
		if _, err := pb.NewBrokerServiceClient(s.conns["first"]).Register(ctx, registration(id)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// TestMetadataAtAnotherDaemon: a client goes on at another daemon where it was,
// is never told something older, and waits if that daemon has seen less.
func TestMetadataAtAnotherDaemon(t *testing.T) {
	t.Parallel()
	s := newSeats(t)
	s.onlySee()
	orders := cluster.TopicID{1}
	s.topic("orders", orders, 32, 16)
	w := s.watch("second", 0)
	w.until("32 partitions", func() bool { return len(w.leaders) == 32 && w.rev != 0 })

	s.leader(orders, 0, 16, 5)
	again := s.watch("first", w.rev)
	again.until("16 changes", func() bool { return len(again.leaders) == 16 && again.rev != 0 })
	if again.snapshots != 0 || again.rev <= w.rev {
		t.Errorf("%d snapshots, from revision %d to %d", again.snapshots, w.rev, again.rev)
	}
	w.until("the same", func() bool { return w.leaders["orders/0"][1] >= 5 && w.rev >= again.rev })

	// The first daemon sees nothing any more: it must not serve who knows more.
	close(s.blind)
	s.leader(orders, 1, 16, 7) // the batch that it may have in hand
	rev := s.leader(orders, 1, 16, 8)
	w.until("a change", func() bool { return w.rev >= rev })
	behind := s.watch("first", w.rev)
	if _, err := behind.stream.Recv(); rpc.ReasonOf(err) != cluster.RequestTimedOut {
		t.Errorf("a daemon that is behind says %v", err)
	}
}

// TestMetadataSlowReader: a client that reads nothing holds up neither the
// daemon nor other clients, and hears the newest state when it reads again.
func TestMetadataSlowReader(t *testing.T) {
	t.Parallel()
	s := newSeats(t)
	s.onlySee()
	const partitions, size = 20_000, 100
	big := cluster.TopicID{2}
	s.topic("big", big, partitions, size)
	slow, quick := s.watch("second", 0), s.watch("second", 0)
	slow.next()
	quick.until("everything", func() bool { return len(quick.leaders) == partitions && quick.rev != 0 })
	var took []time.Duration
	for n := range int32(100) {
		began := time.Now()
		rev := s.leader(big, n%(partitions/size), size, 2+n)
		quick.until("a change", func() bool { return quick.rev >= rev })
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	if median := took[len(took)/2]; median > time.Second {
		t.Errorf("a change takes %v beside a client that does not read", median)
	}
	rev := quick.rev
	told := 0
	slow.until("everything", func() bool { told++; return slow.rev >= rev })
	if len(slow.leaders) != partitions || slow.leaders["big/9900"] != quick.leaders["big/9900"] {
		t.Errorf("%d partitions, %v instead of %v", len(slow.leaders), slow.leaders["big/9900"], quick.leaders["big/9900"])
	}
	if told > 2*partitions/1000+100/2 {
		t.Errorf("told in %d responses: what it missed was not put together", told)
	}
}
