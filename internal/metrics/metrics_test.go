package metrics

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/controller"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/internal/prom/promtest"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

// still is a daemon that shows what a test says.
type still struct {
	snapshot controller.Snapshot
	leading  cluster.Epoch // 0: it may not act
	stepped  time.Duration
}

func (s *still) Snapshot() *controller.Snapshot { return &s.snapshot }
func (s *still) Leading() (cluster.Epoch, bool) { return s.leading, s.leading != 0 }
func (s *still) Stepped() time.Duration         { return s.stepped }
func (s *still) QueueLength() int               { return 3 }

// full is an active daemon all of whose gauges and counters differ from 0.
func full() *still {
	s := &still{leading: 7, snapshot: controller.Snapshot{
		At: election.Clock(), Claim: 7, Epoch: 7, Revision: 1000, Refused: true, Problems: 2, SkippedKeys: 3, Candidates: 4,
		Topics: 5, TopicsDue: 6, Tombstones: 7, Agenda: 8, Requests: 9, Pending: 10, Offline: 11,
		Partitions: cluster.Health{Partitions: 100, Unknown: 1, Offline: 2, UnderReplicated: 3, NotPreferred: 4},
		Standing:   election.Standing{State: "active", Deadline: election.Clock() + time.Hour, Proven: election.Clock() - time.Minute, Behind: 12},
		Running:    2, Draining: 3, Unreachable: 5, Backlogs: []rpc.Backlog{{Broker: 1, Connected: true, Pending: 10}, {Broker: 2}},
		Owner: controller.OwnerStats{LongestStep: time.Second},
	}}
	s.snapshot.Stats.Terms, s.snapshot.Stats.GuardFailed, s.snapshot.Stats.Ended[1] = 13, 14, 15
	s.snapshot.Push.Refusals[1] = 16
	s.snapshot.Stats.Takeover[controller.PhaseCommit].Observe(20 * time.Millisecond)
	return s
}

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func pagesOf(d Daemon) http.Handler {
	return Pages(d, NewRegistry(d, &Calls{}, "v1.2.3"), "v1.2.3", slog.New(slog.DiscardHandler))
}

// samples are those of a scrape, by name and labels.
func samples(t *testing.T, h http.Handler) map[string]float64 {
	t.Helper()
	code, body := get(t, h, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("/metrics: %d %s", code, body)
	}
	dec := expfmt.SampleDecoder{Dec: expfmt.NewDecoder(strings.NewReader(body), expfmt.NewFormat(expfmt.TypeTextPlain)), Opts: &expfmt.DecodeOptions{}}
	out := map[string]float64{}
	for {
		var v model.Vector
		if err := dec.Decode(&v); err == io.EOF {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		for _, s := range v {
			out[s.Metric.String()] = float64(s.Value)
		}
	}
}

// TestActiveAndDeposed: what a daemon shows as the active one is 0 as soon as
// it may not act any more, though its snapshot is of before; what counts since
// the process began stays.
func TestActiveAndDeposed(t *testing.T) {
	want := map[string][2]float64{
		"controllerd_active":                                                    {1, 0},
		"controllerd_epoch":                                                     {7, 7},
		"controllerd_candidates":                                                {4, 0},
		"controllerd_topics":                                                    {5, 0},
		"controllerd_topics_due":                                                {6, 0},
		"controllerd_tombstones":                                                {7, 0},
		"controllerd_partitions":                                                {100, 0},
		"controllerd_unknown_partitions":                                        {1, 0},
		"controllerd_offline_partitions":                                        {2, 0},
		"controllerd_under_replicated_partitions":                               {3, 0},
		"controllerd_preferred_leader_imbalance":                                {4, 0},
		"controllerd_offline_replicas":                                          {11, 0},
		"controllerd_agenda_partitions":                                         {8, 0},
		"controllerd_waiting_requests":                                          {9, 0},
		"controllerd_pending_states":                                            {10, 0},
		"controllerd_etcd_writes_refused":                                       {1, 0},
		`controllerd_brokers{state="running"}`:                                  {2, 0},
		`controllerd_brokers{state="draining"}`:                                 {3, 0},
		`controllerd_brokers{state="unreachable"}`:                              {5, 0},
		`controllerd_broker_connected{broker="1"}`:                              {1, 0},
		`controllerd_broker_connected{broker="2"}`:                              {0, 0},
		`controllerd_broker_pending_states{broker="1"}`:                         {10, 0},
		`controllerd_session_state{state="active"}`:                             {1, 1},
		`controllerd_session_state{state="standby"}`:                            {0, 0},
		"controllerd_skipped_keys":                                              {3, 3},
		"controllerd_problems":                                                  {2, 2},
		"controllerd_image_revision":                                            {1000, 1000},
		"controllerd_watch_lag_revisions":                                       {12, 12},
		"controllerd_event_queue_length":                                        {3, 3},
		"controllerd_longest_step_seconds":                                      {1, 1},
		"controllerd_terms_won_total":                                           {13, 13},
		"controllerd_guards_failed_total":                                       {14, 14},
		`controllerd_terms_ended_total{cause="claim_lost"}`:                     {15, 15},
		`controllerd_commands_refused_total{reason="stale_controller_epoch"}`:   {16, 16},
		`controllerd_takeover_phase_seconds_count{phase="commit"}`:              {1, 1},
		`controllerd_takeover_phase_seconds_bucket{le="0.025", phase="commit"}`: {1, 1},
		`controllerd_takeover_phase_seconds_bucket{le="0.01", phase="commit"}`:  {0, 0},
	}
	d := full()
	pages := pagesOf(d)
	for i, leading := range []cluster.Epoch{7, 0, 8} {
		d.leading = leading
		got := samples(t, pages)
		for name, values := range want {
			v, ok := got[name]
			gone := i > 0 && strings.HasPrefix(name, "controllerd_broker_")
			if ok == gone || v != values[min(i, 1)] {
				t.Errorf("leading under %d: %s is %v (%v), want %v", leading, name, v, ok, values[min(i, 1)])
			}
		}
	}
}

// TestNames holds the names against the conventions of Prometheus.
func TestNames(t *testing.T) {
	d := full()
	problems, err := testutil.GatherAndLint(NewRegistry(d, &Calls{}, "v1.2.3"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestPages: the health pages in each state that matters to them.
func TestPages(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*still)
		want   map[string]int
	}{
		"active":   {func(*still) {}, map[string]int{"/livez": 200, "/readyz": 200, "/leader": 200, "/version": 200, "/metrics": 200, "/debug/pprof/": 404}},
		"standby":  {func(s *still) { s.leading = 0 }, map[string]int{"/livez": 200, "/readyz": 200, "/leader": 503}},
		"unfit":    {func(s *still) { s.snapshot.Unfit = []string{"etcd takes no writes"} }, map[string]int{"/livez": 200, "/readyz": 503, "/leader": 200}},
		"hangs":    {func(s *still) { s.stepped = hangs + 1 }, map[string]int{"/livez": 503, "/readyz": 503}},
		"busy":     {func(s *still) { s.stepped = hangs }, map[string]int{"/livez": 200, "/readyz": 503}},
		"no hurry": {func(s *still) { s.stepped = busy }, map[string]int{"/livez": 200, "/readyz": 200}},
	} {
		d := full()
		tt.change(d)
		pages := pagesOf(d)
		for path, want := range tt.want {
			if code, body := get(t, pages, path); code != want {
				t.Errorf("%s: %s is %d, want %d: %s", name, path, code, want, body)
			}
		}
	}
	pages := pagesOf(full())
	if _, body := get(t, pages, "/leader"); body != "active under epoch 7\n" {
		t.Errorf("/leader says %q", body)
	}
	w := httptest.NewRecorder()
	pages.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/leader", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST /leader: %d", w.Code)
	}
}

