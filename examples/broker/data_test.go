package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/internal/demobroker"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

func frame(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// request makes a connection and writes requests to it.
func request(t *testing.T, d *dataListener, bodies ...[]byte) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", d.addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	for _, b := range bodies {
		if _, err := conn.Write(frame(b)); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

func TestDataListener(t *testing.T) {
	cfg := dataConfig{listen: "127.0.0.1:0", handlers: 2, queue: 2, delay: time.Millisecond}
	d, err := listenForData(cfg, cfg.echo)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		conn := request(t, d, []byte("one"), nil, []byte{byte(i)})
		for _, want := range [][]byte{[]byte("one"), {}, {byte(i)}} {
			if got, err := readFrame(conn); err != nil || !bytes.Equal(got, want) {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
		}
	}
	bad := request(t, d)
	if _, err := bad.Write([]byte{0xff, 0xff, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	if _, err := readFrame(bad); err == nil {
		t.Error("a request of 4 GiB is answered")
	}
	if err := d.close(); err != nil {
		t.Error(err)
	}
	if _, err := listenForData(dataConfig{listen: "nonsense"}, cfg.echo); err == nil {
		t.Error("listened on nonsense")
	}
}

// saturated is a data listener all of whose handlers are blocked, with a full
// queue, and more requests that nobody has read.
func saturated(t *testing.T) *dataListener {
	t.Helper()
	cfg := dataConfig{listen: "127.0.0.1:0", handlers: 8, queue: 16}
	var blocked atomic.Int32
	d, err := listenForData(cfg, func(ctx context.Context, request []byte) []byte {
		blocked.Add(1)
		<-ctx.Done()
		return request
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	for range cfg.handlers + cfg.queue + 8 {
		request(t, d, []byte("produce"))
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(10 * time.Second)
	for int(blocked.Load()) != cfg.handlers || len(d.queue) != cfg.queue {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%d handlers are blocked and %d requests wait", blocked.Load(), len(d.queue))
		}
	}
	return d
}

// overData makes commands wait in the queue of the data listener, and for one
// of its handlers, as they would if they came over it.
func overData(d *dataListener) grpc.ServerOption {
	return grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return handler(srv, queuedStream{s, d})
	})
}

type queuedStream struct {
	grpc.ServerStream
	d *dataListener
}

func (s queuedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.d.submit(s.Context(), &dataRequest{done: make(chan struct{})})
}

const (
	// commands that are measured, and how late 99 of 100 of them may be.
	commands = 1000
	bound    = 100 * time.Millisecond
)

// latency sends commands, each with the next leader epoch of a partition, and
// returns how late 99 of 100 were applied. More than one of 100 that are not
// applied within twice the bound are enough to know.
func latency(t *testing.T, options ...grpc.ServerOption) (p99 time.Duration, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	control, done := obedientBroker(t, ctx, options)
	defer done()
	conn, err := grpc.NewClient(control, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := pb.NewCommandServiceClient(conn).Commands(ctx)
	if err != nil {
		t.Fatal(err)
	}
	applied := make(chan int32, commands)
	go func() {
		defer close(applied)
		for {
			resp, err := stream.Recv()
			if err != nil {
				return
			}
			for _, o := range resp.GetResults().GetOutcomes() {
				if o.GetResult() == pb.PartitionResult_PARTITION_RESULT_APPLIED {
					applied <- o.GetLeaderEpoch()
				}
			}
		}
	}()
	var took []time.Duration
	for le, late := int32(1), 0; le <= commands; le++ {
		began := time.Now()
		if err := stream.Send(leadership(le)); err != nil {
			t.Fatal(err)
		}
		if !within(applied, le, 2*bound) {
			if late++; late > commands/100 {
				return 2 * bound, fmt.Errorf("%d of %d commands were not applied within %v", late, le, 2*bound)
			}
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)*99/100], nil
}

// within reports whether a leader epoch, or a higher one, was applied in time.
func within(applied <-chan int32, le int32, limit time.Duration) bool {
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		select {
		case got, ok := <-applied:
			if !ok || got >= le {
				return ok
			}
		case <-late.C:
			return false
		}
	}
}

func leadership(le int32) *pb.CommandsRequest {
	return &pb.CommandsRequest{Request: &pb.CommandsRequest_Command{Command: &pb.Command{
		Sequence: int64(le),
		Stamp:    &pb.Stamp{ClusterUuid: "c", ControllerId: "c1", ControllerEpoch: 3, BrokerId: 1, BrokerEpoch: 10},
		Body: &pb.Command_LeaderAndIsr{LeaderAndIsr: &pb.LeaderAndIsr{Topics: []*pb.TopicStates{{
			TopicId: bytes.Repeat([]byte{7}, 16), Topic: "t",
			Partitions: []*pb.PartitionState{{Leader: 1, LeaderEpoch: le, Isr: []int32{1}, Replicas: []int32{1}}},
		}}}},
	}}}
}

// obedientBroker runs a broker that is registered. done ends it.
func obedientBroker(t *testing.T, ctx context.Context, options []grpc.ServerOption) (control string, done func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{control: make(chan string, 1), unregistered: make(chan struct{})}
	server := grpc.NewServer()
	pb.RegisterBrokerServiceServer(server, d)
	go server.Serve(l)
	b, err := demobroker.Start(ctx, demobroker.Config{Broker: broker.Config{
		ID: 1, NodeUUID: "n", Daemons: []string{l.Addr().String()}, ServerOptions: options,
	}})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.Registered():
	case <-ctx.Done():
		t.Fatal("never registered")
	}
	return b.ControlAddress(), func() {
		b.Kill()
		_ = b.Wait() // killed
		server.Stop()
	}
}

// TestControlBeforeData: while the data listener is saturated, commands are
// applied as ever, because they have a listener of their own.
func TestControlBeforeData(t *testing.T) {
	saturated(t)
	p99, err := latency(t)
	if err != nil || p99 > bound {
		t.Errorf("99 of 100 commands took up to %v, want at most %v: %v", p99, bound, err)
	}
	t.Logf("p99 of %d commands beside a saturated data listener: %v", commands, p99)
}

// TestCommandsOverData: the same commands over the data listener would wait
// with the data, so the other test notices if they do.
func TestCommandsOverData(t *testing.T) {
	if p99, err := latency(t, overData(saturated(t))); err == nil && p99 <= bound {
		t.Errorf("99 of 100 commands took up to %v over a saturated listener", p99)
	}
	idle := dataConfig{listen: "127.0.0.1:0", handlers: 8, queue: 16}
	d, err := listenForData(idle, idle.echo)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if p99, err := latency(t, overData(d)); err != nil || p99 > bound {
		t.Errorf("over a listener that is idle: %v, %v", p99, err) // it is the load that holds them up
	}
}
