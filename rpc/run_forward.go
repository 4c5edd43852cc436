package rpc

import (
	"context"
	"errors"
	"sync"
	"time"

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
	core    Core
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

func newForwarder(core Core, options []grpc.DialOption) *forwarder {
	if len(options) == 0 {
		options = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	return &forwarder{core: core, options: options}
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

// lastWord is how long a daemon that has lost the seat may take to answer what it
// was asked before: it has given the seat up in order, or is frozen.
const lastWord = time.Second

// errUnseated ends calls that wait for a daemon which is not the active one any
// more.
var errUnseated = errors.New("rpc: the daemon is not the active controller any more")

// whileActive is a context that ends soon after another daemon than that at an
// endpoint is the active one.
func (f *forwarder) whileActive(ctx context.Context, endpoint string) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		moved := f.core.Await(ctx, func(v View) bool {
			c := v.Image.Controller
			return c != nil && c.Record.GetEndpoint() != endpoint
		})
		if moved == nil && pause(ctx, lastWord) == nil {
			cancel(errUnseated)
		}
	}()
	return ctx, cancel
}

// forward passes one call on to the daemon that notController names. If there
// is none, or the call was passed on already, the caller gets notController. It
// waits for the answer as long as that daemon is the active one.
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
	called, done := f.whileActive(ctx, endpoint)
	defer done(nil)
	resp, err := call(metadata.AppendToOutgoingContext(called, forwarded, "1"), c)
	switch code := status.Code(err); {
	case err == nil || ReasonOf(err) != "" || ctx.Err() != nil:
	case code == codes.Unavailable:
		return none, Error(cluster.NotController, infoOf(notController).GetMetadata(),
			"the active controller at %s can not be reached: %s", endpoint, Words(err))
	case code == codes.Canceled: // by us, or with the connection when another call was first to see it
		return none, ErrorWithCode(codes.Aborted, cluster.NotController,
			"the controller at %s lost the seat before it answered, what became of the request is not known", endpoint)
	}
	return resp, err
}
