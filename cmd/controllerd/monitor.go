package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/controllerd/controllerd/internal/hook"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// minInterval is the shortest time between two lines: more often would tell
// about this command rather than about the cluster.
const minInterval = 50 * time.Millisecond

func newMonitor() *cobra.Command {
	m := &monitor{client: &client{}}
	cmd := &cobra.Command{
		Use:   "monitor",
		Short: "Show one line of figures an interval, with no monitoring system",
		Long: `Show one line of figures an interval until interrupted. The active daemon is asked,
or another one if it does not answer. A daemon that does not answer in the interval
costs a line without figures, which ends with the reason. With --count the exit code
is that of the last line.

` + metricHelp() + `

With --history, each change of controller is appended to a file as a line of JSON,
also those since the last one in it. With --hook a command is run, or a URL posted
to, on each change while this command runs, as "serve --on-controller-change" does
it; what becomes of it is logged on stderr.`,
		Example: `  controllerd monitor --interval 1s --metrics active,offline,under_replicated -o csv
  controllerd monitor --history changes.jsonl --hook "sh -c 'echo $CONTROLLERD_ID | wall'"`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := m.validate(); err != nil {
				return err
			}
			return m.start(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	m.addFlags(cmd.Flags())
	return cmd
}

// monitor is what the flags of the command say.
type monitor struct {
	*client
	interval time.Duration
	metrics  []string
	format   lineFormat
	count    int
	history  string
	hook     hook.Target
}

func (m *monitor) addFlags(f *pflag.FlagSet) {
	m.addServerFlags(f)
	m.format = "text"
	f.DurationVar(&m.interval, "interval", time.Second, "time between two lines, at least "+minInterval.String())
	f.StringSliceVar(&m.metrics, "metrics", []string{"active", "offline", "under_replicated", "session", "isr_rate"}, "what to show, in this order")
	f.VarP(&m.format, "output", "o", "how to show a line")
	f.IntVar(&m.count, "count", 0, "end after so many lines; 0: go on until interrupted")
	f.StringVar(&m.history, "history", "", "`file` to append changes of controller to")
	f.Var(&m.hook, "hook", "command to run, or http(s) URL to post to, on each change of controller")
}

// validate reports all that is wrong with the flags.
func (m *monitor) validate() error {
	faults := []error{m.client.validate()}
	if m.interval < minInterval {
		faults = append(faults, usagef("interval %v is below %v", m.interval, minInterval))
	}
	if m.count < 0 {
		faults = append(faults, usagef("count %d is negative", m.count))
	}
	if len(m.metrics) == 0 {
		faults = append(faults, usagef("no metric given"))
	}
	for i, name := range m.metrics {
		switch {
		case findMetric(name) == nil:
			faults = append(faults, usagef("metric %q is unknown", name))
		case slices.Index(m.metrics, name) < i:
			faults = append(faults, usagef("metric %q is named twice", name))
		}
	}
	return errors.Join(faults...)
}

// start runs the monitor on real daemons.
func (m *monitor) start(ctx context.Context, out, stderr io.Writer) error {
	hooks := hook.NewRunner(m.hook, slog.New(slog.NewTextHandler(stderr, nil)))
	defer hooks.Wait()
	c := changes{tell: func(ch hook.Change) { hooks.Start(ctx, ch) }}
	if m.history != "" {
		if err := c.open(m.history); err != nil {
			return err
		}
		defer func() { _ = c.file.Close() }()
	}
	p := &poller{client: m.client}
	return m.run(ctx, out, func(ctx context.Context) sample { return p.poll(ctx, &c) })
}

// run shows a line an interval. What was not asked in time, because the lines
// before could not be written say, has a line that says so.
func (m *monitor) run(ctx context.Context, out io.Writer, poll func(context.Context) sample) error {
	w := &lineWriter{format: m.format, out: out, metrics: m.metrics}
	var last sample
	next := time.Now()
	for n := 0; m.count == 0 || n < m.count; n++ {
		if late := time.Since(next); late >= m.interval {
			last = sample{at: next, err: errors.New("not asked in time")}
		} else {
			limited, cancel := context.WithTimeout(ctx, min(m.timeout, m.interval*9/10))
			last = poll(limited)
			cancel()
			last.at = next
		}
		if ctx.Err() != nil {
			return nil // how it is meant to end
		}
		if err := w.write(last); err != nil {
			return err
		}
		next = next.Add(m.interval)
		if n+1 == m.count {
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(next)):
		}
	}
	return last.err
}

// sample is what was asked for one line.
type sample struct {
	at   time.Time
	resp *pb.DescribeControllerResponse // nil: no answer
	err  error                          // why there is none, or not all of it
	// changed are the partitions whose ISR has changed, a second; nil: not known.
	changed *float64
}

// metric is one figure.
type metric struct {
	name, help string
	read       func(s sample) any // nil: not known
}

var allMetrics = []metric{
	{"active", "id of the active controller, empty if there is none", func(s sample) any { return s.resp.GetControllerId() }},
	{"epoch", "controller epoch", func(s sample) any { return s.resp.GetEpoch() }},
	{"offline", "partitions without a leader", func(s sample) any { return s.resp.GetOfflinePartitions() }},
	{"under_replicated", "partitions whose ISR lacks replicas", func(s sample) any { return s.resp.GetUnderReplicatedPartitions() }},
	{"unknown", "partitions whose record is missing or unreadable", func(s sample) any { return s.resp.GetUnknownPartitions() }},
	{"session", "state of the session with etcd of the daemon that answered: active if all is well", func(s sample) any { return s.resp.GetSessionState() }},
	{"isr_rate", "partitions whose ISR has changed, a second, since the line before; empty if that is not known", func(s sample) any {
		if s.changed == nil {
			return nil
		}
		return *s.changed
	}},
	{"brokers", "live brokers", func(s sample) any { return s.resp.GetBrokers() }},
	{"partitions", "partitions", func(s sample) any { return s.resp.GetPartitions() }},
	{"problems", "problems that \"controller status\" names", func(s sample) any { return len(s.resp.GetProblems()) }},
}

func findMetric(name string) *metric {
	i := slices.IndexFunc(allMetrics, func(m metric) bool { return m.name == name })
	if i < 0 {
		return nil
	}
	return &allMetrics[i]
}

// metricHelp lists the metrics.
func metricHelp() string {
	lines := []string{"Metrics:"}
	for _, m := range allMetrics {
		lines = append(lines, fmt.Sprintf("  %-17s %s", m.name, m.help))
	}
	return strings.Join(lines, "\n")
}

// lineFormat is how a line is shown.
type lineFormat string

var lineFormats = []string{"text", "csv", "json"}

func (f *lineFormat) String() string { return string(*f) }
func (f *lineFormat) Type() string   { return strings.Join(lineFormats, "|") }

func (f *lineFormat) Set(s string) error {
	if !slices.Contains(lineFormats, s) {
		return fmt.Errorf("want one of %s", strings.Join(lineFormats, ", "))
	}
	*f = lineFormat(s)
	return nil
}

// lineWriter shows samples.
type lineWriter struct {
	format  lineFormat
	out     io.Writer
	metrics []string
	begun   bool
}

func (w *lineWriter) write(s sample) error {
	at, fault := timeOf(s.at.UnixMilli()), ""
	if s.err != nil {
		fault = printable(abridged(strings.ReplaceAll(s.err.Error(), "\n", "; ")))
	}
	values := make([]any, len(w.metrics))
	for i, name := range w.metrics {
		if s.resp != nil {
			values[i] = findMetric(name).read(s)
		}
	}
	switch w.format {
	case "csv":
		return w.csv(at, values, fault)
	case "json":
		line := map[string]any{"time": at, "error": fault}
		for i, name := range w.metrics {
			line[name] = values[i]
		}
		return writeJSONLine(w.out, line)
	}
	line := at
	for i, name := range w.metrics {
		line += fmt.Sprintf("  %s=%s", name, printable(cell(values[i])))
	}
	if fault != "" {
		line += "  error=" + fault
	}
	_, err := fmt.Fprintln(w.out, line)
	return err
}

// csv has a header above the first line.
func (w *lineWriter) csv(at string, values []any, fault string) error {
	c := csv.NewWriter(w.out)
	if !w.begun {
		w.begun = true
		_ = c.Write(slices.Concat([]string{"time"}, w.metrics, []string{"error"})) // Flush says it too
	}
	row := []string{at}
	for _, v := range values {
		row = append(row, cell(v))
	}
	_ = c.Write(append(row, fault))
	c.Flush()
	return c.Error()
}

// cell is empty for what is not known.
func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case float64:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprint(v)
}
