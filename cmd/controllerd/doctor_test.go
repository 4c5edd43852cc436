package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/controllerd/controllerd/internal/etcdtest"
	"github.com/controllerd/controllerd/internal/localcluster"
	"github.com/controllerd/controllerd/internal/netproxy"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// examine makes one check with a clock, and wants it to end so, with the exit
// code that goes with it.
func examine(t *testing.T, clock func() time.Time, want severity, name string, flags ...string) finding {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := newGroup("controllerd", "", newDoctor(clock))
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetArgs(append([]string{"doctor", name, "-o", "json", "--cluster", "test"}, flags...))
	root.SetOut(&stdout)
	root.SetErr(io.Discard) // a line of progress
	cmd, err := root.ExecuteContextC(t.Context())
	code := report(&stderr, cmd, err)
	v := decode[doctorView](t, result{stdout: stdout.String()})
	codes := map[severity]int{fine: exitOK, warn: exitWarn, bad: exitBad}
	named := want == fine || stderr.String() == "Error: "+want.String()+": "+name+"\n"
	f := v.Checks[0]
	if len(v.Checks) != 1 || f.Check != name || f.Status != want || v.Worst != want || code != codes[want] || !named || (f.Advice == "") != (want == fine) {
		t.Fatalf("%s: exit code %d, %s%s", name, code, stderr.String(), stdout.String())
	}
	return f
}

// says fails unless a finding has each of the words.
func (f finding) says(t *testing.T, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(f.Found, w) {
			t.Errorf("%s: no %q in %q", f.Check, w, f.Found)
		}
	}
}

func (w *world) etcdFlag() string { return "--etcd-endpoints=" + w.etcd.Endpoint() }

func active(w *world) *localcluster.Daemon { d, _ := w.roles(); return d }

// TestDoctorFindsNothing: where nothing is wrong all checks say so, from any
// daemon, and nothing is changed.
func TestDoctorFindsNothing(t *testing.T) {
	w := newWorldOf(t, 20*time.Second, 2, 2) // a short lease would not have its usual margin on a busy machine
	w.topic("orders", 4, 2)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := w.etcd.Client(t)
	var r result
	eventually(t, "all is well", func() bool { // but for a machine that is busy
		before, err := client.Get(ctx, "x")
		if err != nil {
			t.Fatal(err)
		}
		r = w.cli("doctor", w.etcdFlag(), "--cluster", "test", "--latency", "2s")
		after, err := client.Get(ctx, "x")
		return r.code == exitOK && err == nil && before.Header.Revision == after.Header.Revision
	})
	lines := r.lines()
	if len(lines) != 1+len(checks) || lines[0] != "CHECK STATUS FOUND" {
		t.Fatalf("%q", lines)
	}
	for i, c := range checks {
		if !strings.HasPrefix(lines[i+1], c.name+" ok ") {
			t.Errorf("%s", lines[i+1])
		}
	}
}

