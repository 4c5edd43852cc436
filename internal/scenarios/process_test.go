package scenarios

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/epoch"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// programDir is where programs were built, if any was.
var programDir string

// program builds controllerd once for all tests.
var program = sync.OnceValues(func() (string, error) {
	return build("controllerd", "github.com/controllerd/controllerd/cmd/controllerd")
})

var makeProgramDir = sync.OnceValues(func() (string, error) {
	var err error
	programDir, err = os.MkdirTemp("", "scenarios")
	return programDir, err
})

// build builds a program for all tests.
func build(name, pkg string) (string, error) {
	dir, err := makeProgramDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	if out, err := exec.Command("go", "build", "-o", path, pkg).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return path, nil
}

func TestMain(m *testing.M) {
	if os.Getenv(asMember) != "" {
		runMember()
	}
	code := m.Run()
	_ = os.RemoveAll(programDir)
	os.Exit(code)
}

// process is a daemon as a process of its own.
type process struct {
	w        *world
	id       string
	endpoint string
	admin    pb.AdminServiceClient
	cmd      *exec.Cmd
	exited   chan struct{} // closed when the process is gone
}

// process starts a daemon and waits until it is a candidate.
func (w *world) process(id string, opts ...func(*exec.Cmd)) *process {
	w.t.Helper()
	p := w.launch(id, append([]func(*exec.Cmd){with("--etcd-endpoints", strings.Join(w.endpoints, ","))}, opts...)...)
	p.joined()
	return p
}

// with adds flags; later ones replace earlier ones.
func with(flags ...string) func(*exec.Cmd) {
	return func(c *exec.Cmd) { c.Args = append(c.Args, flags...) }
}

// launch starts a daemon that does not know yet where etcd is.
func (w *world) launch(id string, opts ...func(*exec.Cmd)) *process {
	w.t.Helper()
	path, err := program()
	if err != nil {
		w.t.Fatal(err)
	}
	p := &process{w: w, id: id, exited: make(chan struct{})}
	p.cmd = exec.Command(path, "serve", "--cluster", clusterName,
		"--id", id, "--listen", "127.0.0.1:0", "--lease-ttl", ttl.String(), "--election", strategy.String())
	p.cmd.Stderr = prefixed{w.log, "process " + id + ": "}
	for _, o := range opts {
		o(p.cmd)
	}
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait()
	}()
	w.t.Cleanup(p.kill)
	return p
}

// joined waits until a daemon is a candidate.
func (p *process) joined() {
	w := p.w
	w.t.Helper()
	w.await(p.id+" is a candidate", limit, func() bool {
		w.tape.look(func(im *cluster.Image) {
			for _, c := range im.Candidates {
				if c.Record.GetId() == p.id {
					p.endpoint = c.Record.GetEndpoint()
				}
			}
		})
		return p.endpoint != ""
	})
	p.admin = pb.NewAdminServiceClient(dial(w.t, p.endpoint))
	w.mu.Lock()
	w.processes = append(w.processes, p)
	w.mu.Unlock()
}

func (p *process) signal(s syscall.Signal) {
	p.w.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.w.t.Fatalf("send %v to %s: %v", s, p.id, err)
	}
}

// freeze stops the process and waits until it has stopped.
func (p *process) freeze() {
	p.w.t.Helper()
	p.signal(syscall.SIGSTOP)
	p.w.await(p.id+" is stopped", soon, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		_, state, ok := bytes.Cut(stat, []byte(") "))
		return err != nil || ok && state[0] == 'T'
	})
}

func (p *process) thaw() {
	p.w.t.Helper()
	p.signal(syscall.SIGCONT)
}

// kill ends the process if it still runs.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.exited
}

func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// prefixed marks what a process logs.
type prefixed struct {
	log    *logBuffer
	prefix string
}

func (p prefixed) Write(b []byte) (int, error) {
	if _, err := p.log.Write(slices.Concat([]byte(p.prefix), b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// seated waits until etcd shows a seat of an epoch of at least min.
func (w *world) seated(least cluster.Epoch, within time.Duration) (id string) {
	w.t.Helper()
	w.await(fmt.Sprintf("somebody holds the seat under epoch %d or above", least), within, func() bool {
		claim, who := w.seat()
		id = who
		return claim.Epoch >= least
	})
	return id
}

// seatTo brings the seat to a daemon, if it is not there: one with a short
// lease may have lost it to a busy machine.
func (w *world) seatTo(id string) epoch.Claim {
	w.t.Helper()
	for n := range 200 {
		claim, who := w.seat()
		if who == id {
			return claim
		}
		r := &pb.TransferControllerRequest{Successor: id, Reason: "test"}
		if _, err := w.someAdmin(n).TransferController(w.call(), r); err == nil {
			w.await("somebody follows", soon, func() bool { next, _ := w.seat(); return next.Epoch > claim.Epoch })
		} else {
			pass(20 * time.Millisecond) // between two terms, or the daemon does not stand yet
		}
	}
	w.t.Fatalf("%s does not get the seat", id)
	return epoch.Claim{}
}

// obeyed waits until every live broker has accepted a command of an epoch.
func (w *world) obeyed(e cluster.Epoch, within time.Duration) {
	w.t.Helper()
	w.mu.Lock()
	brokers := slices.Clone(w.brokers)
	w.mu.Unlock()
	w.await(fmt.Sprintf("every broker obeys epoch %d", e), within, func() bool {
		for _, b := range brokers {
			if b.alive() && b.ControllerEpoch() < e {
				return false
			}
		}
		return true
	})
}
