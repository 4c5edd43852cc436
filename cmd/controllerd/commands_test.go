package main

import (
	"bufio"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// leaves are all commands that do something, by name.
func leaves() map[string]*cobra.Command {
	root := newRoot()
	root.SetOut(io.Discard)
	initCompletion(root)
	found := map[string]*cobra.Command{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Runnable() && !cmd.HasSubCommands() && cmd.Name() != "help" {
			found[strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")] = cmd
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	return found
}

// TestExamples: every command has examples, and they are right as far as the
// command line goes.
func TestExamples(t *testing.T) {
	for name, leaf := range leaves() {
		own := 0
		for line := range strings.Lines(strings.ReplaceAll(leaf.Example, "\\\n", " ")) {
			_, line, found := strings.Cut(line, "controllerd ")
			if !found {
				continue
			}
			args := shellWords(line)
			cmd, rest, err := leaf.Root().Find(args)
			if err != nil {
				t.Errorf("%s: %q: %v", name, line, err)
				continue
			}
			if cmd == leaf {
				own++
			}
			if err := cmd.ParseFlags(rest); err != nil {
				t.Errorf("%s: %q: %v", name, line, err)
			} else if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
				t.Errorf("%s: %q: %v", name, line, err)
			}
		}
		if own == 0 {
			t.Errorf("%s has no example", name)
		}
	}
}

// shellWords are the words of a command up to a pipe or the like.
func shellWords(line string) (words []string) {
	word, quote := "", rune(0)
	for _, r := range strings.TrimSpace(line) + " " {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word += string(r)
		case r == '\'' || r == '"':
			quote = r
		case strings.ContainsRune("|)&>", r):
			return append(words, word)[:len(words)+min(len(word), 1)]
		case r == ' ' && word != "":
			words, word = append(words, word), ""
		case r != ' ':
			word += string(r)
		}
	}
	return words
}

// TestCommonFlags: what prints can print JSON, what calls has a time limit, what
// changes something takes a reason and can be waited for, and what destroys
// something asks.
func TestCommonFlags(t *testing.T) {
	silent := []string{"serve", "completion bash", "completion zsh", "completion fish", "completion powershell"}
	changes := []string{"topic create", "topic expand", "topic delete", "reassign start", "reassign replication-factor", "reassign cancel", "broker drain", "controller resign", "controller transfer", "elect preferred", "elect unclean", "elect leader"}
	atOnce := []string{"settings set", "settings unset", "topic alter", "freeze", "unfreeze"} // there is nothing to wait for
	for name, cmd := range leaves() {
		has := func(flag string) bool { return cmd.Flag(flag) != nil }
		if has("output") == slices.Contains(silent, name) {
			t.Errorf("%s: --output is %v", name, has("output"))
		}
		if calls := has("server") || has("etcd-endpoints") && has("cluster") && !slices.Contains([]string{"serve", "config show", "config check"}, name); calls && !has("timeout") {
			t.Errorf("%s has no --timeout", name)
		}
		for flag, those := range map[string][]string{"reason": slices.Concat(changes, atOnce, []string{"recover"}), "wait": changes, "yes": {"topic delete", "elect unclean", "recover"}} {
			if has(flag) != slices.Contains(those, name) {
				t.Errorf("%s: --%s is %v", name, flag, has(flag))
			}
		}
	}
}

// TestReasonOfEveryMutation: what an operator changes takes a reason over the
// wire.
func TestReasonOfEveryMutation(t *testing.T) {
	methods := pb.File_controllerd_v1_admin_proto.Services().ByName("AdminService").Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		looks := strings.HasPrefix(string(m.Name()), "List") || strings.HasPrefix(string(m.Name()), "Describe")
		reason := m.Input().Fields().ByName("reason")
		if looks != (reason == nil) || reason != nil && reason.Kind() != protoreflect.StringKind {
			t.Errorf("%s: reason %v", m.Name(), reason)
		}
	}
}

func TestProposals(t *testing.T) {
	w := newWorld(t, 3, 1)
	active, _ := w.roles()
	w.topic("orders", 1, 1)
	w.topic("payments", 1, 1)
	var standbys []string
	for _, d := range w.daemons {
		if d != active {
			standbys = append(standbys, d.ID)
		}
	}
	for _, tt := range []struct {
		args string
		want []string
	}{
		{"topic describe |", []string{"orders", "payments"}},
		{"topic describe |o", []string{"orders"}},
		{"topic describe orders |", nil},
		{"topic delete orders |", []string{"payments"}},
		{"controller transfer |", standbys},
		{"controller transfer x |", nil},
		{"elect leader |", []string{"0"}},
		{"elect leader 0 |pay", []string{"payments"}},
		{"metadata watch --topic |p", []string{"payments"}},
		{"topic list --output |", formats},
		{"version -o |", formats},
		{"topic list |", nil},
	} {
		before, begun, _ := strings.Cut(tt.args, "|")
		args := append([]string{"__complete"}, strings.Fields(before)...)
		if strings.Fields(before)[0] != "version" {
			args = append(args[:3:3], append([]string{w.server()}, args[3:]...)...)
		}
		r := cli(append(args, begun)...)
		lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
		if got := lines[:len(lines)-1]; !slices.Equal(got, tt.want) || lines[len(lines)-1] != ":4" { // no files
			t.Errorf("%q: %q, want %q", tt.args, lines, tt.want)
		}
	}
	r := cli("__complete", "topic", "describe", "--server", deaf(t), "")
	if r.stdout != ":4\n" {
		t.Errorf("without a daemon: %q", r.stdout)
	}
}

// TestExitCodesAreDocumented: docs/COMMANDS.md has the table of the help.
func TestExitCodesAreDocumented(t *testing.T) {
	f, err := os.Open("../../docs/COMMANDS.md")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var documented []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if cells := strings.Split(lines.Text(), " | "); len(cells) == 2 && strings.Trim(cells[0], "| 0123456789") == "" {
			documented = append(documented, strings.Trim(cells[0], "| ")+" "+strings.Trim(cells[1], "| "))
		}
	}
	var want []string
	for _, row := range exitCodes {
		want = append(want, str(int32(row.code))+" "+row.meaning)
	}
	if !slices.Equal(documented, want) {
		t.Errorf("documented:\n%s\nwant:\n%s", strings.Join(documented, "\n"), strings.Join(want, "\n"))
	}
	for _, args := range [][]string{{"help", "exit-codes"}, {"exit-codes"}} {
		if r := cli(args...).want(t, exitOK); strings.TrimSpace(r.stdout) != strings.TrimSpace(exitCodeTable()) {
			t.Errorf("%v shows:\n%s", args, r.stdout)
		}
	}
}

// TestEveryExitCode: each code of the table comes from some command that is
// really run.
func TestEveryExitCode(t *testing.T) {
	w := newWorld(t, 1, 2)
	w.broken[1].Store(true)
	create := "topic create x --partitions 1 --replication-factor 2 --wait --timeout 500ms"
	for i, tt := range []struct {
		args string
		code int
	}{
		{"topic list", exitOK},
		{"topic describe x", exitFailed},
		{"topic list --sorted", exitUsage},
		{"topic list --server " + deaf(t), exitAway},
		{create, exitUnfinished},
		{"doctor daemons", exitWarn}, // there is but one
		{"doctor etcd-latency --etcd-endpoints " + deaf(t) + " --timeout 300ms", exitBad},
	} {
		args := strings.Fields(tt.args)
		if !slices.Contains(args, "--server") {
			args = append(args, w.server())
		}
		cli(args...).want(t, tt.code)
		if exitCodes[i].code != tt.code {
			t.Errorf("row %d of the table is of code %d", i, exitCodes[i].code)
		}
	}
}
