package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/controllerd/controllerd/internal/etcdtest"
	"github.com/controllerd/controllerd/rpc"
)

// watchdogInterval is that of the tests; twice as often there must be a beat.
const watchdogInterval = 100 * time.Millisecond

// listenAsManager is a service manager to whatever the test starts from now
// on: it returns the messages that it gets.
func listenAsManager(t *testing.T) <-chan string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", fmt.Sprint(watchdogInterval.Microseconds()))
	t.Setenv("WATCHDOG_PID", "")
	messages := make(chan string, 1000)
	go func() {
		defer close(messages)
		b := make([]byte, 4096)
		for {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			messages <- string(b[:n])
		}
	}()
	return messages
}

// hear waits for a message that begins so, and returns what came before it.
func hear(t *testing.T, messages <-chan string, begins string) (before []string) {
	t.Helper()
	late := time.After(patience)
	for {
		select {
		case m := <-messages:
			if strings.HasPrefix(m, begins) {
				return before
			}
			before = append(before, m)
		case <-late:
			t.Fatalf("waited %v for %q, heard %d messages, at last %q", patience, begins, len(before), before[max(0, len(before)-3):])
		}
	}
}

// hearNothing fails if there is more than what was on its way.
func hearNothing(t *testing.T, messages <-chan string) {
	t.Helper()
	quiet := time.After(10 * watchdogInterval)
	for on := 0; ; on++ {
		select {
		case m := <-messages:
			if on > 0 {
				t.Fatalf("heard %q", m)
			}
		case <-quiet:
			return
		}
	}
}

func TestNotify(t *testing.T) {
	etcd := etcdtest.Start(t)
	etcd.Stop()
	messages := listenAsManager(t)
	p := startServe(t, etcd.Endpoint(), "--id", "a")
	for range 3 {
		for _, m := range hear(t, messages, "EXTEND_TIMEOUT_USEC=100000") {
			if m != "STATUS=waiting for etcd" {
				t.Errorf("without etcd: %q", m)
			}
		}
	}
	etcd.Restart()
	for _, m := range hear(t, messages, "READY=1\nSTATUS=") {
		if !strings.HasPrefix(m, "EXTEND_TIMEOUT_USEC=") && m != "WATCHDOG=1" {
			t.Errorf("before it was ready: %q", m)
		}
	}
	hear(t, messages, "STATUS=active in epoch 1")
	for range 3 {
		hear(t, messages, "WATCHDOG=1")
	}

	p.signal(syscall.SIGSTOP)
	hearNothing(t, messages)
	p.signal(syscall.SIGCONT)
	hear(t, messages, "WATCHDOG=1")

	p.signal(syscall.SIGTERM)
	hear(t, messages, "STOPPING=1\nSTATUS=stopping in order")
	if state := p.exits(patience); state.ExitCode() != 0 {
		t.Error(state)
	}
}

// TestWatchdogSeesAHungLoop: the process lives and its other goroutines run,
// but nothing comes through the one that decides.
func TestWatchdogSeesAHungLoop(t *testing.T) {
	w := newWorld(t, 1, 0)
	core := w.daemons[0].Controller
	messages := listenAsManager(t)
	ctx, cancel := context.WithCancel(context.Background())
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		manager{core, quietly}.follow(ctx)
	}()
	hear(t, messages, "READY=1\n")
	hear(t, messages, "WATCHDOG=1")

	hung, release := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(release) })
	defer goOn()
	go func() {
		_ = core.Await(ctx, func(rpc.View) bool { close(hung); <-release; return true })
	}()
	<-hung
	hearNothing(t, messages)
	goOn()
	hear(t, messages, "WATCHDOG=1")

	cancel()
	hear(t, messages, "STOPPING=1")
	<-followed
}

// TestNotifyNobody: without a service manager, and with one that is gone, a
// daemon runs as ever.
func TestNotifyNobody(t *testing.T) {
	etcd := etcdtest.Start(t)
	for _, socket := range []string{"", filepath.Join(t.TempDir(), "gone")} {
		t.Setenv("NOTIFY_SOCKET", socket)
		p := startServe(t, etcd.Endpoint())
		p.says("msg=active")
		p.stops(os.Interrupt)
		if complains := strings.Contains(p.logged(), "does not listen"); complains != (socket != "") {
			t.Errorf("socket %q: complains %v", socket, complains)
		}
	}
}

// TestAbort: what a watchdog does to a daemon that hangs leaves its stacks in
// the log.
func TestAbort(t *testing.T) {
	p := startServe(t, deaf(t))
	p.says("nothing read from etcd yet") // so it runs
	p.signal(syscall.SIGABRT)
	if state := p.exits(patience); state.ExitCode() != 2 {
		t.Errorf("exit: %v, want the 2 of a Go program that panics, which the unit restarts", state)
	}
	p.says(`goroutine \d+ .*\n(.*\n)*.*controller\.\(\*Controller\)\.own`)
}

func TestRole(t *testing.T) {
	for want, r := range map[string]role{
		"waiting for etcd":                {},
		"active in epoch 7":               {loaded: true, active: true, healthy: true, held: true, holder: "a", epoch: 7},
		"standby, b is active in epoch 7": {loaded: true, healthy: true, held: true, holder: "b", epoch: 7},
		"standby, nobody is active":       {loaded: true, healthy: true, epoch: 7},
		"standby, nobody is active; something is wrong, see \"controllerd controller status\"": {loaded: true},
	} {
		if got := r.String(); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
}
