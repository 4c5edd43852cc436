package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// severity is how a check ends, the worse the higher.
type severity int

const (
	fine severity = iota
	warn
	bad
)

func (s severity) String() string { return []string{"ok", "warn", "bad"}[s] }

// MarshalText shows it in JSON.
func (s severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads it back.
func (s *severity) UnmarshalText(text []byte) error {
	for _, known := range []severity{fine, warn, bad} {
		if known.String() == string(text) {
			*s = known
			return nil
		}
	}
	return fmt.Errorf("unknown severity %q", text)
}

// finding is what a check has found.
type finding struct {
	Check  string   `json:"check"`
	Status severity `json:"status"`
	Found  string   `json:"found"`
	Advice string   `json:"advice"` // empty: nothing is to be done
}

// worse makes a finding at least that bad, if so, and says what to do.
func (f *finding) worse(so bool, s severity, advice string) {
	if so && s > f.Status {
		f.Status, f.Advice = s, advice
	}
}

// doctor looks at daemons and at etcd, and judges what it sees.
type doctor struct {
	client
	etcd    direct
	clock   func() time.Time
	latency time.Duration // of etcd, above which it deserves a look
	history int64         // revisions that etcd may keep
}

// check is one thing that doctor looks at.
type check struct {
	name, about string
	judge       func(*doctor, *etcdFacts, *daemonFacts) finding
	etcd        bool // it looks at etcd, not at daemons
}

// checks are all of them, in the order in which they are shown.
var checks = []check{
	{"daemons", "all answer, one is active, and nothing is wrong there", judgeDaemons, false},
	{"versions", "daemons and members of etcd each run one version", judgeVersions, false},
	{"clock", "the clocks of this machine, the daemons and etcd agree", judgeClock, false},
	{"lease-margin", "renewals of the daemons' leases come in good time", judgeLeases, false},
	{"brokers", "all live brokers confirm what they are told", judgeBrokers, false},
	{"etcd-members", "all members of etcd answer, and have a leader", judgeMembers, true},
	{"etcd-latency", "etcd answers reads and writes quickly", judgeLatency, true},
	{"etcd-size", "etcd's database is far from its quota", judgeSize, true},
	{"etcd-compaction", "etcd forgets its history", judgeCompaction, true},
}

func newDoctor(clock func() time.Time) *cobra.Command {
	d := &doctor{clock: clock}
	var about strings.Builder
	var names []string
	for _, c := range checks {
		fmt.Fprintf(&about, "  %-16s %s\n", c.name, c.about)
		names = append(names, c.name)
	}
	cmd := &cobra.Command{
		Use:   "doctor [CHECK...]",
		Short: "Look for what is wrong, and say what to do",
		Long: `Look at the daemons and at etcd for what is wrong or soon will be, and say what to
do. Nothing is changed. Without arguments all checks are made:

` + about.String() + `
Each says ok, warn or bad. The exit code is 0 if all are ok, 5 if the worst is a
warn, 6 if one is bad. What cannot be seen counts as bad.

Daemons are reached as by all commands (--server), etcd as by serve and debug: also
by the variables of the environment.`,
		Example: `  controllerd doctor --server 10.0.0.1:7070 --etcd-endpoints 10.0.0.1:2379,10.0.0.2:2379
  controllerd doctor brokers lease-margin
  controllerd doctor -o json | jq '.checks[] | select(.status != "ok")'`,
		ValidArgsFunction: cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp),
		Args: func(_ *cobra.Command, args []string) error {
			for _, a := range args {
				if !slices.Contains(names, a) {
					return usagef("unknown check %q, want some of %s", a, strings.Join(names, ", "))
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := d.faults(); err != nil {
				return err
			}
			return d.run(cmd, args)
		},
	}
	f := cmd.Flags()
	d.etcd.addFlags(f)
	d.client.addFlags(cmd)
	f.DurationVar(&d.latency, "latency", 100*time.Millisecond, "how slow the slowest answer of etcd may be; five times that is bad")
	f.Int64Var(&d.history, "history", 1_000_000, "how many `revisions` etcd may keep; ten times that is bad")
	return cmd
}

// faults is what makes no sense, before anything is asked.
func (d *doctor) faults() error {
	if err := d.client.validate(); err != nil {
		return err
	}
	switch d.etcd.timeout = d.timeout; {
	case d.latency <= 0:
		return usagef("--latency is %v, want more than 0", d.latency)
	case d.history < 1 || d.history > maxHistory:
		return usagef("--history is %d, want 1 to %d", d.history, int64(maxHistory))
	}
	return d.etcd.validate()
}

// run makes the checks of those names, or all.
func (d *doctor) run(cmd *cobra.Command, names []string) error {
	v := &doctorView{Checks: []finding{}}
	for _, c := range checks {
		if len(names) == 0 || slices.Contains(names, c.name) {
			v.Checks = append(v.Checks, finding{Check: c.name})
		}
	}
	bar := newProgress(cmd.ErrOrStderr())
	see := &facts{doctor: d, wants: v.wants}
	err := see.all(cmd.Context(), bar)
	bar.end()
	if err != nil {
		return err
	}
	for i, f := range v.Checks {
		at := slices.IndexFunc(checks, func(c check) bool { return c.name == f.Check })
		f = checks[at].judge(d, &see.etcd, &see.daemons)
		f.Check = checks[at].name
		v.Checks[i], v.Worst = f, max(v.Worst, f.Status)
	}
	return errors.Join(d.show(cmd.OutOrStdout(), v), v.verdict())
}

// facts are what the checks judge. What several of them look at is looked at
// once.
type facts struct {
	*doctor
	wants   func(names ...string) bool
	etcd    etcdFacts
	daemons daemonFacts
}

func (f *facts) all(ctx context.Context, bar *progress) error {
	steps := []struct {
		what  string
		needs []string
		look  func(context.Context)
	}{
		{"daemons", []string{"daemons", "versions", "clock", "lease-margin", "brokers"}, f.lookAtDaemons},
		{"brokers", []string{"brokers"}, f.lookAtBrokers},
		{"etcd", []string{"versions", "clock", "etcd-members", "etcd-latency", "etcd-size", "etcd-compaction"}, f.lookAtEtcd},
	}
	for i, s := range steps {
		bar.update(int64(i), int64(len(steps)), "looking at "+s.what)
		if f.wants(s.needs...) {
			s.look(ctx)
		}
		if ctx.Err() != nil {
			return errInterrupted
		}
	}
	return nil
}

// doctorView is what doctor has found.
type doctorView struct {
	Checks []finding `json:"checks"`
	Worst  severity  `json:"worst"`
}

func (v *doctorView) wants(names ...string) bool {
	return slices.ContainsFunc(v.Checks, func(f finding) bool { return slices.Contains(names, f.Check) })
}

func (v *doctorView) table() table {
	t := table{head: []string{"CHECK", "STATUS", "FOUND"}}
	for _, f := range v.Checks {
		t.rows = append(t.rows, []string{f.Check, f.Status.String(), f.Found})
		if f.Advice != "" { // in a line of its own: both are long
			t.rows = append(t.rows, []string{" ", " ", "To do: " + f.Advice})
		}
	}
	return t
}

// verdict is the error with the exit code of the worst check.
func (v *doctorView) verdict() error {
	names := map[severity][]string{}
	for _, f := range v.Checks {
		names[f.Status] = append(names[f.Status], f.Check)
	}
	var parts []string
	for _, s := range []severity{bad, warn} {
		if len(names[s]) > 0 {
			parts = append(parts, s.String()+": "+strings.Join(names[s], ", "))
		}
	}
	if parts == nil {
		return nil
	}
	return verdict{v.Worst, strings.Join(parts, "; ")}
}

// verdict says which checks did not end well.
type verdict struct {
	worst severity
	text  string
}

func (v verdict) Error() string { return v.text }

func (v verdict) code() int {
	if v.worst == bad {
		return exitBad
	}
	return exitWarn
}
