package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo terminal: what a command writes to tty is shown, what is
// typed it reads from there.
type terminal struct {
	tty    *os.File
	master *os.File

	mu    sync.Mutex
	shown bytes.Buffer
}

func openTerminal(t *testing.T) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	x := &terminal{tty: tty, master: master}
	go func() {
		for b := make([]byte, 4096); ; {
			n, err := master.Read(b)
			x.mu.Lock()
			x.shown.Write(b[:n])
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		x.types(t, "\n") // to who still reads
		_ = tty.Close()  // which ends the reading above
	})
	return x
}

// screen is all that was shown.
func (x *terminal) screen() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.shown.String()
}

// awaits waits until something is shown.
func (x *terminal) awaits(t *testing.T, text string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q on the screen", text), func() bool { return strings.Contains(x.screen(), text) })
}

func (x *terminal) types(t *testing.T, text string) {
	t.Helper()
	if _, err := x.master.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// cli runs a command line at the terminal; what goes to stdout is apart.
func (x *terminal) cli(ctx context.Context, args ...string) result {
	var stdout bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(x.tty)
	root.SetOut(&stdout)
	root.SetErr(x.tty)
	cmd, err := root.ExecuteContextC(ctx)
	var stderr strings.Builder
	return result{args: args, code: report(&stderr, cmd, err), stdout: stdout.String(), stderr: stderr.String()}
}
