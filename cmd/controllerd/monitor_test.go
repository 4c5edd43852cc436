package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/controllerd/controllerd/internal/hook"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

func TestMonitorFaults(t *testing.T) {
	r := cli("monitor", "--metrics", "active,offlin,active,bogus", "--interval", "1ms", "--count", "-1", "--server", "nowhere").want(t, exitUsage)
	want := []string{
		`Error: server "nowhere" is not host:port`, `Error: interval 1ms is below 50ms`, `Error: count -1 is negative`,
		`Error: metric "offlin" is unknown`, `Error: metric "active" is named twice`, `Error: metric "bogus" is unknown`,
		"Run 'controllerd monitor --help' for usage.",
	}
	if got := r.lines(); len(got) != 0 || !slices.Equal(linesOf(r.stderr), want) {
		t.Errorf("stdout %q, stderr %s", got, r.stderr)
	}
	for args, want := range map[string]string{
		"--metrics=": "no metric given", "-o xml": "want one of text, csv, json", "--hook no-such-command": "not found", "extra": "unexpected argument",
	} {
		if r := cli(append([]string{"monitor"}, strings.Fields(args)...)...).want(t, exitUsage); !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %s", args, r.stderr)
		}
	}
	dir := t.TempDir()
	if r := cli("monitor", "--history", dir, "--count", "1").want(t, exitFailed); !strings.Contains(r.stderr, "history: open "+dir) {
		t.Error(r.stderr)
	}
	r = cli("monitor", "--count", "2", "--interval", "50ms", "-o", "csv", "--server", deaf(t)).want(t, exitAway)
	if lines := r.lines(); len(lines) != 3 || !strings.HasPrefix(lines[2][len(timeOf(1)):], ",,,,,,cannot reach 127.0.0.1:") {
		t.Errorf("%q", lines)
	}
}

// slow takes a while to take what is written next.
type slow struct {
	text  strings.Builder
	pause time.Duration
}

func (s *slow) Write(b []byte) (int, error) {
	<-time.After(s.pause)
	s.pause = 0
	return s.text.Write(b)
}

// TestMonitorLines: one line an interval, whatever answers and whoever reads.
func TestMonitorLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &monitor{client: &client{timeout: time.Minute}, interval: time.Second, count: 8, format: "csv", metrics: []string{"active", "offline", "isr_rate"}}
		out, n := &slow{}, 0
		rate := 2.25
		err := m.run(t.Context(), out, func(ctx context.Context) sample {
			n++
			switch n {
			case 2: // hangs
				<-ctx.Done()
				return sample{err: errors.Join(errors.New("one\ttwo"), errors.New("three, four"))}
			case 3: // the reader hangs
				out.pause = 3200 * time.Millisecond
			}
			return sample{resp: &pb.DescribeControllerResponse{ControllerId: "a", OfflinePartitions: int32(n)}, changed: &rate}
		})
		if err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(strings.NewReader(out.text.String())).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			"time active offline isr_rate error", "00 a 1 2.2 -", `01 - - - one\ttwo; three, four`, "02 a 3 2.2 -",
			"03 - - - not asked in time", "04 - - - not asked in time", "05 a 4 2.2 -", "06 a 5 2.2 -", "07 a 6 2.2 -",
		}
		for i, row := range rows {
			if i > 0 {
				row[0] = strings.TrimSuffix(strings.TrimPrefix(row[0], "2000-01-01T00:00:"), ".000Z")
			}
			for j := range row {
				row[j] = orDash(row[j])
			}
			if i >= len(want) || strings.Join(row, " ") != want[i] {
				t.Errorf("row %d: %q", i, row)
			}
		}
		if len(rows) != len(want) {
			t.Errorf("%d rows, want %d", len(rows), len(want))
		}
	})
}

func TestMonitorFormats(t *testing.T) {
	s := sample{at: time.UnixMilli(1_800_000_000_000), resp: &pb.DescribeControllerResponse{ControllerId: "a", SessionState: "active", Problems: []string{"x"}}}
	missing := sample{at: s.at, err: errors.New(`no "answer"`)}
	for format, want := range map[lineFormat]string{
		"text": "2027-01-15T08:00:00.000Z  active=a  session=active  isr_rate=  problems=1\n" +
			"2027-01-15T08:00:00.000Z  active=  session=  isr_rate=  problems=  error=no \"answer\"\n",
		"csv": "time,active,session,isr_rate,problems,error\n2027-01-15T08:00:00.000Z,a,active,,1,\n2027-01-15T08:00:00.000Z,,,,,\"no \"\"answer\"\"\"\n",
		"json": `{"active":"a","error":"","isr_rate":null,"problems":1,"session":"active","time":"2027-01-15T08:00:00.000Z"}` + "\n" +
			`{"active":null,"error":"no \"answer\"","isr_rate":null,"problems":null,"session":null,"time":"2027-01-15T08:00:00.000Z"}` + "\n",
	} {
		var out strings.Builder
		w := &lineWriter{format: format, out: &out, metrics: []string{"active", "session", "isr_rate", "problems"}}
		if err := errors.Join(w.write(s), w.write(missing)); err != nil || out.String() != want {
			t.Errorf("%s: %v\n%swant\n%s", format, err, out.String(), want)
		}
	}
}

