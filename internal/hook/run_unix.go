//go:build unix

package hook

import (
	"os/exec"
	"syscall"
)

// group gives a command a process group of its own, and the end of its context
// to all of it.
func group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}

// killGroup ends what is left of a command's group.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
