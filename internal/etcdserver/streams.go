package etcdserver

import (
	"context"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
)

const watchMethod = "/etcdserverpb.Watch/Watch"

// streams knows the open streams of the server. etcd waits at its end until
// clients have closed theirs, for as long as 7 s; so end cuts them off.
type streams struct {
	ctx context.Context
	end context.CancelFunc

	mu    sync.Mutex
	count map[string]int
}

func newStreams() *streams {
	s := &streams{count: map[string]int{}}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s
}

func (s *streams) open(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[method]
}

func (s *streams) add(method string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count[method] += n
}

func (s *streams) intercept(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	s.add(info.FullMethod, 1)
	defer s.add(info.FullMethod, -1)
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()

	err := handler(srv, endable{ServerStream: stream, ctx: ctx})
	if s.ctx.Err() != nil {
		return rpctypes.ErrGRPCStopped // a client shall try again, not give up
	}
	return err
}

// endable is a stream with another context.
type endable struct {
	grpc.ServerStream
	ctx context.Context
}

func (e endable) Context() context.Context { return e.ctx }