// TestDoctorOfDaemons makes each check of daemons bad.
func TestDoctorOfDaemons(t *testing.T) {
	w := newWorldOf(t, 20*time.Second, 1, 2) // a busy machine must not give the seat to the other
	faults := &etcdtest.Faults{}
	other, err := localcluster.StartDaemon(localcluster.DaemonConfig{
		ID: "other", Cluster: "test", EtcdEndpoints: []string{w.etcd.Endpoint()}, Version: "v1.3.0", Logger: quietly,
		EtcdOptions: faults.DialOptions(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Kill)
	eventually(t, "both stand by", func() bool {
		return len(decode[controllersView](t, w.cli("controller", "list", "-o", "json")).Controllers) == 2
	})

	t.Run("versions", func(t *testing.T) {
		examine(t, time.Now, warn, "versions", w.server(), w.etcdFlag()).says(t, "daemons v1.2.3, v1.3.0; etcd 3.")
	})
	t.Run("clock", func(t *testing.T) {
		fast := func() time.Time { return time.Now().Add(90 * time.Second) }
		examine(t, fast, bad, "clock", w.server(), w.etcdFlag()).says(t, "daemon a is behind by 1m", "daemon other is behind by 1m", "etcd "+w.etcd.Endpoint()+" is behind by 1m")
		slow := func() time.Time { return time.Now().Add(-9500 * time.Millisecond) }
		examine(t, slow, warn, "clock", w.server(), w.etcdFlag()).says(t, "daemon a is ahead by 9.", "etcd "+w.etcd.Endpoint()+" is ahead by ")
		examine(t, time.Now, fine, "clock", w.server(), w.etcdFlag()).says(t, "daemon a agrees", "etcd "+w.etcd.Endpoint()+" agrees")
	})
	t.Run("lease-margin", func(t *testing.T) {
		// A lease of 2 s is renewed after 0.5 s and given up 0.5 s before its end.
		slow := faults.Add(etcdtest.Rule{Effect: etcdtest.Slow, Method: "LeaseKeepAlive", Delay: 425 * time.Millisecond}) // there and back
		defer slow.Remove()
		server := "--server=" + other.Endpoint
		eventually(t, "little is left of the lease", func() bool {
			l := decode[statusView](t, cli("controller", "status", "-o", "json", server)).Lease
			return l != nil && l.MarginMS <= l.UsualMarginMS/4
		})
		examine(t, time.Now, bad, "lease-margin", server).says(t, "other had ", "usual is 1s of 2s")
	})
	t.Run("brokers", func(t *testing.T) {
		examine(t, time.Now, fine, "brokers", w.server()).says(t, "2 live of 2")
		w.broken[1].Store(true)
		w.cli("topic", "create", "orders", "--partitions", "2", "--replication-factor", "2", "--block-size", "1").want(t, exitOK)
		examine(t, time.Now, bad, "brokers", w.server()).says(t, "2 live of 2; broker 1 orders/0: the handler is broken, and 1 more")
	})
	t.Run("daemons", func(t *testing.T) {
		eventually(t, "the active names what is wrong", func() bool {
			return len(decode[statusView](t, cli("controller", "status", "-o", "json", "--server", active(w).Endpoint)).Problems) > 1
		})
		examine(t, time.Now, warn, "daemons", w.server()).says(t, " is active", " stands by", " problems, the first: broker 1 orders/0: ")
		other.Kill()
		examine(t, time.Now, bad, "daemons", "--server", other.Endpoint).says(t, "cannot reach "+other.Endpoint)
	})
}

// TestDoctorOfEtcd makes each check of etcd bad.
func TestDoctorOfEtcd(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.Quota(128<<10), etcdtest.NoFsync())
	at := func(endpoints ...string) string { return "--etcd-endpoints=" + strings.Join(endpoints, ",") }
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := etcd.Client(t)

	t.Run("etcd-members", func(t *testing.T) {
		away := deaf(t)
		examine(t, time.Now, warn, "etcd-members", at(etcd.Endpoint(), away)).says(t, etcd.Endpoint()+" answers", away+" does not answer: ")
	})
	t.Run("etcd-latency", func(t *testing.T) {
		proxy, err := netproxy.Start(etcd.Endpoint())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = proxy.Close() })
		proxy.SetLatency(20 * time.Millisecond)
		examine(t, time.Now, bad, "etcd-latency", at(proxy.Addr()), "--latency", "8ms").says(t, "reads ", "writes ")
	})
	t.Run("etcd-compaction", func(t *testing.T) {
		for range 120 {
			if _, err := client.Put(ctx, "k", "v"); err != nil {
				t.Fatal(err)
			}
		}
		examine(t, time.Now, fine, "etcd-compaction", at(etcd.Endpoint())).says(t, "at revision 121, never compacted")
		examine(t, time.Now, bad, "etcd-compaction", at(etcd.Endpoint()), "--history", "12").says(t, "never compacted")
		if err := etcd.Compact(100); err != nil {
			t.Fatal(err)
		}
		examine(t, time.Now, warn, "etcd-compaction", at(etcd.Endpoint()), "--history", "12").says(t, "at revision 121, compacted up to 100")
		examine(t, time.Now, fine, "etcd-compaction", at(etcd.Endpoint()), "--history", "21")
	})
	t.Run("etcd-size", func(t *testing.T) {
		examine(t, time.Now, fine, "etcd-size", at(etcd.Endpoint())).says(t, "quota 128 KiB")
		eventually(t, "etcd is full", func() bool {
			_, err := client.Put(ctx, "k", strings.Repeat("v", 30<<10))
			return errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace)
		})
		examine(t, time.Now, bad, "etcd-size", at(etcd.Endpoint())).says(t, "quota 128 KiB", "alarm NOSPACE")
		examine(t, time.Now, bad, "etcd-latency", at(etcd.Endpoint())).says(t, "writes refused")
	})
	t.Run("nothing there", func(t *testing.T) {
		for _, name := range []string{"etcd-members", "etcd-latency", "etcd-size", "etcd-compaction"} {
			examine(t, time.Now, bad, name, at(deaf(t)), "--timeout", "300ms").says(t, "no answer from etcd at ")
		}
	})
}

// TestDoctorTable: advice has a line of its own.
func TestDoctorTable(t *testing.T) {
	v := &doctorView{Checks: []finding{{"a", fine, "well", ""}, {"b", bad, "ill", "rest"}}, Worst: bad}
	var out strings.Builder
	if err := v.table().write(&out, true); err != nil {
		t.Fatal(err)
	}
	wantLines(t, linesOf(out.String()), "CHECK STATUS FOUND", "a ok well", "b bad ill", "To do: rest")
}

