package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

const (
	// attendTimeout bounds a dial of a daemon and its word who it is.
	attendTimeout = 5 * time.Second
	// attendAgain is how long after a connection that came to nothing the next
	// one is made.
	attendAgain = 2 * time.Second
)

// Attend holds a connection to the daemon with that nonce, at its endpoint, for
// as long as the context lasts. When one broke on which the daemon has said its
// nonce, and every dial of the same IP address and port since then was refused
// for DeathWindow, refused is called, and again from time to time while that
// goes on, with the time since it broke. A daemon that answers with another
// nonce proves nothing, nor does a connection that this side has closed, as it
// does when told to go away.
func Attend(ctx context.Context, endpoint, nonce string, refused func(address string, since time.Duration)) {
	for ctx.Err() == nil {
		address := attendOnce(ctx, endpoint, nonce)
		if address == "" {
			_ = pause(ctx, attendAgain)
			continue
		}
		broke := time.Now()
		redial(ctx, address, func() { refused(address, time.Since(broke)) })
		_ = pause(ctx, redialPause)
	}
}

// attendOnce holds one connection until it ends. It returns the address at the
// other end if it broke, and the daemon had said before who it is.
func attendOnce(ctx context.Context, endpoint, nonce string) string {
	limited, cancel := context.WithTimeout(ctx, attendTimeout)
	defer cancel()
	l, err := openLine(limited, endpoint)
	if err != nil {
		return ""
	}
	defer l.Close()
	conn, err := grpc.NewClient("passthrough:///"+endpoint, overLine(l), grpc.WithIdleTimeout(0),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return ""
	}
	defer conn.Close()
	who, err := pb.NewAdminServiceClient(conn).DescribeController(limited, &pb.DescribeControllerRequest{})
	if err != nil || who.GetNonce() != nonce {
		return ""
	}
	select {
	case <-ctx.Done():
		return ""
	case <-l.over:
		return l.broken()
	}
}

// overLine makes a client use that connection, and no other.
func overLine(l *line) grpc.DialOption {
	var used atomic.Bool
	return grpc.WithContextDialer(func(_ context.Context, address string) (net.Conn, error) {
		if used.Swap(true) {
			return nil, fmt.Errorf("connect to %s again: %w", address, errors.ErrUnsupported)
		}
		return l, nil
	})
}
