package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// watching is a command that runs on.
type watching struct {
	t      *testing.T
	lines  chan string
	stderr strings.Builder
	cancel context.CancelFunc
	code   chan int
}

// watch runs a command line until end.
func watch(t *testing.T, args ...string) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	x := &watching{t: t, lines: make(chan string, 10_000), cancel: cancel, code: make(chan int, 1)}
	go func() {
		x.code <- run(ctx, args, w, &x.stderr)
		_ = w.Close()
	}()
	go func() {
		defer close(x.lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			x.lines <- strings.Join(strings.Fields(s.Text()), " ")
		}
	}()
	t.Cleanup(cancel)
	return x
}

// sees waits for a line that fits, and returns all up to it.
func (x *watching) sees(what string, fits func(string) bool) []string {
	x.t.Helper()
	late := time.After(patience)
	var all []string
	for {
		select {
		case line, ok := <-x.lines:
			all = append(all, line)
			if !ok {
				x.t.Fatalf("ended before %s: %s\nstderr: %s", what, strings.Join(all, "\n"), x.stderr.String())
			}
			if fits(line) {
				return all
			}
		case <-late:
			x.t.Fatalf("not seen: %s, but\n%s", what, strings.Join(all, "\n"))
		}
	}
}

func begins(prefix string) func(string) bool {
	return func(line string) bool { return strings.HasPrefix(line, prefix) }
}

// end interrupts the command and returns its exit code.
func (x *watching) end() int {
	x.cancel()
	return <-x.code
}

func TestMetadataWatch(t *testing.T) {
	w := newWorld(t, 2, 3)
	w.topic("orders", 2, 3)
	w.topic("other", 1, 1)

	t.Run("once", func(t *testing.T) {
		part := func(name string) string {
			return "partition " + name + ` leader [012] LE 0 PE 0 ISR [012,]+ replicas [012,]+`
		}
		wantLines(t, w.cli("metadata", "watch", "--once").want(t, exitOK).lines(),
			"snapshot", "brokers 0,1,2", part("orders/0"), part("orders/1"), part("other/0"), `revision \d+`)
		wantLines(t, w.cli("metadata", "watch", "--once", "--topic", "other").want(t, exitOK).lines(),
			"snapshot", "brokers 0,1,2", part("other/0"), `revision \d+`)
		var last metadataView
		for line := range strings.Lines(w.cli("metadata", "watch", "--once", "-o", "json").want(t, exitOK).stdout) {
			if err := json.Unmarshal([]byte(line), &last); err != nil {
				t.Fatal(err)
			}
		}
		if last.Revision == 0 || len(last.Topics) != 2 || last.Topics[0].PartitionCount != 2 || len(last.Topics[0].Partitions[0].Replicas) != 3 {
			t.Errorf("last answer %+v", last)
		}
		docs := strings.Split(w.cli("metadata", "watch", "--once", "-o", "yaml").want(t, exitOK).stdout, "---\n")
		var first metadataView
		if err := yaml.Unmarshal([]byte(docs[1]), &first); err != nil || !first.Snapshot || len(first.Brokers) != 3 ||
			first.Brokers[1].Rack != "rack-1" || first.Brokers[1].Endpoints["client"] != "127.0.0.1:9001" {
			t.Errorf("%v %+v", err, first)
		}
		wantLines(t, w.cli("metadata", "watch", "--once", "--revision", fmt.Sprint(last.Revision)).want(t, exitOK).lines(), `revision \d+`)
	})
	t.Run("refused", func(t *testing.T) {
		for args, want := range map[string]string{
			"--topic ..": "INVALID_TOPIC_EXCEPTION", "--topic a --topic a": "INVALID_REQUEST", "--revision -1": "INVALID_REQUEST",
		} {
			r := w.cli(append([]string{"metadata", "watch"}, strings.Fields(args)...)...).want(t, exitFailed)
			if !strings.HasPrefix(r.stderr, "Error: "+want) {
				t.Errorf("%s: %s", args, r.stderr)
			}
		}
		r := w.cli("metadata", "watch", "--revision", fmt.Sprint(int64(1)<<40), "--timeout", "1ms").want(t, exitAway)
		if r.stdout != "" {
			t.Errorf("a revision that nobody has seen: %s", r.stdout)
		}
	})
	t.Run("failover", func(t *testing.T) {
		x := watch(t, "metadata", "watch", w.server())
		x.sees("everything", begins("revision"))
		w.daemons[0].Kill()
		for n := range 2 { // the second one when the first one's seat is free
			name := fmt.Sprint("late-", n)
			eventually(t, "topic "+name, func() bool {
				return w.cli("topic", "create", name, "--partitions", "1", "--replication-factor", "1").code == exitOK
			})
			for _, line := range x.sees("topic "+name, begins("partition "+name)) {
				if line == "snapshot" {
					t.Error("told everything anew by the other daemon")
				}
			}
		}
		w.brokers[2].Kill()
		x.sees("a broker less", begins("brokers 0,1"))
		if code := x.end(); code != exitOK || x.stderr.String() != "" {
			t.Errorf("exit code %d, %s", code, x.stderr.String())
		}
		y := watch(t, "metadata", "watch", w.server(), "--timeout", "3s")
		y.sees("everything", begins("revision"))
		w.daemons[1].Kill()
		if code := <-y.code; code != exitAway {
			t.Errorf("exit code %d without a daemon", code)
		}
	})
}

// full takes nothing any more.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// TestWatchUnwritable: what cannot be shown ends a command that follows.
func TestWatchUnwritable(t *testing.T) {
	w := newWorld(t, 2, 1)
	for _, args := range []string{"metadata watch", "events --follow", "monitor"} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		var stderr strings.Builder
		code := run(ctx, append(strings.Fields(args), w.server()), full{}, &stderr)
		if code != exitFailed || stderr.String() != "Error: disk full\n" || ctx.Err() != nil {
			t.Errorf("%s: exit code %d, %v, %s", args, code, ctx.Err(), stderr.String())
		}
		cancel()
	}
}
