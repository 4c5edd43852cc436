package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/sim"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// story is what the script should see: a wins at revision 10, is frozen, b wins
// at 20, and a again at 30.
func story(t *testing.T) (*witness, []string) {
	keys := cluster.KeysOf("test")
	w := &witness{ledger: newLedger(keys), brokers: 1}
	w.checker = sim.NewChecker(keys, sim.Bounds{})
	w.claims = []claim{{rev: 10, epoch: 1, daemon: "a"}, {rev: 20, epoch: 2, daemon: "b"}, {rev: 30, epoch: 3, daemon: "a"}}
	for _, rev := range []store.Rev{20, 30} {
		w.changes = append(w.changes, change{rev: rev, key: "controller"})
		w.writes[rev] = &write{daemon: w.claimOf(rev).daemon, mints: true, answered: true, applied: true, rev: rev}
	}
	w.changes = append(w.changes, change{rev: 25, key: "partitions/x/0", epochs: []cluster.Epoch{2}})
	w.writes[25] = &write{daemon: "b", guard: 20, answered: true, applied: true, rev: 25}
	w.heldTxn = &write{daemon: "a", guard: 10, answered: true, rev: 22, unmet: []string{keys.Controller(), keys.ControllerEpoch()}}
	w.failed = []*write{w.heldTxn}
	w.heldCmd = &command{broker: 1, sender: "a", epoch: 1, states: 3, answered: true, refusal: pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH}
	w.sent = []*command{w.heldCmd}
	return w, []string{brokerLog(t, "a 1 ADMITTED", "b 2 ADMITTED", "a 1 STALE_CONTROLLER_EPOCH", "a 3 ALREADY")}
}

// brokerLog is a file of decisions, each "sender epoch result".
func brokerLog(t *testing.T, decisions ...string) string {
	var lines strings.Builder
	for _, d := range decisions {
		f := strings.Fields(d)
		fmt.Fprintf(&lines, `{"command":"LEADER_AND_ISR","sender":%q,"ce":%s,"be":5,"topic":"t","partition":0,"result":%q}`+"\n", f[0], f[1], f[2])
	}
	file := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestVerdict(t *testing.T) {
	cases := []struct {
		name  string
		spoil func(t *testing.T, w *witness, logs []string)
		want  string // in the error; empty: none
	}{
		{"as it should be", func(*testing.T, *witness, []string) {}, ""},
		{"the late write was applied", func(_ *testing.T, w *witness, _ []string) { w.heldTxn.applied = true }, "applied a write of epoch 1"},
		{"no write was late", func(_ *testing.T, w *witness, _ []string) { w.heldTxn = nil }, "no write of epoch 1 arrived late"},
		{"the late write is another term's", func(_ *testing.T, w *witness, _ []string) { w.heldTxn.guard = 20 }, "not of the frozen term's 10"},
		{"the late write met more than its guard", func(_ *testing.T, w *witness, _ []string) {
			w.heldTxn.unmet = append(w.heldTxn.unmet, "topics/x")
		}, "topics/x"},
		{"no guard failed", func(_ *testing.T, w *witness, _ []string) { w.failed = nil }, "no guard failed"},
		{"the late command was obeyed", func(_ *testing.T, w *witness, _ []string) { w.heldCmd.refusal = 0 }, "with ADMITTED"},
		{"no command was late", func(_ *testing.T, w *witness, _ []string) { w.heldCmd = nil }, "no command of epoch 1 arrived late"},
		{"no command was refused", func(_ *testing.T, w *witness, _ []string) { w.sent = nil }, "no command was refused"},
		{"the old term wrote", func(_ *testing.T, w *witness, _ []string) { w.writes[25].guard = 10 }, "under the claim of epoch 1"},
		{"a record of the old term appeared", func(_ *testing.T, w *witness, _ []string) { w.changes[2].epochs[0] = 1 }, "a record that epoch 1 wrote"},
		{"somebody wrote without a claim", func(_ *testing.T, w *witness, _ []string) { w.writes[25].guard = 0 }, "without a claim"},
		{"nobody knows who wrote", func(_ *testing.T, w *witness, _ []string) { delete(w.writes, 25) }, "nobody knows who"},
		{"the old daemon never came back", func(_ *testing.T, w *witness, _ []string) { w.claims = w.claims[:2] }, "want three terms"},
		{"an epoch was left out", func(_ *testing.T, w *witness, _ []string) { w.claims[2].epoch = 4 }, "epoch 4 follows epoch 2"},
		{"a broker obeyed the old after the new", func(t *testing.T, _ *witness, logs []string) {
			logs[0] = brokerLog(t, "a 1 ADMITTED", "b 2 ADMITTED", "a 1 ADMITTED", "a 1 STALE_CONTROLLER_EPOCH", "a 3 ADMITTED")
		}, sim.ErrStaleAccepted.Error()},
		{"two sent with one epoch", func(t *testing.T, _ *witness, logs []string) {
			logs[0] = brokerLog(t, "a 1 ADMITTED", "b 2 ADMITTED", "a 2 ADMITTED", "a 1 STALE_CONTROLLER_EPOCH", "a 3 ADMITTED")
		}, sim.ErrTwoSenders.Error()},
		{"a broker did not hear of a term", func(t *testing.T, _ *witness, logs []string) {
			logs[0] = brokerLog(t, "a 1 ADMITTED", "a 1 STALE_CONTROLLER_EPOCH", "a 3 ADMITTED")
		}, "obeyed nothing of epoch 2"},
		{"a log is missing", func(_ *testing.T, _ *witness, logs []string) { logs[0] = "/nowhere" }, "read the log of broker 1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w, logs := story(t)
			c.spoil(t, w, logs)
			_, err := w.verdict(logs)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("found %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("found %v, want %q", err, c.want)
			}
		})
	}
}
