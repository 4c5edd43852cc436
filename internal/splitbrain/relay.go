package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
)

// tap sees the messages of one call before they pass. While it does not
// return, the message waits, and those of its direction behind it.
type tap interface {
	request(msg []byte)
	response(msg []byte)
}

// relay passes gRPC calls of any service on to one target, unchanged.
type relay struct {
	listen net.Listener
	server *grpc.Server
	conn   *grpc.ClientConn
	target chan string // one address, if it is not known from the start
	tap    func(method string) tap
}

// startRelay listens on a free port of loopback. Without a target connections
// wait until aim names it. The tap of a method may be nil.
func startRelay(target string, taps func(method string) tap) (*relay, error) {
	r := &relay{target: make(chan string, 1), tap: taps}
	if target != "" {
		r.target <- target
	}
	var err error
	r.conn, err = grpc.NewClient("passthrough:///target",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(r.dial),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, err
	}
	if r.listen, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, errors.Join(err, r.conn.Close())
	}
	r.server = grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.MaxRecvMsgSize(math.MaxInt32),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.UnknownServiceHandler(r.pass))
	go func() { _ = r.server.Serve(r.listen) }()
	return r, nil
}

func (r *relay) addr() string { return r.listen.Addr().String() }

// aim names the target, once.
func (r *relay) aim(target string) { r.target <- target }

func (r *relay) close() {
	r.server.Stop()
	_ = r.conn.Close()
}

func (r *relay) dial(ctx context.Context, _ string) (net.Conn, error) {
	select {
	case target := <-r.target:
		r.target <- target
		var d net.Dialer
		return d.DialContext(ctx, "tcp", target)
	case <-ctx.Done():
		return nil, fmt.Errorf("target not known: %w", ctx.Err())
	}
}

// pass carries one call. What was sent arrives even if its sender has given up
// meanwhile, as it does in a network.
func (r *relay) pass(_ any, from grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(from)
	md, _ := metadata.FromIncomingContext(from.Context())
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(context.WithoutCancel(from.Context()), md))
	defer cancel()
	to, err := r.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	t := r.tap(method)
	go func() {
		pump(from.RecvMsg, to.SendMsg, func(msg []byte) {
			if t != nil {
				t.request(msg)
			}
		})
		_ = to.CloseSend()
	}()
	err = pump(to.RecvMsg, from.SendMsg, func(msg []byte) {
		if t != nil {
			t.response(msg)
		}
	})
	from.SetTrailer(to.Trailer())
	return err
}

// pump carries one direction until it ends; the end in order is no error.
func pump(recv, send func(any) error, see func([]byte)) error {
	for {
		msg := &frame{}
		if err := recv(msg); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		see(msg.data)
		if err := send(msg); err != nil {
			return err
		}
	}
}

// frame is a message that nobody decodes.
type frame struct{ data []byte }

// rawCodec carries frames. Its name is that of what they hold.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("marshal %T: not a frame", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(f.data)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("unmarshal %T: not a frame", v)
	}
	f.data = data.Materialize()
	return nil
}
