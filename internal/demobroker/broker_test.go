package demobroker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/controllerd/controllerd/broker"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// daemon registers everybody and passes on the ISR changes that it gets.
type daemon struct {
	pb.UnimplementedBrokerServiceServer
	alters chan *pb.AlterPartitionRequest
}

func (d *daemon) Register(_ context.Context, r *pb.RegisterRequest) (*pb.RegisterResponse, error) {
	return &pb.RegisterResponse{ClusterUuid: "c", BrokerEpoch: 10, ControllerEpoch: 1}, nil
}

func (d *daemon) Unregister(context.Context, *pb.UnregisterRequest) (*pb.UnregisterResponse, error) {
	return &pb.UnregisterResponse{}, nil
}

func (d *daemon) AlterPartition(_ context.Context, r *pb.AlterPartitionRequest) (*pb.AlterPartitionResponse, error) {
	d.alters <- r
	out := &pb.AlterPartitionTopicResult{TopicId: r.GetTopics()[0].GetTopicId()}
	for _, p := range r.GetTopics()[0].GetPartitions() {
		out.Partitions = append(out.Partitions, &pb.AlterPartitionResult{Partition: p.GetPartition(), State: &pb.PartitionRecord{
			Partition: p.GetPartition(), Leader: 1, LeaderEpoch: p.GetLeaderEpoch(), PartitionEpoch: p.GetPartitionEpoch() + 1,
			Isr: []int32{1, 2}, Replicas: []int32{1, 2},
		}})
	}
	return &pb.AlterPartitionResponse{Topics: []*pb.AlterPartitionTopicResult{out}}, nil
}

func serve(t *testing.T, d *daemon) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	pb.RegisterBrokerServiceServer(s, d)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// TestReportsFollower: broker 2 is missing from three partitions, of which one
// was never applied; the other two are reported, once.
func TestReportsFollower(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	d := &daemon{alters: make(chan *pb.AlterPartitionRequest, 10)}
	faults := 0
	b, err := Start(ctx, Config{
		Broker: broker.Config{
			ID: 1, NodeUUID: "n", Daemons: []string{serve(t, d)},
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		},
		CaughtUpAfter: 20 * time.Millisecond,
		Fault: func(_ context.Context, s broker.PartitionState) error {
			if s.Partition.Index != 2 {
				return nil
			}
			faults++
			return errors.New("no")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	<-b.Registered()
	conn, err := grpc.NewClient(b.ControlAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := pb.NewCommandServiceClient(conn).Commands(ctx)
	if err != nil {
		t.Fatal(err)
	}
	stamp := &pb.Stamp{ClusterUuid: "c", ControllerEpoch: 1, BrokerId: 1, BrokerEpoch: 10}
	states := &pb.TopicStates{Topic: "t", TopicId: topic[:]}
	for i := range int32(3) {
		states.Partitions = append(states.Partitions, &pb.PartitionState{Partition: i, Leader: 1, Isr: []int32{1}, Replicas: []int32{1, 2}})
	}
	for _, cmd := range []*pb.Command{
		{Stamp: stamp, Body: &pb.Command_LeaderAndIsr{LeaderAndIsr: &pb.LeaderAndIsr{Topics: []*pb.TopicStates{states}}}},
		{Stamp: stamp, Body: &pb.Command_UpdateMetadata{UpdateMetadata: &pb.UpdateMetadata{
			LiveBrokers: &pb.LiveBrokers{Brokers: []*pb.LiveBroker{{Id: 1, BrokerEpoch: 10}, {Id: 2, BrokerEpoch: 20}}},
		}}},
	} {
		if err := stream.Send(&pb.CommandsRequest{Request: &pb.CommandsRequest_Command{Command: cmd}}); err != nil {
			t.Fatal(err)
		}
	}
	reported := map[int32]int64{} // the broker epoch of broker 2, by partition
	for len(reported) < 2 {
		select {
		case r := <-d.alters:
			for _, p := range r.GetTopics()[0].GetPartitions() {
				reported[p.GetPartition()] = p.GetNewIsr()[1].GetBrokerEpoch()
			}
		case <-ctx.Done():
			t.Fatalf("the leader reported %v", reported)
		}
	}
	if reported[0] != 20 || reported[1] != 20 {
		t.Errorf("reported %v", reported)
	}
	cancel()
	if err := b.Wait(); err != nil {
		t.Error(err)
	}
	if len(d.alters) != 0 || faults != 1 {
		t.Errorf("%d more requests, %d calls of the faulty handler", len(d.alters), faults)
	}
}
