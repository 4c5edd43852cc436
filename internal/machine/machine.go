package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/version"
)

// Describe says where and when figures were taken, of the module in root. A
// report that is written while they are taken makes it no other commit.
func Describe(ctx context.Context, root, report string) string {
	commit := commit(ctx, root, report)
	return fmt.Sprintf("%s · %s, %d cores · %s %s · %s · etcd %s, one member · commit %s · load average %s before",
		time.Now().UTC().Format(time.DateOnly), cpuModel(), runtime.NumCPU(), runtime.GOOS, kernel(),
		runtime.Version(), version.Version, commit, load())
}

// commit is what was measured.
func commit(ctx context.Context, root, report string) string {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	id, err := git("describe", "--always")
	if err != nil {
		return "unknown"
	}
	if changed, err := git("status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)"+report); err != nil || changed != "" {
		id += "-dirty"
	}
	return id
}

func cpuModel() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(release))
}

// load is how many processes wanted to run in the last minute.
func load() string {
	avg, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(avg), " ")
	return first
}

// ModuleRoot is the directory of go.mod.
func ModuleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}
