package broker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// redial keeps gRPC's own pause between two attempts at a daemon short: its
// default of up to two minutes would outlast a session.
var redial = grpc.ConnectParams{
	Backoff:           grpcbackoff.Config{BaseDelay: minBackoff, Multiplier: 2, Jitter: 0.2, MaxDelay: maxBackoff},
	MinConnectTimeout: 2 * time.Second,
}

// pool holds the connections to daemons, and knows which one to ask.
type pool struct {
	opts []grpc.DialOption

	mu      sync.Mutex
	closed  bool
	daemons *daemons
	active  string // the last that was asked by name
	conns   map[string]*grpc.ClientConn
}

func newPool(cfg Config) *pool {
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(redial),
	}
	return &pool{
		opts:    append(opts, cfg.DialOptions...),
		daemons: newDaemons(cfg.Daemons, newRand()),
		conns:   map[string]*grpc.ClientConn{},
	}
}

func newRand() *rand.Rand { return rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) }

// call makes one call to the daemon whose turn it is, within the timeout. After
// a failure the next call goes to another one.
func (p *pool) call(ctx context.Context, timeout time.Duration, f func(context.Context, *grpc.ClientConn) error) error {
	return p.callAt(ctx, "", timeout, f)
}

// callAt is call at a certain daemon, which need not be one of the list; empty:
// the one whose turn it is.
func (p *pool) callAt(ctx context.Context, addr string, timeout time.Duration, f func(context.Context, *grpc.ClientConn) error) error {
	addr, conn, err := p.conn(addr)
	if err != nil {
		return err
	}
	callCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = f(callCtx, conn)
	if err == nil {
		return nil
	}
	if ctx.Err() == nil {
		p.failed(addr)
	}
	return fmt.Errorf("daemon %s: %w", addr, err)
}

func (p *pool) conn(addr string) (string, *grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return "", nil, ErrClosed
	}
	if addr == "" {
		addr = p.daemons.current()
	} else {
		p.active = addr
	}
	conn := p.conns[addr]
	if conn == nil {
		var err error
		if conn, err = grpc.NewClient(addr, p.opts...); err != nil {
			p.daemons.failed(addr)
			return "", nil, status.Errorf(codes.Unavailable, "dial daemon %s: %v", addr, err)
		}
		p.conns[addr] = conn
	}
	return addr, conn, nil
}

func (p *pool) failed(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.daemons.failed(addr)
}

// learn takes in the daemons that there are, and leaves those that are gone.
func (p *pool) learn(endpoints []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.daemons.learn(endpoints)
	for addr, conn := range p.conns {
		if addr != p.active && !p.daemons.knows(addr) {
			conn.Close() // fails only when closed already
			delete(p.conns, addr)
		}
	}
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, conn := range p.conns {
		conn.Close()
	}
	clear(p.conns)
}

// pause waits, or returns the error of a context that ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
