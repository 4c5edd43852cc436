package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/etcdtest"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// process is a daemon in a process of its own.
type process struct {
	t       *testing.T
	cmd     *exec.Cmd
	started time.Time
	exited  chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// Write collects the log.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// startServe starts a daemon on a free port of loopback, if args do not say
// otherwise. It is killed when the test ends.
func startServe(t *testing.T, etcd string, args ...string) *process {
	t.Helper()
	return start(t, append([]string{"--etcd-endpoints", etcd}, args...)...)
}

// start is startServe with whatever etcd args name.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	args = append([]string{"serve", "--cluster", "test", "--listen", "127.0.0.1:0", "--lease-ttl", "2s"}, args...)
	p := &process{t: t, cmd: exec.Command(os.Args[0], args...), started: time.Now(), exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("log of %v:\n%s", args, p.logged())
		}
	})
	return p
}

// says waits until the log matches, and returns the first group.
func (p *process) says(pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	var found []string
	eventually(p.t, "the daemon says "+pattern, func() bool {
		found = re.FindStringSubmatch(p.logged())
		return found != nil
	})
	return found[len(found)-1]
}

// address is where the daemon serves.
func (p *process) address() string {
	p.t.Helper()
	return p.says(`msg=serving .* advertised=(\S+)`)
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// exits waits for the end of the process, at most limit.
func (p *process) exits(limit time.Duration) *os.ProcessState {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(limit):
		p.t.Fatalf("still running after %v", limit)
	}
	return p.cmd.ProcessState
}

// stops ends the process in order.
func (p *process) stops(s os.Signal) {
	p.t.Helper()
	p.signal(s)
	if state := p.exits(10 * time.Second); state.ExitCode() != 0 {
		p.t.Fatalf("after %v: %v", s, state)
	}
	p.says("msg=stopped")
}

// seat is what etcd holds of the election.
type seat struct {
	controller string // the id, empty if the key is gone
	candidates int
	terms      map[int64]*pb.TermRecord
}