// TestJudgments are those that no test above makes.
func TestJudgments(t *testing.T) {
	d := &doctor{latency: 100 * time.Millisecond, history: 1_000_000}
	member := func(change func(*clientv3.StatusResponse)) *etcdFacts {
		s := &clientv3.StatusResponse{Version: "3.7.3", Leader: 1, DbSize: 10, DbSizeQuota: 100}
		change(s)
		return &etcdFacts{members: []memberFacts{{endpoint: "e:1", status: s}}}
	}
	daemon := func(role string, lease *pb.DaemonLease) daemonFact {
		return daemonFact{summary: &pb.ControllerSummary{Id: "d"}, answer: &pb.DescribeControllerResponse{Id: "d", Role: role, Version: "v1", Lease: lease}}
	}
	of := func(all ...daemonFact) *daemonFacts { return &daemonFacts{daemons: all} }
	lease := func(margin int64) *daemonFacts {
		return of(daemon("standby", &pb.DaemonLease{TtlMs: 5000, UsualMarginMs: 2000, MarginMs: margin}))
	}
	active, standby := daemon("active", nil), daemon("standby", nil)
	broker := func(b *pb.BrokerSummary, idle bool) *daemonFacts {
		b.Live = true
		return &daemonFacts{brokers: &pb.ListBrokersResponse{FromActive: true, Brokers: []*pb.BrokerSummary{b}}, idle: map[int32]bool{0: idle}}
	}
	noEtcd := &etcdFacts{err: errors.New("away")}
	for _, tt := range []struct {
		name    string
		judge   func(*doctor, *etcdFacts, *daemonFacts) finding
		etcd    *etcdFacts
		daemons *daemonFacts
		want    severity
	}{
		{"one active", judgeDaemons, nil, of(active, standby), fine},
		{"two active", judgeDaemons, nil, of(active, active), bad},
		{"none active", judgeDaemons, nil, of(standby, standby), bad},
		{"alone", judgeDaemons, nil, of(active), warn},
		{"one is away", judgeDaemons, nil, of(active, standby, daemonFact{summary: &pb.ControllerSummary{}, err: errors.New("away")}), warn},
		{"old etcd", judgeVersions, member(func(s *clientv3.StatusResponse) { s.Version = "3.3.27" }), of(active), bad},
		{"old enough", judgeVersions, member(func(s *clientv3.StatusResponse) { s.Version = "3.4.0" }), of(active), fine},
		{"no etcd", judgeVersions, noEtcd, of(active), bad},
		{"no lease", judgeLeases, nil, of(standby), bad},
		{"usual margin", judgeLeases, nil, lease(1900), fine},
		{"half of it", judgeLeases, nil, lease(1000), warn},
		{"a quarter", judgeLeases, nil, lease(500), bad},
		{"it was lost", judgeLeases, nil, lease(-20), bad},
		{"busy broker", judgeBrokers, nil, broker(&pb.BrokerSummary{Unconfirmed: new(int64)}, false), fine},
		{"idle broker", judgeBrokers, nil, broker(&pb.BrokerSummary{}, true), bad},
		{"unreachable broker", judgeBrokers, nil, broker(&pb.BrokerSummary{Unreachable: true}, false), bad},
		{"no active", judgeBrokers, nil, &daemonFacts{brokers: &pb.ListBrokersResponse{}}, bad},
		{"no leader", judgeMembers, member(func(s *clientv3.StatusResponse) { s.Leader = 0 }), nil, bad},
		{"corrupt", judgeMembers, member(func(s *clientv3.StatusResponse) { s.Errors = []string{"memberID:1 alarm:CORRUPT"} }), nil, bad},
		{"59 %", judgeSize, member(func(s *clientv3.StatusResponse) { s.DbSize = 59 }), nil, fine},
		{"60 %", judgeSize, member(func(s *clientv3.StatusResponse) { s.DbSize = 60 }), nil, warn},
		{"80 %", judgeSize, member(func(s *clientv3.StatusResponse) { s.DbSize = 80 }), nil, bad},
		{"no quota told", judgeSize, member(func(s *clientv3.StatusResponse) { s.DbSizeQuota = 0 }), nil, fine},
		{"slow", judgeLatency, &etcdFacts{reads: []time.Duration{1, d.latency}, commits: []time.Duration{1}}, nil, warn},
		{"never compacted, old", judgeCompaction, &etcdFacts{revision: youngHistory + 1}, nil, warn},
		{"no clock", judgeClock, noEtcd, &daemonFacts{err: errors.New("away")}, bad},
		{"no clock of a daemon", judgeClock, nil, &daemonFacts{err: errors.New("away")}, bad},
		{"no clock of etcd", judgeClock, noEtcd, of(active), bad},
	} {
		if got := tt.judge(d, cmp.Or(tt.etcd, &etcdFacts{}), cmp.Or(tt.daemons, &daemonFacts{})); got.Status != tt.want || (got.Advice == "") != (tt.want == fine) {
			t.Errorf("%s: %+v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestSkew: only what the time that an answer took cannot explain is a skew.
func TestSkew(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	at := func(ms int) time.Time { return now.Add(time.Duration(ms) * time.Millisecond) }
	for _, tt := range []struct {
		before, after, other int
		want                 time.Duration
	}{
		{0, 100, 0, 0}, {0, 100, 100, 0}, {0, 100, -900, 0},
		{0, 100, 300, 200 * time.Millisecond}, {0, 100, -1300, -300 * time.Millisecond},
	} {
		if got := skewOf(at(tt.before), at(tt.after), at(tt.other), time.Second).sure(); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}
