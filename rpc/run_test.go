package rpc

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// greeter is a broker that says hello when it is told to, and nothing else.
type greeter struct {
	pb.UnimplementedCommandServiceServer
	hello   *pb.Hello
	speak   chan struct{} // closed: hello may be said
	dialing atomic.Int64  // streams on which it was not
	most    atomic.Int64
	came    chan struct{} // a stream has
}

func (g *greeter) Commands(s pb.CommandService_CommandsServer) error {
	if n := g.dialing.Add(1); n > g.most.Load() {
		g.most.Store(n)
	}
	g.came <- struct{}{}
	<-g.speak
	g.dialing.Add(-1)
	if err := s.Send(&pb.CommandsResponse{Response: &pb.CommandsResponse_Hello{Hello: g.hello}}); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

// greeted serves a broker, and returns streams to it whose events arrive in a
// channel.
func greeted(t *testing.T, g *greeter) (*Streams, string, chan PushEvent) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterCommandServiceServer(server, g)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	events := make(chan PushEvent, 1000)
	return NewStreams(func(ev PushEvent) { events <- ev }, func() bool { return true }), l.Addr().String(), events
}

// Not more than 64 brokers are dialed at once; the rest are when those have
// answered.
func TestDialsAtOnce(t *testing.T) {
	const all = 104
	g := &greeter{hello: &pb.Hello{}, speak: make(chan struct{}), came: make(chan struct{}, all)}
	streams, address, events := greeted(t, g)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer streams.Wait()
	defer cancel()
	for n := range all {
		streams.Do(ctx, Dial{Stream: StreamID{Broker: cluster.BrokerID(n), Number: int64(n)}, Address: address})
	}
	for range 64 {
		<-g.came
	}
	select {
	case <-g.came:
		t.Error("a 65th is dialed before one of the others has answered")
	case <-time.After(200 * time.Millisecond):
	}
	close(g.speak)
	for range all {
		select {
		case ev := <-events:
			if _, ok := ev.(Opened); !ok {
				t.Fatalf("%+v", ev)
			}
		case <-ctx.Done():
			t.Fatal("not all were dialed")
		}
	}
}

// A broker may name very many replicas in its hello, all of its storage has
// failed: more than gRPC takes by itself, 4 MiB.
func TestLongHello(t *testing.T) {
	offline := make([]fencing.HeldReplica, 300_000)
	for i := range offline {
		offline[i] = fencing.HeldReplica{Topic: "a", Partition: cluster.PartitionID{Topic: cluster.TopicID{1}, Index: int32(i)}, LeaderEpoch: fencing.UnknownLeaderEpoch}
	}
	g := &greeter{hello: &pb.Hello{BrokerId: 7, Offline: fencing.WireReplicas(offline)}, speak: make(chan struct{}), came: make(chan struct{}, 1)}
	close(g.speak)
	streams, address, events := greeted(t, g)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer streams.Wait()
	defer cancel()
	streams.Do(ctx, Dial{Stream: StreamID{Broker: 7}, Address: address})
	select {
	case ev := <-events:
		o, ok := ev.(Opened)
		if !ok || len(o.Hello.GetOffline()[0].GetReplicas()) != len(offline) {
			t.Fatalf("%.300v", ev)
		}
	case <-ctx.Done():
		t.Fatal("no hello")
	}
}