// TestMonitor: a broker that dies is seen within two lines, a controller that
// follows in the file and by the hook.
func TestMonitor(t *testing.T) {
	w := newWorld(t, 2, 3)
	w.topic("t", 3, 3)
	active, standby := w.roles()
	dir := t.TempDir()
	history, called := filepath.Join(dir, "history"), filepath.Join(dir, "called")
	torn := `{"cluster_uuid":"another","epoch":7}` + "\n" + `{"cluster_uuid":"to`
	if err := os.WriteFile(history, []byte(torn), 0o600); err != nil {
		t.Fatal(err)
	}
	// Two lines take longer than the session of a dead broker lasts.
	const interval = 3 * time.Second
	slow := watch(t, "monitor", w.server(), "--interval", interval.String(), "--metrics", "offline,under_replicated,brokers", "-o", "csv")
	quick := watch(t, "monitor", w.server(), "--interval", "100ms", "-o", "json", "--history", history,
		"--hook", fmt.Sprintf(`sh -c 'echo $CONTROLLERD_EPOCH $CONTROLLERD_ID $CONTROLLERD_PREVIOUS_ID $CONTROLLERD_PREVIOUS_CAUSE >>%s'`, called))
	type line struct {
		Time, Active, Error, Session string
		Offline                      *int32
		UnderReplicated              *int32   `json:"under_replicated"`
		ISRRate                      *float64 `json:"isr_rate"`
	}
	sees := func(what string, fits func(line) bool) {
		t.Helper()
		quick.sees(what, func(text string) bool {
			var l line
			if err := json.Unmarshal([]byte(text), &l); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			return fits(l)
		})
	}
	sees("all is well", func(l line) bool {
		return l.Active == active.ID && l.Session == "active" && *l.UnderReplicated == 0 && l.ISRRate != nil && *l.ISRRate == 0
	})
	slow.sees("all is well", func(line string) bool { return strings.HasSuffix(line, "Z,0,0,3,") })
	w.brokers[2].Kill()
	for n := 1; ; n++ {
		var last string
		slow.sees("a line", func(line string) bool { last = line; return true })
		if strings.HasSuffix(last, "Z,0,3,2,") {
			break
		}
		if n == 2 {
			t.Fatalf("after two lines the broker's death is not seen: %s", last)
		}
	}
	sees("ISRs that shrink", func(l line) bool { return l.ISRRate != nil && *l.ISRRate > 0 })

	active.Kill()
	w.await(standby, "it follows", func(v rpc.View) bool { return v.Active })
	sees("who follows", func(l line) bool { return l.Active == standby.ID && l.Session == "active" })
	w.daemons = append(w.daemons[:0:0], standby)
	w.cli("controller", "resign").want(t, exitOK)
	want := []string{"2 " + standby.ID + " " + active.ID + " ", "3 " + standby.ID + " " + standby.ID + " resigned"}
	eventually(t, "two hooks", func() bool {
		text, _ := os.ReadFile(called)
		lines := linesOf(string(text))
		slices.Sort(lines) // hooks of two terms may run side by side
		return len(lines) == 2 && strings.HasPrefix(lines[0], want[0]) && lines[1] == want[1]
	})
	if code := quick.end(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	standby.Kill()
	for _, line := range slow.sees("a line without an answer", func(line string) bool { return strings.Contains(line, "Z,,,,") }) {
		if strings.Count(line, ",") != 4 {
			t.Errorf("%q", line)
		}
	}
	slow.end()

	text, err := os.ReadFile(history)
	if err != nil {
		t.Fatal(err)
	}
	rest, ok := strings.CutPrefix(string(text), torn+"\n")
	if !ok {
		t.Fatalf("what was in the file is not there any more: %s", text)
	}
	for i, line := range linesOf(rest) {
		var c hook.Change
		if err := json.Unmarshal([]byte(line), &c); err != nil || c.Epoch != int64(i+1) || i == 0 && c.Controller != active.ID {
			t.Errorf("%v in %s", err, line)
		}
	}
	if n := strings.Count(rest, "\n"); n != 3 {
		t.Errorf("%d changes in\n%s", n, rest)
	}
}

// TestChanges: the file goes on where it ended; only what happens meanwhile is
// told of.
func TestChanges(t *testing.T) {
	name := filepath.Join(t.TempDir(), "history")
	terms := func(from, to int64) (all []*pb.TermRecord) {
		for e := to; e >= from; e-- {
			all = append(all, &pb.TermRecord{Epoch: e, Controller: fmt.Sprint("c", e)})
		}
		return all
	}
	var told []int64
	open := func() *changes {
		c := &changes{tell: func(ch hook.Change) { told = append(told, ch.Epoch) }}
		if err := c.open(name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.file.Close() })
		return c
	}
	noted := func() string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for line := range strings.Lines(string(text)) {
			var c hook.Change
			if err := json.Unmarshal([]byte(line), &c); err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprint(c.Epoch, " after ", c.PreviousEpoch, c.PreviousController))
		}
		return strings.Join(out, ", ")
	}
	first := open()
	first.uuid = "u"
	if err := errors.Join(first.note(terms(4, 5)), first.note(terms(5, 5)), first.note(terms(5, 7))); err != nil {
		t.Fatal(err)
	}
	if got := noted(); got != "5 after 4c4, 6 after 5c5, 7 after 6c6" || !slices.Equal(told, []int64{6, 7}) {
		t.Errorf("noted %s, told %v", got, told)
	}
	again := open()
	if again.uuid != "u" || again.last != 7 {
		t.Errorf("goes on from %+v", again)
	}
	told = nil
	if err := errors.Join(again.note(terms(7, 9)), again.note(terms(9, 10))); err != nil {
		t.Fatal(err)
	}
	if got := noted(); !strings.HasSuffix(got, "7 after 6c6, 8 after 7c7, 9 after 8c8, 10 after 9c9") || !slices.Equal(told, []int64{10}) {
		t.Errorf("noted %s, told %v", got, told)
	}
	again.torn = true
	_ = again.file.Close()
	if err := again.note(terms(10, 11)); err == nil || again.last != 10 {
		t.Errorf("a file that cannot be written: %v, last %d", err, again.last)
	}
}
