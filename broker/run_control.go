package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

var errServe = errors.New("serve commands")

// A controller that vanishes without a word is noticed after half a minute.
var (
	serverKeepalive = keepalive.ServerParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}
	clientPings     = keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}
)

type controlServer struct {
	pb.UnimplementedCommandServiceServer
	b *Broker
}

func newControlServer(b *Broker) *grpc.Server {
	opts := []grpc.ServerOption{
		grpc.KeepaliveParams(serverKeepalive),
		grpc.KeepaliveEnforcementPolicy(clientPings),
	}
	opts = append(opts, b.cfg.ServerOptions...)
	s := grpc.NewServer(append(opts, grpc.WaitForHandlers(true))...)
	pb.RegisterCommandServiceServer(s, controlServer{b: b})
	return s
}

// serve ends the broker if the listener fails.
func (b *Broker) serve(l net.Listener) {
	if err := b.server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		b.session(fmt.Errorf("%w: %w", errServe, err))
	}
}

// stream is one stream of commands. Several may be open, of controllers of
// several terms: the gate decides whom to obey, and each gets the answers to
// what it sent.
type stream struct {
	pb.CommandService_CommandsServer
	b     *Broker
	out   outbox        // under the broker's lock
	wake  chan struct{} // there is something in out
	drain chan struct{} // out was emptied
	ended chan error    // how receiving ended
}

// Commands sends what is in the outbox; another goroutine receives.
func (c controlServer) Commands(server pb.CommandService_CommandsServer) error {
	s := &stream{
		CommandService_CommandsServer: server,
		b:                             c.b,
		wake:                          make(chan struct{}, 1),
		drain:                         make(chan struct{}, 1),
		ended:                         make(chan error, 1),
	}
	s.out.wake = func() { signal(s.wake) }
	hello, again := s.open()
	defer s.close()
	if err := s.Send(&pb.CommandsResponse{Response: &pb.CommandsResponse_Hello{Hello: hello}}); err != nil {
		return err
	}
	s.b.work.Go(func() { s.ended <- s.receive() })
	return s.send(again)
}

// open says hello, and makes the workers know the stream, in one step.
func (s *stream) open() (*pb.Hello, <-chan struct{}) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.b.streams[&s.out] = struct{}{}
	return s.b.gate.Hello(), s.b.again
}

// close makes the workers forget the stream.
func (s *stream) close() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	delete(s.b.streams, &s.out)
	s.out.closed = true
	s.out.take()
}

func (s *stream) send(again <-chan struct{}) error {
	for {
		select {
		case <-s.wake:
		case <-again:
			return status.Error(codes.Aborted, "a state of an earlier stream failed, say everything again")
		case err := <-s.ended:
			if sendErr := s.flush(); sendErr != nil {
				return sendErr
			}
			return err
		case <-s.b.ctx.Done():
			return status.Error(codes.Unavailable, ErrClosed.Error())
		}
		if err := s.flush(); err != nil {
			return err
		}
	}
}

func (s *stream) flush() error {
	s.b.mu.Lock()
	out := s.out.take()
	s.b.mu.Unlock()
	signal(s.drain)
	for _, m := range out {
		if err := s.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// receive returns nil if the controller has closed the stream.
func (s *stream) receive() error {
	for {
		if err := s.room(s.Context()); err != nil {
			return err
		}
		req, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch r := req.GetRequest().(type) {
		case *pb.CommandsRequest_Ping:
			s.b.mu.Lock()
			s.out.pong(s.b.gate.Pong(r.Ping.GetSequence()))
			s.b.gate.Progress(&s.out.feed, r.Ping.GetProgress())
			s.b.mu.Unlock()
		case *pb.CommandsRequest_Command:
			err = s.b.obey(r.Command, &s.out)
		default:
			err = status.Error(codes.Unimplemented, "request of an unknown kind")
		}
		if err != nil {
			return err
		}
	}
}

// room waits until the outbox has some.
func (s *stream) room(ctx context.Context) error {
	for {
		s.b.mu.Lock()
		full := s.out.full()
		s.b.mu.Unlock()
		if !full {
			return nil
		}
		select {
		case <-s.drain:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// signal leaves one token in a channel that has room for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// obey takes one command through the gate and puts its handlers in line, in
// one step. A command of a kind that this version does not know ends the
// stream: an answer would say that it was obeyed.
func (b *Broker) obey(cmd *pb.Command, out *outbox) error {
	if cmd.GetBody() == nil {
		return status.Error(codes.Unimplemented, "command of an unknown kind")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.gate.Admit(cmd)
	b.measured.verdict(&v)
	out.ack(cmd.GetSequence(), &v)
	b.gate.Obeyed(&out.feed, cmd, &v)
	b.noteStrays(&v)
	if b.cfg.Observer != nil {
		for _, o := range observations(time.Now(), cmd, &v) {
			b.cfg.Observer(o)
		}
	}
	if cmd.GetUpdateMetadata() != nil || len(v.Removed) > 0 {
		if b.metadata.admit(&v) {
			b.work.Go(b.tellMetadata)
		}
		return nil
	}
	for i := range v.Decisions {
		d := &v.Decisions[i]
		if b.workers.admit(d, out) {
			b.startWorker(d.State.Partition)
		}
	}
	return nil
}
