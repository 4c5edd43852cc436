package netproxy_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/controllerd/controllerd/internal/netproxy"
)

const patience = 20 * time.Second

// echo answers each connection with what it sends.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func start(t *testing.T) *netproxy.Proxy {
	p, err := netproxy.Start(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func dial(t *testing.T, p *netproxy.Proxy) net.Conn {
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// hear waits for the echo of what was sent.
func hear(t *testing.T, c net.Conn, text string, within time.Duration) error {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, len(text))
	if _, err := io.ReadFull(c, buf); err != nil {
		return err
	}
	if string(buf) != text {
		t.Fatalf("heard %q, want %q", buf, text)
	}
	return nil
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestForwards(t *testing.T) {
	c := dial(t, start(t))
	say(t, c, "one")
	if err := hear(t, c, "one", patience); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := hear(t, c, "x", patience); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

func TestBlackholeHoldsBackAndBreaksNothing(t *testing.T) {
	p := start(t)
	old := dial(t, p)
	say(t, old, "one")
	if err := hear(t, old, "one", patience); err != nil {
		t.Fatal(err)
	}
	p.Blackhole()
	fresh := dial(t, p)
	for _, c := range []net.Conn{old, fresh} {
		say(t, c, "two")
		if err := hear(t, c, "two", 100*time.Millisecond); !errors.Is(err, syscall.ETIMEDOUT) && !isTimeout(err) {
			t.Errorf("in the black hole: %v", err)
		}
	}
	p.Heal()
	for _, c := range []net.Conn{old, fresh} {
		if err := hear(t, c, "two", patience); err != nil {
			t.Errorf("healed: %v", err)
		}
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func TestResetAndRefuse(t *testing.T) {
	p := start(t)
	old := dial(t, p)
	say(t, old, "one")
	if err := hear(t, old, "one", patience); err != nil {
		t.Fatal(err)
	}
	p.Reset()
	if err := hear(t, old, "x", patience); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reset: %v", err)
	}
	fresh := dial(t, p)
	say(t, fresh, "two")
	if err := hear(t, fresh, "two", patience); err != nil {
		t.Errorf("after a reset: %v", err)
	}
	p.Refuse()
	if err := hear(t, fresh, "x", patience); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("refused, old connection: %v", err)
	}
	c, err := net.Dial("tcp", p.Addr())
	if err == nil { // else it was broken before the dial returned
		err = hear(t, c, "x", patience)
		_ = c.Close()
	}
	if err == nil || isTimeout(err) {
		t.Errorf("refused, new connection: %v", err)
	}
	p.Heal()
	again := dial(t, p)
	say(t, again, "three")
	if err := hear(t, again, "three", patience); err != nil {
		t.Errorf("healed: %v", err)
	}
}

// A connection may be reset and the proxy closed while data is held back.
func TestEndsInABlackHole(t *testing.T) {
	p := start(t)
	c := dial(t, p)
	say(t, c, "one")
	if err := hear(t, c, "one", patience); err != nil {
		t.Fatal(err)
	}
	p.Blackhole()
	say(t, c, "two")
	p.Reset()
	if err := hear(t, c, "x", patience); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reset: %v", err)
	}
}

// Latency delays, but what is sent in one go arrives in one go.
func TestLatency(t *testing.T) {
	const latency, messages = 50 * time.Millisecond, 20
	p := start(t)
	c := dial(t, p)
	p.SetLatency(latency)
	begin := time.Now()
	for range messages {
		say(t, c, "m")
	}
	for range messages {
		if err := hear(t, c, "m", patience); err != nil {
			t.Fatal(err)
		}
	}
	if d := time.Since(begin); d < 2*latency || d > messages*latency {
		t.Errorf("%d messages took %v at a latency of %v", messages, d, latency)
	}
}
