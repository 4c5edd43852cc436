package main

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// section is what stands under a heading of a Markdown file.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("no section %q", heading)
	}
	body, _, _ := strings.Cut(rest, "\n## ")
	return body
}

// fenced are the blocks of code in Markdown that name this language.
func fenced(text, language string) (blocks []string) {
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// documents are the Markdown files of this repository, by name.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		names, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			name = strings.TrimPrefix(name, "../../")
			all[name] = read(t, name)
		}
	}
	return all
}

// TestTourOfReadme runs the tour as a reader would: in a shell, line by line,
// against what "make run" runs. What goes on for ever is interrupted.
func TestTourOfReadme(t *testing.T) {
	address := startDev(t, "")
	t.Setenv("CONTROLLERD_SERVER", address)
	if v := decode[statusView](t, cli("controller", "status", "-o", "json")); v.ControllerID != "c1" { // which is given the seat later
		cli("controller", "transfer", "c1", "--wait").want(t, exitOK)
	}
	t.Setenv(asProgram, "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "controllerd")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	lines := 0
	for _, block := range fenced(section(t, read(t, "README.md"), "A tour"), "sh") {
		for line := range strings.Lines(block) {
			if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			lines++
			runAsReader(t, line)
		}
	}
	if lines < 10 {
		t.Errorf("only %d commands in the tour", lines)
	}
}

// runAsReader runs one line in a shell. It must show something and succeed;
// what goes on for ever, when it is interrupted after that.
func runAsReader(t *testing.T, line string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+line)
	cmd.Dir = t.TempDir()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = patience
	var stderr strings.Builder
	stdout := &reader{enough: func() {}}
	if regexp.MustCompile(`--follow|watch|--history`).MatchString(line) {
		stdout.enough = cancel
	}
	cmd.Stdout, cmd.Stderr = stdout, &stderr
	err := cmd.Run()
	code := cmd.ProcessState.ExitCode()
	busy := strings.Contains(line, "doctor") && code == exitWarn // this machine, that is
	if code != exitOK && !busy || stdout.Len() == 0 {
		t.Errorf("%s\n%v\nstdout:\n%s\nstderr:\n%s", line, err, stdout, &stderr)
	}
}

// reader says when it has read something.
type reader struct {
	strings.Builder
	enough func()
}

func (r *reader) Write(b []byte) (int, error) {
	defer r.enough()
	return r.Builder.Write(b)
}

