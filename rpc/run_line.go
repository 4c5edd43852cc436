package rpc

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
)

const (
	// DeathWindow is for how long every dial of an address has to be refused,
	// from when the connection to it broke, to prove that nobody listens there.
	DeathWindow = 200 * time.Millisecond
	// firstRedial is before the first dial in that time, redialPause between two,
	// slowRedial after it.
	firstRedial = 50 * time.Millisecond
	redialPause = 20 * time.Millisecond
	slowRedial  = time.Second
)

// line is a TCP connection that knows how it ended.
type line struct {
	net.Conn
	over  chan struct{} // closed with its end
	once  sync.Once
	broke bool // not by this side; to be looked at once over is closed
}

// openLine connects to host:port, whatever the environment says of proxies: what
// is refused must be the peer's own.
func openLine(ctx context.Context, address string) (*line, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &line{Conn: conn, over: make(chan struct{})}, nil
}

// Read notes the end. Somebody has to read all the time, as gRPC does.
func (l *line) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		l.end(true)
	}
	return n, err
}

// Write notes the end too: it may come here first.
func (l *line) Write(b []byte) (int, error) {
	n, err := l.Conn.Write(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		l.end(true)
	}
	return n, err
}

// Close is an end that proves nothing.
func (l *line) Close() error {
	l.end(false)
	return l.Conn.Close()
}

func (l *line) end(broke bool) {
	l.once.Do(func() {
		l.broke = broke
		close(l.over)
	})
}

// broken is the address at the other end if the connection broke, else empty.
func (l *line) broken() string {
	select {
	case <-l.over:
		if l.broke {
			return l.RemoteAddr().String()
		}
	default:
	}
	return ""
}

// lastLine is the connection that a client has made last.
type lastLine struct{ atomic.Pointer[line] }

// dialer is an option that makes the client's connections lines.
func (p *lastLine) dialer() grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		l, err := openLine(ctx, address)
		if err != nil {
			return nil, err
		}
		p.Store(l)
		return l, nil
	})
}

func (p *lastLine) broken() string {
	if l := p.Load(); l != nil {
		return l.broken()
	}
	return ""
}

// redial dials an address whose line broke just now, until it is not refused or
// the context ends. It reports when all dials were refused for DeathWindow, and
// from time to time while that goes on. The first dial waits a moment: a process
// that dies may close its listener last.
func redial(ctx context.Context, address string, refused func()) {
	began := time.Now()
	for wait := firstRedial; pause(ctx, wait) == nil; {
		at := time.Since(began)
		switch {
		case !refuses(ctx, address):
			return
		case at >= DeathWindow:
			refused()
			wait = slowRedial
		default:
			wait = min(redialPause, DeathWindow-at)
		}
	}
}

// refuses reports whether a connection is refused. A timeout, or any other
// error, says nothing about who is there.
func refuses(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, DeathWindow)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// pause waits, unless the context ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
