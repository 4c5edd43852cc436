//go:build unix

package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var change = Change{
	ClusterUUID: "u", Epoch: 7, Controller: "b", Endpoint: "127.0.0.1:7071", Began: "2027-01-15T08:00:00.000Z",
	PreviousEpoch: 6, PreviousController: "a", PreviousCause: "resigned", PreviousReason: "it's a \"test\"\x00;\nls",
}

func target(t *testing.T, s string) Target {
	t.Helper()
	var target Target
	if err := target.Set(s); err != nil {
		t.Fatal(err)
	}
	return target
}

func TestSet(t *testing.T) {
	sh, err := filepath.EvalSymlinks("/bin")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", sh)
	for _, tt := range []struct {
		text, shown string
		args        []string
		fault       string
	}{
		{text: "", shown: ""},
		{text: "  ", shown: ""},
		{text: "sh -c  x", shown: "sh -c  x", args: []string{sh + "/sh", "-c", "x"}},
		{text: `sh -c 'a "b" $c' d"e f"g ''`, shown: `sh -c 'a "b" $c' d"e f"g ''`, args: []string{sh + "/sh", "-c", `a "b" $c`, "de fg", ""}},
		{text: "sh 'x", fault: "a quote ' is not closed"},
		{text: "no-such-command x", fault: "not found"},
		{text: "/no/such/command", fault: "no such file"},
		{text: "http://host:80", shown: "http://host:80"},
		{text: "https://host/secret", shown: "https://host/********"},
		{text: "https://host?secret", shown: "https://host/********"},
		{text: "https://user:secret@host", shown: "https://host/********"},
		{text: "https://", fault: "not a URL that can be posted to"},
		{text: "https://user:secret@host:port/", fault: "not a URL that can be posted to"},
	} {
		var target Target
		err := target.Set(tt.text)
		if (err != nil) != (tt.fault != "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%q: error %v, want %q", tt.text, err, tt.fault)
		}
		if target.String() != tt.shown || !slices.Equal(target.args, tt.args) || target.Given() != (tt.shown != "") {
			t.Errorf("%q is %q %q %v", tt.text, &target, target.args, target.Given())
		}
	}
}

func TestCommand(t *testing.T) {
	t.Setenv("CONTROLLERD_ETCD_PASSWORD", "secret")
	t.Setenv("OTHERS", "kept")
	out := filepath.Join(t.TempDir(), "env")
	command := target(t, "sh -c 'env -0 >\"$0\"' "+out)
	if err := command.run(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	env := strings.Split(string(text), "\x00")
	for _, want := range []string{
		"OTHERS=kept", "CONTROLLERD_CLUSTER_UUID=u", "CONTROLLERD_EPOCH=7", "CONTROLLERD_ID=b", "CONTROLLERD_SERVER=127.0.0.1:7071",
		"CONTROLLERD_BEGAN=2027-01-15T08:00:00.000Z", "CONTROLLERD_PREVIOUS_EPOCH=6", "CONTROLLERD_PREVIOUS_ID=a",
		"CONTROLLERD_PREVIOUS_CAUSE=resigned", "CONTROLLERD_PREVIOUS_REASON=it's a \"test\";\nls",
	} {
		if !slices.Contains(env, want) {
			t.Errorf("%q is missing in %q", want, env)
		}
	}
	if strings.Contains(string(text), "secret") {
		t.Errorf("the command is told a secret: %q", env)
	}
}

func TestFailures(t *testing.T) {
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	for text, want := range map[string]string{
		"sh -c 'echo so >&2; exit 3'":                "exit status 3, it said: so",
		"sh -c 'printf %05000d 7; exit 3'":           "exit status 3, it said: " + strings.Repeat("0", maxOutput),
		"false":                                      "exit status 1",
		strings.Replace(away.URL, "//", "//u:p@", 1): "connection refused",
		refusing.URL + "/secret":                     "answered 404 Not Found",
	} {
		var log bytes.Buffer
		r := NewRunner(target(t, text), slog.New(slog.NewTextHandler(&log, nil)))
		r.Start(t.Context(), change)
		r.Wait()
		if line := log.String(); !strings.Contains(line, `level=WARN msg="hook failed"`) || !strings.Contains(line, want) || !strings.Contains(line, "epoch=7") ||
			strings.Contains(line, "secret") || strings.Contains(line, "u:p") || len(line) > 2*maxOutput {
			t.Errorf("%s: %s", text, line)
		}
	}
}

// TestDone: a command that leaves something running has done its work.
func TestDone(t *testing.T) {
	var log bytes.Buffer
	r := NewRunner(target(t, "sh -c 'sleep 60 & exit 0'"), slog.New(slog.NewTextHandler(&log, nil)))
	r.Start(t.Context(), change)
	r.Wait()
	if !strings.Contains(log.String(), `msg="hook done"`) {
		t.Error(log.String())
	}
	NewRunner(Target{}, nil).Start(t.Context(), change) // nothing
}

func TestPost(t *testing.T) {
	got := make(chan Change, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var c Change
		if err := json.Unmarshal(body, &c); err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%v %s %v %s", err, r.Method, r.Header, body)
		}
		got <- c
		w.WriteHeader(http.StatusAccepted)
	}))
	defer server.Close()
	url := target(t, server.URL)
	if err := url.run(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	if c := <-got; c != change {
		t.Errorf("posted %+v", c)
	}
}

// TestHangs: what hangs ends with its caller, and all that it has started too,
// also if it does not want to.
func TestHangs(t *testing.T) {
	posted := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the server does not see that the caller has gone
		close(posted)
		<-r.Context().Done()
	}))
	defer hanging.Close()
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	for _, text := range []string{
		hanging.URL,
		"sh -c 'sleep 1000 & echo $! $$ >\"$0\"; wait' " + pids,
		"sh -c 'trap : TERM; sleep 1000 & echo $! $$ >\"$0\"; while :; do wait; done' " + pids,
	} {
		_ = os.Remove(pids)
		var log bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		r := NewRunner(target(t, text), slog.New(slog.NewTextHandler(&log, nil)))
		begun := time.Now()
		r.Start(ctx, change)
		if took := time.Since(begun); took > time.Second {
			t.Errorf("%s: held up for %v", text, took)
		}
		var started []string
		if !soon(func() bool {
			if text == hanging.URL {
				select {
				case <-posted:
					return true
				default:
					return false
				}
			}
			written, _ := os.ReadFile(pids)
			started = strings.Fields(string(written))
			return len(started) == 2
		}) {
			t.Fatalf("%s: has not begun", text)
		}
		cancel()
		r.Wait()
		if took := time.Since(begun); took > 5*time.Second || !strings.Contains(log.String(), "ended with its caller") {
			t.Errorf("%s: after %v: %s", text, took, log.String())
		}
		for _, s := range started {
			pid, err := strconv.Atoi(s)
			if err != nil {
				t.Fatal(err)
			}
			if !soon(func() bool { return gone(pid) }) {
				t.Errorf("%s: process %d still runs", text, pid)
			}
		}
	}
}

// gone reports whether a process has ended. If its parent has ended too, it may
// not be reaped at once.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

// soon reports whether cond holds within some seconds.
func soon(cond func() bool) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(10 * time.Second); !cond(); {
		select {
		case <-tick.C:
		case <-late:
			return false
		}
	}
	return true
}
