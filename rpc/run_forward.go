package rpc

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// forwarded marks a call that a standby has passed on: it is not passed on
// again.
const forwarded = "controllerd-forwarded"

// forwarder passes calls that need a decision on to the active daemon, over
// one connection that is replaced when another daemon becomes active.
type forwarder struct {
	options []grpc.DialOption

	mu       sync.Mutex
	endpoint string
	current  *clients
}

type clients struct {
	conn   *grpc.ClientConn
	broker pb.BrokerServiceClient
	admin  pb.AdminServiceClient
}

func newForwarder(options []grpc.DialOption) *forwarder {
	if len(options) == 0 {
		options = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	return &forwarder{options: options}
}

func (f *forwarder) to(endpoint string) (*clients, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current != nil && f.endpoint == endpoint {
		return f.current, nil
	}
	conn, err := grpc.NewClient(endpoint, f.options...)
	if err != nil {
		return nil, err
	}
	f.closeLocked()
	f.endpoint = endpoint
	f.current = &clients{conn: conn, broker: pb.NewBrokerServiceClient(conn), admin: pb.NewAdminServiceClient(conn)}
	return f.current, nil
}

func (f *forwarder) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closeLocked()
}

func (f *forwarder) closeLocked() {
	if f.current != nil {
		_ = f.current.conn.Close()
		f.current = nil
	}
}

// forward passes one call on to the daemon that notController names. If there
// is none, or the call was passed on already, the caller gets notController.
func forward[T any](ctx context.Context, f *forwarder, notController error, call func(context.Context, *clients) (T, error)) (T, error) {
	var none T
	endpoint := infoOf(notController).GetMetadata()["endpoint"]
	md, _ := metadata.FromIncomingContext(ctx)
	if endpoint == "" || len(md.Get(forwarded)) > 0 {
		return none, notController
	}
	c, err := f.to(endpoint)
	if err != nil {
		return none, notController
	}
	resp, err := call(metadata.AppendToOutgoingContext(ctx, forwarded, "1"), c)
	if status.Code(err) == codes.Unavailable && ReasonOf(err) == "" {
		return none, Error(cluster.NotController, infoOf(notController).GetMetadata(),
			"the active controller at %s can not be reached: %s", endpoint, Words(err))
	}
	return resp, err
}