func seatOf(t *testing.T, c *clientv3.Client) seat {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	k := cluster.KeysOf("test")
	resp, err := c.Get(ctx, k.Prefix(), clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	s := seat{terms: map[int64]*pb.TermRecord{}}
	for _, kv := range resp.Kvs {
		name := strings.TrimPrefix(string(kv.Key), k.Prefix())
		holder, term := &pb.ControllerRecord{}, &pb.TermRecord{}
		switch {
		case name == "controller":
			err = proto.Unmarshal(kv.Value, holder)
			s.controller = holder.GetId()
		case strings.HasPrefix(name, "candidates/"):
			s.candidates++
		case strings.HasPrefix(name, "terms/"):
			err = proto.Unmarshal(kv.Value, term)
			s.terms[term.GetEpoch()] = term
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestServeStopsInOrder(t *testing.T) {
	etcd := etcdtest.Start(t)
	client := etcd.Client(t)
	a := startServe(t, etcd.Endpoint(), "--id", "a")
	a.says(`msg=active controller=a epoch=1`)
	b := startServe(t, etcd.Endpoint(), "--id", "b")
	eventually(t, "b is a candidate", func() bool { return seatOf(t, client).candidates == 2 })

	told := time.Now()
	a.stops(syscall.SIGTERM)
	b.says(`msg=active controller=b epoch=2`)
	if took := time.Since(told); took > 2*time.Second {
		t.Errorf("b took over after %v", took)
	}
	s := seatOf(t, client)
	if s.controller != "b" || s.candidates != 1 || s.terms[1].GetEndCause() != pb.EndCause_END_CAUSE_SHUTDOWN || s.terms[1].GetEndedMs() == 0 {
		t.Errorf("after the first stop: %+v", s)
	}
	r := cli("controller", "history", "--no-headers", "--server", b.address()).want(t, exitOK)
	wantLines(t, r.lines(), `2 b `+timePattern+` - \S+ current - -`,
		`1 a `+timePattern+` `+timePattern+` \S+ shutdown b the daemon was told to stop`)

	b.stops(os.Interrupt)
	s = seatOf(t, client)
	if s.controller != "" || s.candidates != 0 || s.terms[2].GetEndCause() != pb.EndCause_END_CAUSE_SHUTDOWN {
		t.Errorf("after the second stop: %+v", s)
	}
	if leases := etcd.Leases(t.Context()); len(leases) != 0 {
		t.Errorf("leases are left: %v", leases)
	}
}

func TestServeWithoutEtcd(t *testing.T) {
	etcd := etcdtest.Start(t)
	etcd.Stop()
	a := startServe(t, etcd.Endpoint(), "--id", "a")
	a.says(`level=WARN msg="etcd has not answered yet, still trying"`)
	r := cli("controller", "status", "--server", a.address()).want(t, exitOK)
	if !strings.Contains(r.stdout, "nothing read from etcd yet") {
		t.Error(r.stdout)
	}
	etcd.Restart()
	a.says(`msg=active controller=a epoch=1`)
}

func TestServeStopsWithoutEtcd(t *testing.T) {
	t.Run("never reached", func(t *testing.T) {
		t.Parallel()
		a := startServe(t, deaf(t))
		a.address()
		a.stops(syscall.SIGTERM)
	})
	t.Run("lost", func(t *testing.T) {
		t.Parallel()
		etcd := etcdtest.Start(t)
		a := startServe(t, etcd.Endpoint(), "--id", "a")
		a.says(`msg=active`)
		etcd.Stop()
		a.stops(syscall.SIGTERM)
	})
	t.Run("lost long ago", func(t *testing.T) {
		t.Parallel()
		etcd := etcdtest.Start(t)
		a := startServe(t, etcd.Endpoint(), "--id", "a")
		a.says(`msg=active`)
		etcd.Stop()
		a.says(`msg="not active any more" .* epoch=1`)
		a.stops(syscall.SIGTERM)
	})
	t.Run("second signal", func(t *testing.T) {
		t.Parallel()
		etcd := etcdtest.Start(t)
		a := startServe(t, etcd.Endpoint(), "--id", "a")
		a.says(`msg=active`)
		etcd.Stop()
		a.signal(syscall.SIGTERM)
		a.says(`msg="stopping in order, a second signal stops at once"`)
		told := time.Now()
		a.signal(syscall.SIGTERM)
		state := a.exits(patience)
		if took := time.Since(told); took > time.Second {
			t.Errorf("stopped %v after the second signal", took)
		}
		if status := state.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGTERM {
			t.Errorf("ended by %v", state)
		}
	})
}

func TestServeWarnsOfTheNetwork(t *testing.T) {
	const warning = "LISTENING BEYOND LOOPBACK"
	etcd := deaf(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	open := startServe(t, etcd, "--listen", "0.0.0.0:0")
	open.says(`level=WARN msg="` + warning + ` .* address=(0\.0\.0\.0|\[::\]):`)
	if a := open.address(); !strings.HasPrefix(a, host+":") {
		t.Errorf("advertised %s, which others cannot dial, want host %s", a, host)
	}
	closed := startServe(t, etcd, "--advertise", "proxy.example.org:7070")
	if a := closed.address(); a != "proxy.example.org:7070" {
		t.Errorf("advertised %s", a)
	}
	if log := closed.logged(); strings.Contains(log, warning) {
		t.Errorf("warns on loopback:\n%s", log)
	}
}

func TestServeAddressInUse(t *testing.T) {
	taken := listening(t, silent)
	r := cli("serve", "--listen", taken, "--etcd-endpoints", deaf(t)).want(t, exitFailed)
	if want := "Error: listen on " + taken + ": "; !strings.HasPrefix(r.stderr, want) || !strings.Contains(r.stderr, "address already in use") {
		t.Errorf("stderr %s, want %s...", r.stderr, want)
	}
}

// TestServeSameID: two daemons with one id are two daemons, and both say so.
func TestServeSameID(t *testing.T) {
	etcd := etcdtest.Start(t)
	client := etcd.Client(t)
	x := startServe(t, etcd.Endpoint(), "--id", "twin")
	x.says(`msg=active`)
	y := startServe(t, etcd.Endpoint(), "--id", "twin")
	eventually(t, "both are candidates", func() bool { return seatOf(t, client).candidates == 2 })

	for _, pair := range []struct {
		p, other *process
		role     string
	}{{x, y, "active"}, {y, x, "standby"}} {
		eventually(t, "it says that there is another", func() bool {
			v := decode[statusView](t, cli("controller", "status", "-o", "json", "--server", pair.p.address()))
			if v.Role != pair.role {
				t.Fatalf("role %s, want %s", v.Role, pair.role)
			}
			return strings.Contains(strings.Join(v.Problems, "\n"), "another daemon at "+pair.other.address()+" has the same id twin")
		})
	}
	v := decode[controllersView](t, cli("controller", "list", "-o", "json", "--server", x.address()))
	if len(v.Controllers) != 2 || v.Controllers[0].Active == v.Controllers[1].Active || v.Controllers[0].Nonce == v.Controllers[1].Nonce {
		t.Errorf("%+v", v)
	}

	x.signal(os.Kill)
	x.exits(patience)
	y.says(`msg=active controller=twin epoch=2`)
	if s := seatOf(t, client); s.terms[1].GetEndCause() != pb.EndCause_END_CAUSE_UNSPECIFIED || s.terms[1].GetNonce() == s.terms[2].GetNonce() {
		t.Errorf("%+v", s)
	}
}

// TestRunAsProgram: exit codes and streams of the program itself.
func TestRunAsProgram(t *testing.T) {
	for args, want := range map[string]int{"version": exitOK, "bogus": exitUsage, "topic list --server " + deaf(t): exitAway} {
		cmd := exec.Command(os.Args[0], strings.Fields(args)...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if code := cmd.ProcessState.ExitCode(); code != want || (stdout.Len() > 0) != (want == exitOK) || (stderr.Len() > 0) != (want != exitOK) {
			t.Errorf("%s: exit code %d, want %d\nstdout: %s\nstderr: %s", args, code, want, &stdout, &stderr)
		}
	}
}
