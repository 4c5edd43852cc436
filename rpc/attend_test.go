package rpc

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// quiet is how long nothing must happen that should not.
const quiet = 5 * DeathWindow

// namesake is a daemon that only says who it is, on connections that a test
// can break.
type namesake struct {
	pb.UnimplementedAdminServiceServer
	net.Listener
	t      *testing.T
	nonce  string
	server *grpc.Server
	asked  chan struct{} // somebody has asked who it is

	mu    sync.Mutex
	conns []net.Conn
	full  chan struct{} // not nil: nothing is accepted until it is closed
}

func serveNamesake(t *testing.T, nonce string, l net.Listener) *namesake {
	t.Helper()
	n := &namesake{t: t, Listener: l, nonce: nonce, server: grpc.NewServer(), asked: make(chan struct{}, 10)}
	pb.RegisterAdminServiceServer(n.server, n)
	go func() { _ = n.server.Serve(n) }()
	t.Cleanup(n.server.Stop)
	return n
}

func (n *namesake) DescribeController(context.Context, *pb.DescribeControllerRequest) (*pb.DescribeControllerResponse, error) {
	defer func() { n.asked <- struct{}{} }()
	return &pb.DescribeControllerResponse{Nonce: n.nonce}, nil
}

func (n *namesake) Accept() (net.Conn, error) {
	c, err := n.Listener.Accept()
	n.mu.Lock()
	full := n.full
	if err == nil {
		n.conns = append(n.conns, c)
	}
	n.mu.Unlock()
	if full != nil {
		<-full
	}
	return c, err
}

// breakConns ends all connections as the death of a process would.
func (n *namesake) breakConns() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		_ = c.Close()
	}
	n.conns = nil
}

// awaitAsked waits until somebody has been told who it is, and has heard it.
func (n *namesake) awaitAsked() {
	n.t.Helper()
	select {
	case <-n.asked:
	case <-time.After(10 * time.Second):
		n.t.Fatal("nobody asks who is there")
	}
	<-time.After(50 * time.Millisecond) // the answer is read
}

func listenAt(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// attended is a namesake and the refusals of its address, from when it has said
// who it is.
func attended(t *testing.T, l net.Listener, nonce string) (*namesake, chan string) {
	t.Helper()
	n := serveNamesake(t, nonce, l)
	refused := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Attend(ctx, l.Addr().String(), "it", func(address string, _ time.Duration) { refused <- address })
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	n.awaitAsked()
	return n, refused
}

func TestAttendReportsADeath(t *testing.T) {
	t.Parallel()
	l := listenAt(t, "127.0.0.1:0")
	n, refused := attended(t, l, "it")
	began := time.Now()
	n.server.Stop()
	for range 2 { // and again, since it may have been too early
		select {
		case address := <-refused:
			if took := time.Since(began); address != l.Addr().String() || took < DeathWindow {
				t.Errorf("refused %s after %v, want %s after %v", address, took, l.Addr(), DeathWindow)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("no refusal is reported")
		}
	}
}

func TestAttendReportsNoDeath(t *testing.T) {
	cases := []struct {
		name  string
		nonce string
		then  func(t *testing.T, n *namesake)
	}{
		{"nothing happens", "it", func(*testing.T, *namesake) {}},
		{"somebody else is there, and dies", "another", func(_ *testing.T, n *namesake) { n.server.Stop() }},
		{"it stops in order", "it", func(_ *testing.T, n *namesake) { n.server.GracefulStop() }},
		{"the connection breaks, and it listens", "it", func(_ *testing.T, n *namesake) { n.breakConns() }},
		{"its listener is back within the window", "it", func(t *testing.T, n *namesake) {
			n.server.Stop()
			<-time.After(DeathWindow / 2)
			listenAt(t, n.Addr().String())
		}},
		{"its address is taken by another within the window", "it", func(t *testing.T, n *namesake) {
			n.server.Stop()
			<-time.After(DeathWindow / 2)
			serveNamesake(t, "another", listenAt(t, n.Addr().String()))
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n, refused := attended(t, listenAt(t, "127.0.0.1:0"), c.nonce)
			c.then(t, n)
			select {
			case address := <-refused:
				t.Errorf("refused %s", address)
			case <-time.After(quiet):
			}
		})
	}
}

// After a connection that broke without being refused a new one is made, and
// proves as much as the first.
func TestAttendsAgain(t *testing.T) {
	t.Parallel()
	n, refused := attended(t, listenAt(t, "127.0.0.1:0"), "it")
	n.breakConns()
	n.awaitAsked()
	n.server.Stop()
	select {
	case <-refused:
	case <-time.After(10 * time.Second):
		t.Fatal("no refusal is reported")
	}
}
