package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Limits of the streams to brokers.
const (
	maxDials    = 64 // at once
	dialTimeout = 5 * time.Second
	outbox      = 64 // requests; the window and pings stay far below
	// maxHello bounds a response of a broker in bytes: a hello may name every
	// replica that the broker has, as offline or stray, in up to 20 bytes each.
	maxHello = 64 << 20
	// farewell is how long a broker may read on after a hang-up: far less than
	// what is left of a lease when its holder goes quiet.
	farewell = 100 * time.Millisecond
)

// ErrQuiet closes a stream on which something was to be sent after the claim
// had become doubtful.
var ErrQuiet = errors.New("rpc: not sent, the claim is in doubt")

// Streams are the open streams to brokers. Every stream has a goroutine that
// sends and one that receives; Wait waits for all of them.
type Streams struct {
	post    func(PushEvent)
	allowed func() bool // asked right before each send
	options []grpc.DialOption
	dials   chan struct{}
	wg      sync.WaitGroup

	mu   sync.Mutex
	open map[StreamID]*stream
}

type stream struct {
	cancel context.CancelFunc
	out    chan Send
	hangup chan struct{} // closed by hangUp
	spoken bool          // the hello has come; guarded by Streams.mu
}

// NewStreams makes streams whose events go to post. A request is sent only if
// allowed says so at that moment.
func NewStreams(post func(PushEvent), allowed func() bool, options ...grpc.DialOption) *Streams {
	if len(options) == 0 {
		options = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	return &Streams{
		post: post, allowed: allowed, options: options,
		dials: make(chan struct{}, maxDials), open: map[StreamID]*stream{},
	}
}

// Do runs one action of the Pusher. It does not wait.
func (s *Streams) Do(ctx context.Context, a PushAction) {
	switch a := a.(type) {
	case Dial:
		st := &stream{out: make(chan Send, outbox), hangup: make(chan struct{})}
		s.start(ctx, a.Stream, st, func(ctx context.Context) Closed { return s.run(ctx, a, st) })
	case Redial:
		s.start(ctx, a.Stream, &stream{}, func(ctx context.Context) Closed {
			redial(ctx, a.Address, func() { s.post(Refused{a.Stream}) })
			return Closed{Stream: a.Stream}
		})
	case Send:
		if st := s.find(a.Stream); st != nil {
			select {
			case st.out <- a:
			default: // the broker does not read
				st.cancel()
			}
		}
	case Hangup:
		s.hangUp(a.Stream)
	}
}

// start runs a stream, and posts its end.
func (s *Streams) start(ctx context.Context, id StreamID, st *stream, run func(context.Context) Closed) {
	ctx, cancel := context.WithCancel(ctx)
	st.cancel = cancel
	s.mu.Lock()
	s.open[id] = st
	s.mu.Unlock()
	s.wg.Go(func() {
		closed := run(ctx)
		cancel()
		s.mu.Lock()
		delete(s.open, id)
		s.mu.Unlock()
		s.post(closed)
	})
}

// hangUp ends a stream such that what was sent on it has arrived when it is
// closed, or never will: the broker is given a moment to read to the end.
func (s *Streams) hangUp(id StreamID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch st := s.open[id]; {
	case st == nil:
	case st.spoken:
		st.spoken = false
		close(st.hangup)
	default:
		st.cancel()
	}
}

func (s *Streams) find(id StreamID) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[id]
}

// Open is how many streams there are.
func (s *Streams) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// Wait waits until all streams have ended.
func (s *Streams) Wait() { s.wg.Wait() }

// run opens one stream, says so, and carries it until it ends. It returns only
// when both directions have ended.
func (s *Streams) run(ctx context.Context, d Dial, st *stream) Closed {
	var last lastLine
	err := s.carry(ctx, d, st, &last)
	return Closed{Stream: d.Stream, Err: err, Broken: last.broken()}
}

// carry is run, and notes the connection if that is wanted.
func (s *Streams) carry(ctx context.Context, d Dial, st *stream, last *lastLine) error {
	select {
	case s.dials <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	conn, call, hello, err := s.dial(ctx, d, last)
	<-s.dials
	if conn != nil {
		defer func() { _ = conn.Close() }()
	}
	if err != nil {
		return fmt.Errorf("dial broker %d at %s: %w", d.Stream.Broker, d.Address, err)
	}
	s.mu.Lock()
	st.spoken = true
	s.mu.Unlock()
	s.post(Opened{d.Stream, hello})
	var sending sync.WaitGroup
	var sendErr error
	sending.Go(func() { sendErr = s.send(ctx, call, st) })
	err = s.receive(d.Stream, call)
	st.cancel()
	sending.Wait()
	return errors.Join(sendErr, err)
}

func (s *Streams) dial(ctx context.Context, d Dial, last *lastLine) (*grpc.ClientConn, pb.CommandService_CommandsClient, *pb.Hello, error) {
	options := s.options
	if d.Probe { // a dialer of the caller's wins, and no death is proved
		options = append([]grpc.DialOption{last.dialer()}, options...)
	}
	conn, err := grpc.NewClient(d.Address, options...)
	if err != nil {
		return nil, nil, nil, err
	}
	// The stream lives as long as its context, so the time limit of opening it
	// is a timer that is taken back.
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(dialTimeout, func() { cancel(errors.New("no hello in time")) })
	defer late.Stop()
	call, err := pb.NewCommandServiceClient(conn).Commands(ctx, grpc.ForceCodecV2(newSendCodec()), grpc.MaxCallRecvMsgSize(maxHello))
	if err != nil {
		return conn, nil, nil, err
	}
	first, err := call.Recv()
	if err != nil {
		return conn, nil, nil, errors.Join(context.Cause(ctx), err)
	}
	if first.GetHello() == nil {
		return conn, nil, nil, errors.New("the first word of the broker is no hello")
	}
	return conn, call, first.GetHello(), nil
}

func (s *Streams) send(ctx context.Context, call pb.CommandService_CommandsClient, st *stream) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-st.hangup:
			_ = call.CloseSend() // it fails on a stream that has ended
			select {
			case <-ctx.Done():
			case <-time.After(farewell):
				st.cancel()
			}
			return nil
		case r := <-st.out:
			if !s.allowed() {
				st.cancel()
				return ErrQuiet
			}
			var msg any = r.Request
			if r.Metadata != nil {
				msg = r
			}
			if err := call.SendMsg(msg); err != nil {
				return nil // the receiver hears why
			}
		}
	}
}

func (s *Streams) receive(id StreamID, call pb.CommandService_CommandsClient) error {
	for {
		r, err := call.Recv()
		if err != nil {
			return err
		}
		s.post(Received{id, r})
	}
}
