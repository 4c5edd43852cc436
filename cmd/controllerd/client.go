package main

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// serverEnv names the environment variable for --server.
const serverEnv = "CONTROLLERD_SERVER"

// maxAnswer bounds one answer of a daemon, in bytes. A page of partitions with
// many replicas exceeds gRPC's default.
const maxAnswer = 64 << 20

// alive notices, while an answer is waited for, that a daemon is gone without a
// word.
var alive = keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}

// client is how a command reaches the daemons, and how it shows what they say.
type client struct {
	output
	servers []string
	timeout time.Duration
}

// addFlags gives a group of commands the flags of a client.
func (c *client) addFlags(group *cobra.Command) {
	f := group.PersistentFlags()
	c.addServerFlags(f)
	c.output.addFlags(f)
	f.BoolVar(&c.noHeaders, "no-headers", false, "tables without headers")
}

func (c *client) addServerFlags(f *pflag.FlagSet) {
	servers := []string{"127.0.0.1:7070"}
	if env := os.Getenv(serverEnv); env != "" {
		servers = strings.Split(env, ",")
	}
	f.StringSliceVar(&c.servers, "server", servers, "daemons, `host:port`; the next one is asked if one does not do; also $"+serverEnv)
	f.DurationVar(&c.timeout, "timeout", 10*time.Second, "how long to try in all")
}

func (c *client) validate() error {
	var faults []error
	for _, s := range c.servers {
		if _, _, err := net.SplitHostPort(s); err != nil {
			faults = append(faults, usagef("server %q is not host:port", s))
		}
	}
	if len(c.servers) == 0 {
		faults = append(faults, usagef("no server given"))
	}
	if c.timeout <= 0 {
		faults = append(faults, usagef("timeout %v is not positive", c.timeout))
	}
	return errors.Join(faults...)
}

// calling says what may be asked again.
type calling int

const (
	// once: it does harm to ask a second daemon when the first may have acted
	// but did not say so.
	once calling = iota
	// repeatable: it does none.
	repeatable
	// insistent: nor does it to ask all of them again, as long as none is
	// active: that is a matter of moments.
	insistent
)

// electionPause is how long nobody is asked again who said that none is active.
const electionPause = 100 * time.Millisecond

// ask asks the daemons in their order. The next one is asked if one cannot be
// reached, or says that it cannot answer.
func ask[T any](ctx context.Context, c *client, how calling, fn func(context.Context, pb.AdminServiceClient) (T, error)) (T, error) {
	var resp T
	if err := c.validate(); err != nil {
		return resp, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	for said := error(nil); ; {
		resp, err := askEach(ctx, c, how, fn)
		if said != nil && ctx.Err() != nil && !errors.Is(err, errInterrupted) {
			return resp, said // more than that the time is over
		}
		if how != insistent || !noneActive(err) {
			return resp, err
		}
		said = err
		select {
		case <-ctx.Done():
			return resp, err
		case <-time.After(electionPause):
		}
	}
}

// noneActive reports whether some daemon said that it is not active, and none
// anything better.
func noneActive(err error) bool {
	var refused refusal
	return errors.As(err, &refused) && rpc.ReasonOf(refused.status.Err()) == cluster.NotController
}

func askEach[T any](ctx context.Context, c *client, how calling, fn func(context.Context, pb.AdminServiceClient) (T, error)) (T, error) {
	var resp T
	var faults []error
	for i, server := range c.servers {
		err := c.with(ctx, server, len(c.servers)-i, func(admin pb.AdminServiceClient) (err error) {
			resp, err = fn(ctx, admin)
			return err
		})
		switch {
		case errors.Is(ctx.Err(), context.Canceled):
			return resp, errInterrupted
		case err == nil || !elsewhere(err, how):
			return resp, err
		}
		faults = append(faults, err)
	}
	return resp, errors.Join(faults...)
}

// elsewhere reports whether another daemon is to be asked.
func elsewhere(err error, how calling) bool {
	var refused refusal
	if !errors.As(err, &refused) {
		return errors.As(err, new(unreachable))
	}
	return refused.status.Code() == codes.Unavailable &&
		(how != once || rpc.ReasonOf(refused.status.Err()) == cluster.NotController)
}

// with calls fn with a connection to a server, which is given its share of the
// time that is left to get through.
func (c *client) with(ctx context.Context, server string, shares int, fn func(pb.AdminServiceClient) error) error {
	deadline, _ := ctx.Deadline()
	limited, cancel := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(shares))
	defer cancel()
	conn, err := connect(limited, server)
	if err != nil {
		return unreachable{server, err}
	}
	defer func() { _ = conn.Close() }()
	if err := fn(pb.NewAdminServiceClient(conn)); err != nil {
		return refusal{server, status.Convert(err)}
	}
	return nil
}

// connect returns when gRPC can be spoken, or says why not.
func connect(ctx context.Context, server string) (*grpc.ClientConn, error) {
	var mu sync.Mutex
	cause := errors.New("it does not speak gRPC")
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			cause = dialFault(err)
		}
		return conn, err
	}
	conn, err := grpc.NewClient("passthrough:///"+server, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dial), grpc.WithKeepaliveParams(alive), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, err
	}
	conn.Connect()
	for {
		state := conn.GetState()
		if state == connectivity.Ready {
			return conn, nil
		}
		if state == connectivity.TransientFailure {
			_ = conn.Close()
			mu.Lock()
			defer mu.Unlock()
			return nil, cause
		}
		if !conn.WaitForStateChange(ctx, state) {
			return nil, errors.Join(errors.New("no answer in time"), conn.Close())
		}
	}
}

// dialFault drops what the caller knows already: the address.
func dialFault(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	var sys *os.SyscallError
	if errors.As(err, &sys) {
		err = sys.Err
	}
	return err
}
