package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"syscall"
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
	target string
	tap    func(method string) tap
}

// startRelay listens on a free port of loopback. The tap of a method may be
// nil.
func startRelay(target string, taps func(method string) tap) (*relay, error) {
	r := &relay{target: target, tap: taps}
	var err error
	r.conn, err = grpc.NewClient(target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
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

func (r *relay) close() {
	r.server.Stop()
	_ = r.conn.Close()
}

// freeAddr is an address of loopback for somebody else to listen on. It is
// outside of the range from which the system takes ports by itself, so nobody
// gets it by chance in between.
func freeAddr() (string, error) {
	for {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000)))
		if err == nil {
			return l.Addr().String(), l.Close()
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return "", err
		}
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
