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
	"syscall"
)

// bench is what all rows share: a built binary and a folder for everything.
type bench struct {
	dir    string
	binary string
}

func newBench(ctx context.Context, root string) (*bench, error) {
	dir, err := os.MkdirTemp("", "controllerd-bench-")
	if err != nil {
		return nil, err
	}
	b := &bench{dir: dir, binary: filepath.Join(dir, "controllerd")}
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
	p := &process{cmd: exec.Command(b.binary, args...), log: filepath.Join(b.dir, name+".log"), done: make(chan struct{})}
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
