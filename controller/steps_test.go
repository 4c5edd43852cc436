package controller

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

// large is a cluster of many partitions of 3 replicas on 5 brokers, so that
// each broker holds 60 of 100.
type large struct {
	*bench
	topics, each int32
}

const largeBrokers = 5

// BenchmarkLongestStep drives a daemon through what touches very many
// partitions, and reports the longest step of its owner in each, in ms. The
// design allows 50.
func BenchmarkLongestStep(b *testing.B) {
	for _, partitions := range []int32{100_000, 1_000_000} {
		for _, each := range []int32{40, partitions} {
			b.Run(fmt.Sprintf("partitions=%d/topics=%d", partitions, partitions/each), func(b *testing.B) {
				for range b.N {
					newLarge(b, partitions/each, each).drive(b)
				}
			})
		}
	}
}

func newLarge(t testing.TB, topics, each int32) *large {
	l := &large{newIdleBench(t, "c1"), topics, each}
	l.hand(store.Put(keys.Cluster(), cluster.Encode(&pb.ClusterRecord{Uuid: "u", Format: 1})))
	for id := range largeBrokers {
		l.broker(cluster.BrokerID(id))
	}
	for n := range topics {
		l.write(largeID(n), fmt.Sprint("topic-", n), each)
	}
	return l
}

func largeID(n int32) cluster.TopicID {
	return cluster.TopicID{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n), 15: 1}
}

// write puts a topic at rest into the store.
func (l *large) write(id cluster.TopicID, name string, partitions int32) {
	var ops []store.Op
	for first := int32(0); first < partitions; first += cluster.DefaultBlockSize {
		block := &pb.PartitionBlock{}
		for i := first; i < min(first+cluster.DefaultBlockSize, partitions); i++ {
			block.Partitions = append(block.Partitions, atRest(i))
		}
		ops = append(ops, store.Put(keys.Block(cluster.BlockID{Topic: id, Index: first / cluster.DefaultBlockSize}), cluster.Encode(block)))
		if len(ops) == 100 {
			l.hand(ops...)
			ops = nil
		}
	}
	l.hand(append(ops, store.Put(keys.Topic(name), cluster.Encode(&pb.TopicRecord{
		TopicId: id[:], PartitionsWanted: partitions, PartitionsMade: partitions, ReplicationFactor: 3, BlockSize: cluster.DefaultBlockSize,
	})))...)
}

// atRest is a partition that asks for nothing.
func atRest(index int32) *pb.PartitionRecord {
	replicas := []int32{index % largeBrokers, (index + 1) % largeBrokers, (index + 2) % largeBrokers}
	return &pb.PartitionRecord{
		Partition: index, Replicas: replicas, Isr: replicas, Leader: replicas[0], LeaderEpoch: 3, PartitionEpoch: 5, ControllerEpoch: 1,
		Cause: pb.ChangeCause_CHANGE_CAUSE_ISR_ALTERED, DecidedRevision: largeBrokers + 4,
	}
}

// measure reports the longest step or look of what fn does.
func (l *large) measure(b *testing.B, what string, fn func()) {
	l.steps, l.longest = 0, 0
	began := time.Now()
	fn()
	b.ReportMetric(float64(l.longest.Microseconds())/1000, what+"-ms")
	b.Logf("%-24s longest step %8.2f ms of %5d, %7.0f ms in all", what, float64(l.longest.Microseconds())/1000, l.steps, float64(time.Since(began).Microseconds())/1000)
}

func (l *large) look(fn func(rpc.View)) {
	l.timed(func() { fn(l.l.View()) })
}

// load shows the daemon a list of everything.
func (l *large) load() {
	list := l.m.List(keys.Prefix(), false)
	batch := store.Batch{Rev: list.Rev, Reset: true}
	for _, kv := range list.KVs {
		batch.Changes = append(batch.Changes, store.Change{KV: kv})
	}
	l.step(Watched{batch})
	for l.l.Unfinished() {
		l.step()
	}
}

func (l *large) drive(b *testing.B) {
	l.measure(b, "load", l.load)
	l.measure(b, "take-over", func() { l.run() })
	l.measure(b, "compare", func() { l.step(Listed{l.m.List(keys.Prefix(), true)}); l.run() })
	l.measure(b, "broker-down", func() { l.hand(store.Delete(keys.Broker(1))); l.run() })
	l.measure(b, "broker-up", func() { l.broker(1); l.run() })
	l.measure(b, "create", func() { l.created("new", 100_000, 16) })
	l.measure(b, "delete", func() {
		id := l.ask(remove("new"))[0]
		l.run()
		if a := l.answerOf(id); a.Err != nil {
			b.Fatal(a.Err)
		}
	})
	l.measure(b, "hand-written", func() { l.write(cluster.TopicID{1: 9, 15: 9}, "hand", 100_000); l.run() })
	l.measure(b, "compaction", func() { l.load(); l.run() })
	l.looks(b)
	if got := l.l.Stats.Swept; got != 0 {
		b.Errorf("the sweep corrected %d partitions", got)
	}
}

// looks measures what callers make the owner look at.
func (l *large) looks(b *testing.B) {
	client := l.serve(b)
	ctx := b.Context()
	for what, call := range map[string]func() error{
		"list-topics": func() error {
			_, err := client.ListTopics(ctx, &pb.ListTopicsRequest{})
			return err
		},
		"describe-topic": func() error {
			_, err := client.DescribeTopic(ctx, &pb.DescribeTopicRequest{Name: "topic-0"})
			return err
		},
		"list-brokers": func() error {
			_, err := client.ListBrokers(ctx, &pb.ListBrokersRequest{})
			return err
		},
		"describe-controller": func() error {
			_, err := client.DescribeController(ctx, &pb.DescribeControllerRequest{})
			return err
		},
		"list-terms": func() error {
			_, err := client.ListTerms(ctx, &pb.ListTermsRequest{})
			return err
		},
	} {
		l.measure(b, what, func() {
			if err := call(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// serve is a client of the services of a daemon that does not step.
func (l *large) serve(b *testing.B) pb.AdminServiceClient {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := rpc.NewServer(&still{l: l}, slog.New(slog.DiscardHandler), nil)
	ctx, stop := context.WithCancel(b.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, lis) }()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close(); stop(); <-served })
	return pb.NewAdminServiceClient(conn)
}

// still is a rpc.Core of which nothing but looks is asked.
type still struct {
	rpc.Core
	mu sync.Mutex
	l  *large
}

func (s *still) Await(_ context.Context, cond func(rpc.View) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.l.look(func(v rpc.View) { cond(v) })
	return nil
}

// BenchmarkTakeOver is what the owner does from the begin of a term to the first
// command, in us of a processor. It must not grow with the partitions.
func BenchmarkTakeOver(b *testing.B) {
	for _, partitions := range []int32{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			for range b.N {
				l := newLarge(b, partitions/40, 40)
				for id := range largeBrokers {
					l.listening(cluster.BrokerID(id))
				}
				l.load()
				began, told := time.Duration(0), false
				l.held = func(a Action) bool {
					p, ok := a.(Push)
					if !ok {
						return false
					}
					_, told = p.Action.(rpc.Send)
					return told
				}
				for !told {
					l.turn()
					if l.term != "" && began == 0 {
						began = l.spent - l.last
					}
				}
				b.ReportMetric(float64((l.spent-began).Nanoseconds())/1000, "us-to-command")
			}
		})
	}
}
