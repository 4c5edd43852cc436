package rpc

import (
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// A host that answers nothing any more refuses nothing: here by a queue of
// connections to be accepted that is full.
func TestAttendInABlackHole(t *testing.T) {
	t.Parallel()
	n, refused := attended(t, shortListener(t), "it")
	full := make(chan struct{})
	defer close(full)
	n.mu.Lock()
	n.full = full
	first := n.conns[0]
	n.mu.Unlock()
	for n := 0; ; n++ {
		c, err := net.DialTimeout("tcp", first.LocalAddr().String(), DeathWindow)
		if err != nil {
			break
		}
		defer c.Close()
		if n == 100 {
			t.Fatal("the queue is never full")
		}
	}
	_ = first.Close()
	select {
	case address := <-refused:
		t.Errorf("refused %s", address)
	case <-time.After(quiet):
	}
}

// shortListener lets hardly any connection wait.
func shortListener(t *testing.T) net.Listener {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "short listener")
	defer f.Close()
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
