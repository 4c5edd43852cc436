package check

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

const (
	root    = "../.."
	user    = 65532 // the image's, as the Dockerfile and the manifests must say
	version = "v1.2.3-test"
)

// stages are those of the Dockerfile, of which BuildKit's own parser and rules
// have nothing to say.
func stages(t *testing.T) (build, final instructions.Stage) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range parsed.Warnings {
		t.Errorf("Dockerfile: %s", w.Short)
	}
	rules := linter.New(&linter.Config{Warn: func(rule, _, _, message string, at []parser.Range) {
		t.Errorf("Dockerfile:%d: %s: %s", at[0].Start.Line, rule, message)
	}})
	all, _, err := instructions.Parse(parsed.AST, rules)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].Name != "build" || all[1].BaseName != "scratch" {
		t.Fatalf("want a stage build and one from scratch: %+v", all)
	}
	return all[0], all[1]
}

// command is the last instruction of a kind in a stage.
func command[T instructions.Command](t *testing.T, s instructions.Stage) T {
	t.Helper()
	for _, c := range slices.Backward(s.Commands) {
		if c, ok := c.(T); ok {
			return c
		}
	}
	t.Fatalf("no %T in %s", *new(T), s.OrigCmd)
	panic("unreachable")
}

// contextOf copies what "COPY . ." would bring into the stage.
func contextOf(t *testing.T, to string) {
	t.Helper()
	ignored, err := os.Open(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ignored.Close() }()
	patterns, err := ignorefile.ReadAll(ignored)
	if err != nil {
		t.Fatal(err)
	}
	matcher, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	list := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	names, err := list.Output()
	if err != nil {
		t.Fatalf("list files: %v", err)
	}
	for name := range strings.FieldsSeq(string(names)) {
		if out, err := matcher.MatchesOrParentMatches(name); err != nil || out {
			continue
		}
		info, err := os.Stat(filepath.Join(root, name))
		if os.IsNotExist(err) { // deleted, and not yet committed
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		copyFile(t, filepath.Join(root, name), filepath.Join(to, name), info.Mode())
	}
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, text, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// image does by hand what docker build does, and returns the root of the image.
// The folder of the build stage is a temporary one, with this machine's tools.
func image(t *testing.T) string {
	t.Helper()
	build, final := stages(t)
	stage, made := t.TempDir(), t.TempDir()
	contextOf(t, stage)
	workdir := command[*instructions.WorkdirCommand](t, build).Path
	env := append(os.Environ(), "VERSION="+version, "COMMIT=abc", "DATE=2026-01-02T03:04:05Z")
	for _, c := range build.Commands {
		run, ok := c.(*instructions.RunCommand)
		if !ok {
			continue
		}
		sh := exec.Command("sh", "-c", strings.Join(run.CmdLine, " "))
		sh.Dir, sh.Env = stage, env
		if out, err := sh.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", run, err, out)
		}
	}
	for _, c := range final.Commands {
		if copied, ok := c.(*instructions.CopyCommand); ok {
			for _, from := range copied.SourcePaths {
				if inside, ok := strings.CutPrefix(from, workdir+"/"); ok {
					from = filepath.Join(stage, inside)
				}
				place(t, from, filepath.Join(made, copied.DestPath), copied.Chown)
			}
		}
	}
	return made
}

// place copies one file, or an empty folder, into the image.
func place(t *testing.T, from, to, owner string) {
	t.Helper()
	info, err := os.Stat(from)
	if err != nil {
		t.Fatal(err)
	}
	if info.IsDir() {
		if err := os.MkdirAll(to, info.Mode()); err != nil {
			t.Fatal(err)
		}
	} else {
		copyFile(t, from, to, info.Mode())
	}
	if owner != "" && owner != fmt.Sprintf("%d:%d", user, user) {
		t.Fatalf("%s is given to %s", to, owner)
	}
	if owner != "" && os.Getuid() == 0 {
		if err := os.Chown(to, user, user); err != nil {
			t.Fatal(err)
		}
	}
}

// inside runs a command in the image: nothing else is in its root, and it is
// not root. Without the right to become somebody else it is in a user namespace.
func inside(made string, args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: made}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: user, Gid: user}
		return cmd
	}
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getuid(), Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getgid(), Size: 1}}
	return cmd
}

var advertised = regexp.MustCompile(`msg=serving .* advertised=(\S+)`)

// TestImage: what the Dockerfile makes is static, is not root, knows its
// version, and is all that a daemon with a member of etcd needs.
func TestImage(t *testing.T) {
	_, final := stages(t)
	if got := command[*instructions.UserCommand](t, final).User; got != fmt.Sprintf("%d:%d", user, user) {
		t.Errorf("the user is %s", got)
	}
	entry := command[*instructions.EntrypointCommand](t, final).CmdLine
	made := image(t)
	mustBeStatic(t, filepath.Join(made, entry[0]))

	out, err := inside(made, append(entry, "version", "-o", "json")...).CombinedOutput()
	var v struct{ Version, Commit, Date string }
	if err != nil || json.Unmarshal(out, &v) != nil || v.Version != version || v.Commit != "abc" || v.Date != "2026-01-02T03:04:05Z" {
		t.Errorf("version: %v\n%s", err, out)
	}

	// With ports of loopback that are free: the last flag wins.
	args := slices.Concat(entry, command[*instructions.CmdCommand](t, final).CmdLine, []string{"--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"})
	daemon := inside(made, args...)
	daemon.Env = []string{"CONTROLLERD_EMBEDDED_ETCD=/var/lib/controllerd", "CONTROLLERD_EMBEDDED_ETCD_LISTEN_CLIENT=127.0.0.1:0"}
	log := start(t, daemon)
	address := ""
	for line := range log {
		if found := advertised.FindStringSubmatch(line); found != nil {
			address = found[1]
		}
		if strings.Contains(line, "msg=active") {
			break
		}
	}
	health := command[*instructions.HealthCheckCommand](t, final).Health.Test
	check := inside(made, health[1:]...)
	check.Env = []string{"CONTROLLERD_SERVER=" + address}
	if out, err := check.CombinedOutput(); health[0] != "CMD" || err != nil {
		t.Errorf("%q: %v\n%s", health, err, out)
	}
	if err := daemon.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for range log { // until it ends
	}
	if err := daemon.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// start starts a command and returns the lines of its log.
func start(t *testing.T, cmd *exec.Cmd) <-chan string {
	t.Helper()
	pipe, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	limited, cancel := context.WithTimeout(context.Background(), time.Minute)
	context.AfterFunc(limited, func() { _ = cmd.Process.Kill() })
	t.Cleanup(cancel)
	lines := make(chan string)
	var all strings.Builder
	go func() {
		defer close(lines)
		for r := bufio.NewScanner(io.TeeReader(pipe, &all)); r.Scan(); {
			lines <- r.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for range lines {
		}
		if t.Failed() {
			t.Log(all.String())
		}
	})
	return lines
}

// mustBeStatic: no loader, no library.
func mustBeStatic(t *testing.T, program string) {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if libraries, err := f.ImportedLibraries(); len(libraries) > 0 {
		t.Errorf("%s needs %q (%v)", program, libraries, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Errorf("%s needs a loader", program)
		}
	}
}