// TestCommandsInDocs: every command line in the documents names commands and
// flags that there are.
func TestCommandsInDocs(t *testing.T) {
	program := regexp.MustCompile(`^(?:\$ |docker run .* )?(?:controllerd|bin/controllerd|go run \./cmd/controllerd|controllerd:devel) (.*)$`)
	found := 0
	for name, text := range documents(t) {
		for _, block := range append(fenced(text, ""), fenced(text, "sh")...) {
			block = regexp.MustCompile(`\\\n\s*`).ReplaceAllString(block, "")
			block = regexp.MustCompile(`"[^"\n]*"|'[^'\n]*'`).ReplaceAllString(block, "x")
			for line := range strings.Lines(block) {
				for _, part := range strings.Split(strings.TrimSpace(line), " | ") {
					if m := program.FindStringSubmatch(part); m != nil {
						found++
						mustParse(t, name, m[1])
					}
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d commands found", found)
	}
}

// mustParse fails unless the rest of a command line, without quotes, names a
// command and flags of it.
func mustParse(t *testing.T, where, line string) {
	t.Helper()
	line, _, _ = strings.Cut(line, " #")
	root := newRoot()
	initCompletion(root)
	cmd, rest, err := root.Find(strings.Fields(line))
	if err != nil {
		t.Errorf("%s: controllerd %s: %v", where, line, err)
		return
	}
	for _, word := range rest {
		flag, _, _ := strings.Cut(word, "=")
		var known *pflag.Flag
		if long, ok := strings.CutPrefix(flag, "--"); ok {
			known = cmd.Flag(long)
		} else if short, ok := strings.CutPrefix(flag, "-"); ok && len(short) == 1 {
			cmd.InheritedFlags() // merges those of its parents
			known = cmd.Flags().ShorthandLookup(short)
		} else {
			continue
		}
		if known == nil && flag != "--help" && flag != "--version" {
			t.Errorf("%s: controllerd %s: no flag %s", where, line, flag)
		}
	}
	if cmd.HasSubCommands() && len(rest) == 0 && strings.TrimSpace(line) != cmd.Name() {
		t.Errorf("%s: controllerd %s only holds other commands", where, line)
	}
}

// TestReadmeShowsQuickstart: the program in the README is the one that
// examples/quickstart compiles and tests.
func TestReadmeShowsQuickstart(t *testing.T) {
	shown := fenced(read(t, "README.md"), "go")
	if want := read(t, "examples/quickstart/main.go"); len(shown) != 1 || shown[0] != want {
		t.Errorf("the README shows\n%s\nwant examples/quickstart/main.go:\n%s", strings.Join(shown, "\n"), want)
	}
}

// TestProofsExist: each promise has a proof, and each proof is there.
func TestProofsExist(t *testing.T) {
	tests, invariants := map[string]bool{}, map[string]bool{}
	for _, f := range goFiles(t) {
		text := read(t, f)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllStringSubmatch(text, -1) {
			tests[m[1]] = true
		}
		if strings.HasPrefix(f, "internal/sim/") {
			for _, m := range regexp.MustCompile(`errors\.New\("(I\d+): `).FindAllStringSubmatch(text, -1) {
				invariants[m[1]] = true
			}
		}
	}
	readme := read(t, "README.md")
	rows := regexp.MustCompile(`(?m)^\| ([^|]*) \| [^|]* \| ([^|]*) \|$`).FindAllStringSubmatch(section(t, readme, "What is promised"), -1)
	if len(rows) < 10 {
		t.Fatalf("%d promises", len(rows))
	}
	for _, row := range rows[1:] { // below the head
		if !regexp.MustCompile("I\\d+|`Test\\w+`").MatchString(row[2]) {
			t.Errorf("no proof of %q", row[1])
		}
		for _, i := range regexp.MustCompile(`\bI\d+\b`).FindAllString(row[2], -1) {
			if !invariants[i] {
				t.Errorf("%q: no invariant %s in the simulation", row[1], i)
			}
		}
	}
	for name, text := range documents(t) {
		if strings.HasSuffix(name, "FOUND.md") || name == "CHANGELOG.md" { // history
			continue
		}
		for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(text, -1) {
			if !tests[m[1]] {
				t.Errorf("%s: no test %s", name, m[1])
			}
		}
		for _, m := range regexp.MustCompile("`(scripts/[^` ]+)").FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join("../..", m[1])); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// goFiles are the Go files of this repository, also of the modules within.
func goFiles(t *testing.T) (names []string) {
	t.Helper()
	root := os.DirFS("../..")
	for _, pattern := range []string{"*/*.go", "*/*/*.go", "*/*/*/*.go"} {
		some, err := fs.Glob(root, pattern)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, some...)
	}
	return names
}

// TestLinksInDocs: links within the repository lead somewhere.
func TestLinksInDocs(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	for name, text := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			to, anchor := m[1], m[2]
			if strings.Contains(to, "://") {
				continue
			}
			target := name
			if to != "" {
				target = filepath.Join(filepath.Dir(name), to)
			}
			if _, err := os.Stat(filepath.Join("../..", target)); err != nil {
				t.Errorf("%s: %s leads nowhere", name, m[0])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s: %s: no such heading", name, m[0])
			}
		}
	}
}

// anchors are those that GitHub gives to the headings of a Markdown file.
func anchors(text string) (found []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		kept := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		found = append(found, strings.ReplaceAll(kept, " ", "-"))
	}
	return found
}

// TestBenchmarksInReadme: each figure is one of that row of the report.
func TestBenchmarksInReadme(t *testing.T) {
	report := read(t, "docs/BENCHMARKS.md")
	rows := regexp.MustCompile(`(?m)^\| [^|]* \| ([^|]*) \| ([^|]*) \| (\w+) \|$`).FindAllStringSubmatch(section(t, read(t, "README.md"), "How fast"), -1)
	if len(rows) < 5 {
		t.Fatalf("%d figures", len(rows))
	}
	for _, row := range rows[1:] {
		want := regexp.MustCompile(`(?m)^\| [^|]* \| ` + regexp.QuoteMeta(row[1]) + ` \| [^|]* \| ` + regexp.QuoteMeta(row[2]) + ` \|`)
		if !want.MatchString(section(t, report, row[3])) {
			t.Errorf("%s beside %s: not in row %s of docs/BENCHMARKS.md", row[1], row[2], row[3])
		}
	}
}
