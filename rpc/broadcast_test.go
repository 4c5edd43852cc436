package rpc

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// What all brokers hear is encoded once for each chunk, however many they are.
func TestEncodedOnce(t *testing.T) {
	const brokers = 100
	h := newHub(t)
	for id := range cluster.BrokerID(brokers) {
		h.broker(id)
	}
	parts := make([]cluster.Partition, 2*maxStates)
	for i := range parts {
		parts[i] = hostedBy(cluster.BrokerID(i%brokers), cluster.BrokerID((i+1)%brokers))
	}
	h.topic("b", parts...)
	h.begin(1)
	h.step()
	for id := range cluster.BrokerID(brokers) {
		h.opens(id)
	}
	all := func() {
		for h.step(); h.p.More(); h.step() {
		}
		for id := range cluster.BrokerID(brokers) {
			h.applies(id)
		}
	}
	all()
	if n := h.p.Stats.Encoded; n != 1+2 { // the live brokers, two chunks
		t.Errorf("%d bodies were encoded at first", n)
	}
	for i := range int32(3) {
		h.change("b", 100*i, elect(1))
	}
	before := h.p.Stats.Encoded
	all()
	if n := h.p.Stats.Encoded - before; n != 1 {
		t.Errorf("%d bodies were encoded for one chunk", n)
	}
	h.gone(7)
	before = h.p.Stats.Encoded
	all()
	if n := h.p.Stats.Encoded - before; n != 1 {
		t.Errorf("%d bodies were encoded for the live brokers", n)
	}
}

// listens is a broker that keeps what it hears.
type listens struct {
	pb.UnimplementedCommandServiceServer
	heard chan *pb.CommandsRequest
}

func (l listens) Commands(s pb.CommandService_CommandsServer) error {
	if err := s.Send(&pb.CommandsResponse{Response: &pb.CommandsResponse_Hello{Hello: &pb.Hello{}}}); err != nil {
		return err
	}
	for {
		r, err := s.Recv()
		if err != nil {
			return nil
		}
		l.heard <- r
	}
}

// A broker sees an ordinary message, whose body is the one that was encoded
// before: a stream does not encode it again.
func TestEncodedBody(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	broker := listens{heard: make(chan *pb.CommandsRequest, 1)}
	server := grpc.NewServer()
	pb.RegisterCommandServiceServer(server, broker)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	opened := make(chan struct{})
	streams := NewStreams(func(ev PushEvent) {
		if _, ok := ev.(Opened); ok {
			close(opened)
		}
	}, func() bool { return true })
	defer streams.Wait()
	defer cancel()
	id := StreamID{Broker: 1, Epoch: 2, Number: 3}
	streams.Do(ctx, Dial{Stream: id, Address: l.Addr().String()})
	select {
	case <-opened:
	case <-ctx.Done():
		t.Fatal("no stream")
	}

	command := func(u *pb.UpdateMetadata) *pb.CommandsRequest {
		return &pb.CommandsRequest{Request: &pb.CommandsRequest_Command{Command: &pb.Command{
			Stamp: &pb.Stamp{ClusterUuid: "u", BrokerId: 1, Revision: 1 << 40}, Sequence: 300,
			Body: &pb.Command_UpdateMetadata{UpdateMetadata: u}, Progress: &pb.Progress{Begins: true, ResumePoint: 9},
		}}}
	}
	small := &pb.UpdateMetadata{RemovedTopics: []*pb.RemovedTopic{{Topic: "a", Partitions: 7}}}
	large := &pb.UpdateMetadata{}
	for i := range int32(10_000) {
		large.RemovedTopics = append(large.RemovedTopics, &pb.RemovedTopic{TopicId: make([]byte, 16), Partitions: i})
	}
	ping := &pb.CommandsRequest{Request: &pb.CommandsRequest_Ping{Ping: &pb.Ping{Sequence: 4}}}
	for _, u := range []*pb.UpdateMetadata{small, large, {}} {
		encoded := append(make([]byte, 0, 1), cluster.Encode(u)...)
		for _, c := range []struct {
			send Send
			want *pb.CommandsRequest
		}{
			{Send{id, command(&pb.UpdateMetadata{}), encoded}, command(u)},
			{Send{id, command(u), nil}, command(u)},
			{Send{id, ping, nil}, ping},
		} {
			streams.Do(ctx, c.send)
			select {
			case got := <-broker.heard:
				if !proto.Equal(got, c.want) {
					t.Fatalf("heard %.300v, want %.300v", got, c.want)
				}
			case <-ctx.Done():
				t.Fatal("nothing was heard")
			}
		}
	}
}
