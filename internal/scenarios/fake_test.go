package scenarios

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// fake is a broker that says what the test wants.
type fake struct {
	pb.UnimplementedCommandServiceServer
	w          *world
	id         cluster.BrokerID
	answer     func(*pb.Command) *pb.CommandAck
	server     *grpc.Server
	registered chan struct{}
	session    *pb.RegisterResponse // once registered

	mu    sync.Mutex
	heard []arrival
}

// arrival is one command.
type arrival struct {
	at  time.Time
	cmd *pb.Command
}

// fake registers a broker at the daemons and keeps its session. It answers
// each command with what answer makes of it.
func (w *world) fake(id cluster.BrokerID, answer func(*pb.Command) *pb.CommandAck) *fake {
	w.t.Helper()
	f := &fake{w: w, id: id, answer: answer, server: grpc.NewServer(), registered: make(chan struct{})}
	f.serve(f)
	return f
}

// serve serves commands, and registers the broker.
func (f *fake) serve(as pb.CommandServiceServer) {
	w := f.w
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	pb.RegisterCommandServiceServer(f.server, as)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f.server.Serve(l)
	}()
	w.t.Cleanup(func() {
		f.server.Stop()
		<-done
	})
	f.enlist(l.Addr().String())
}

// enlist registers a broker that is reached at an address, and keeps its
// session.
func (f *fake) enlist(addr string) {
	f.w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	f.w.t.Cleanup(func() { cancel(); <-done })
	var clients []pb.BrokerServiceClient
	for _, d := range f.w.daemons {
		clients = append(clients, pb.NewBrokerServiceClient(dial(f.w.t, d.Endpoint)))
	}
	for _, p := range f.w.processes {
		clients = append(clients, pb.NewBrokerServiceClient(dial(f.w.t, p.endpoint)))
	}
	go func() {
		defer close(done)
		select {
		case <-f.registered:
			f.renew(ctx, clients)
		case <-ctx.Done():
		}
	}()
	f.register(clients, addr)
}

func (f *fake) register(clients []pb.BrokerServiceClient, addr string) {
	f.w.t.Helper()
	req := &pb.RegisterRequest{
		BrokerId: int32(f.id), NodeUuid: fmt.Sprint("fake-", f.id), Nonce: fmt.Sprint("nonce-", f.id), First: true,
		ControlAddress: addr, SessionTtlMs: (2 * sessionTTL).Milliseconds(),
	}
	f.w.await("the fake broker is registered", soon, func() bool {
		for _, c := range clients {
			if resp, err := c.Register(f.w.call(), req); err == nil {
				f.session = resp
				close(f.registered)
				return true
			}
		}
		return false
	})
}

// renew keeps the session at whichever daemon answers.
func (f *fake) renew(ctx context.Context, clients []pb.BrokerServiceClient) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s := f.session
		req := &pb.RenewSessionRequest{
			ClusterUuid: s.GetClusterUuid(), BrokerId: int32(f.id), BrokerEpoch: s.GetBrokerEpoch(), Lease: s.GetLease(), Nonce: fmt.Sprint("nonce-", f.id),
		}
		for i := range clients {
			limited, cancel := context.WithTimeout(ctx, time.Second)
			_, err := clients[(n+i)%len(clients)].RenewSession(limited, req)
			cancel()
			if err == nil {
				break
			}
		}
	}
}

// Commands serves one stream.
func (f *fake) Commands(s pb.CommandService_CommandsServer) error {
	select {
	case <-f.registered: // the controller may be faster than the answer
	case <-s.Context().Done():
		return s.Context().Err()
	}
	hello := &pb.Hello{ClusterUuid: f.session.GetClusterUuid(), BrokerId: int32(f.id), BrokerEpoch: f.session.GetBrokerEpoch()}
	if err := s.Send(&pb.CommandsResponse{Response: &pb.CommandsResponse_Hello{Hello: hello}}); err != nil {
		return err
	}
	for {
		req, err := s.Recv()
		if err != nil {
			return err
		}
		resp := &pb.CommandsResponse{Response: &pb.CommandsResponse_Pong{Pong: &pb.Pong{Sequence: req.GetPing().GetSequence()}}}
		if cmd := req.GetCommand(); cmd != nil {
			ack := f.take(cmd)
			ack.Sequence = cmd.GetSequence()
			resp = &pb.CommandsResponse{Response: &pb.CommandsResponse_Ack{Ack: ack}}
		}
		if err := s.Send(resp); err != nil {
			return err
		}
	}
}

func (f *fake) take(cmd *pb.Command) *pb.CommandAck {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = append(f.heard, arrival{time.Now(), cmd})
	return f.answer(cmd)
}

// commands are those that arrived so far.
func (f *fake) commands() []arrival {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.heard)
}

// byHandSender is the controller id of commands that tests send.
const byHandSender = "by hand"

// say sends one command to a broker, as a controller would, and returns the
// answer of its gate.
func (w *world) say(b *node, cmd *pb.Command) *pb.CommandAck {
	w.t.Helper()
	stream, err := pb.NewCommandServiceClient(dial(w.t, b.ControlAddress())).Commands(w.call())
	if err != nil {
		w.t.Fatal(err)
	}
	if err := stream.Send(&pb.CommandsRequest{Request: &pb.CommandsRequest_Command{Command: cmd}}); err != nil {
		w.t.Fatal(err)
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			w.t.Fatal(err)
		}
		if ack := resp.GetAck(); ack != nil {
			return ack
		}
	}
}
