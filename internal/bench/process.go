package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// bench is what all rows share: a built binary and a folder for everything.
type bench struct {
	dir    string
	binary string
	scale  float64
}

// scaled is a number of partitions or brokers, at least least.
func (b *bench) scaled(n, least int) int { return max(least, int(float64(n)*b.scale)) }

func newBench(ctx context.Context, root string, scale float64) (*bench, error) {
	dir, err := os.MkdirTemp("", "controllerd-bench-")
	if err != nil {
		return nil, err
	}
	b := &bench{dir: dir, binary: filepath.Join(dir, "controllerd"), scale: scale}
	build := exec.CommandContext(ctx, "go", "build", "-C", root, "-trimpath", "-o", b.binary, "./cmd/controllerd")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("build controllerd: %w\n%s", err, out), os.RemoveAll(dir))
	}
	return b, nil
}

func (b *bench) close() { _ = os.RemoveAll(b.dir) }

// process is one that the bench started.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// start runs controllerd; its output goes to a file of that name.
func (b *bench) start(name string, args ...string) (*process, error) {
	return b.run(name, exec.Command(b.binary, args...))
}

// startSelf runs the bench itself with other flags.
func (b *bench) startSelf(name string, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return b.run(name, exec.Command(self, args...))
}

func (b *bench) run(name string, cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, log: filepath.Join(b.dir, name+".log"), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(os.Environ(), "TMPDIR="+b.dir)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// kill returns when the process has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// freeAddr is an address of loopback for a process to listen on. It is outside
// of the range from which the system takes ports by itself, so nobody gets it
// by chance in between.
func freeAddr() (string, error) {
	for {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000)))
		if err == nil {
			return l.Addr().String(), l.Close()
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return "", err
		}
	}
}

// cpu is how many seconds of a core the process has used so far.
func (p *process) cpu() (float64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	return cpuOf(string(stat))
}

// cpuOf reads a line of /proc/PID/stat. Its second field is a name in
// parentheses, which may hold anything; times are in hundredths.
func cpuOf(stat string) (float64, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("unexpected statistics of a process: %q", stat)
	}
	user, errUser := strconv.ParseInt(fields[11], 10, 64)
	system, errSystem := strconv.ParseInt(fields[12], 10, 64)
	return float64(user+system) / 100, errors.Join(errUser, errSystem)
}