// TestServe: nothing is left when it has stopped, whoever is still connected.
func TestServe(t *testing.T) {
	defer goleak.VerifyNone(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, l, pagesOf(full())) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + l.Addr().String() + "/readyz")
	if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%+v, %v", resp, err)
	}
	_ = resp.Body.Close()
	slow, err := net.Dial("tcp", l.Addr().String()) // says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	stop()
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("still serving")
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the listener is open")
	}
}

// TestCalls: calls are told apart, and so are those that failed and those that
// were broken off.
func TestCalls(t *testing.T) {
	calls := &Calls{}
	s := calls.Wrap(failing{})
	_, _ = s.Commit(t.Context(), store.Txn{})
	_, _ = s.Get(t.Context(), "k")
	_, _ = s.List(t.Context(), "k", true)
	_, _ = s.Grant(t.Context(), time.Second)
	_, _ = s.Renew(t.Context(), 1)
	_ = s.Revoke(t.Context(), 1)
	got := samples(t, Pages(full(), NewRegistry(full(), calls, ""), "", slog.New(slog.DiscardHandler)))
	for op, failed := range map[string]float64{"commit": 1, "get": 0, "list": 0, "grant": 1, "renew": 1, "revoke": 0} {
		if n := got[`controllerd_etcd_request_seconds_count{op="`+op+`"}`]; n != 1 {
			t.Errorf("%v calls of %s", n, op)
		}
		if n := got[`controllerd_etcd_request_errors_total{op="`+op+`"}`]; n != failed {
			t.Errorf("%v calls of %s failed, want %v", n, op, failed)
		}
	}
}

// failing is a store some of whose calls fail.
type failing struct{ store.Store }

func (failing) Commit(context.Context, store.Txn) (store.Result, error) {
	return store.Result{}, store.ErrNoSpace
}
func (failing) Get(context.Context, ...string) (store.Snapshot, error) { return store.Snapshot{}, nil }
func (failing) List(context.Context, string, bool) (store.Snapshot, error) {
	return store.Snapshot{}, context.Canceled
}
func (failing) Grant(context.Context, time.Duration) (store.Lease, error) {
	return store.Lease{}, store.ErrUnknown
}
func (failing) Renew(context.Context, store.LeaseID) (time.Duration, error) {
	return 0, store.ErrLeaseNotFound
}
func (failing) Revoke(context.Context, store.LeaseID) error { return nil }

func TestDocs(t *testing.T) { promtest.Docs(t, "../../docs/METRICS.md", "daemons", Table()) }

func TestProfiles(t *testing.T) {
	pages := Profiles()
	for path, want := range map[string]int{"/debug/pprof/": 200, "/debug/pprof/heap": 200, "/debug/pprof/cmdline": 200, "/metrics": 404} {
		if code, _ := get(t, pages, path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
}
