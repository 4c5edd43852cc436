package main

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

func TestBrokerList(t *testing.T) {
	w := newWorld(t, 2, 3)
	w.topic("t", 3, 3)
	_, standby := w.roles()
	eventually(t, "every broker obeys", func() bool {
		for _, b := range decode[brokersView](t, cli("broker", "list", "-o", "json", "--server", standby.Endpoint)).Brokers {
			if b.ResumePoint == nil || *b.ResumePoint < b.BrokerEpoch || b.Problem != "" {
				return false
			}
		}
		return true
	})
	r := cli("broker", "list", "--server", standby.Endpoint).want(t, exitOK) // which asks the active
	row := `(\d) running \d+ \d+s \d+ rack-\1 1 3 0 0 127.0.0.1:\d+ node-\1 -`
	for i, line := range r.lines()[1:] {
		wantLines(t, []string{line}, strings.NewReplacer(`(\d)`, str(int32(i)), `\1`, str(int32(i))).Replace(row))
	}
	v := decode[brokersView](t, w.cli("broker", "list", "-o", "json"))
	b := v.Brokers[2]
	if !v.FromActive || b.Unreachable || *b.SessionAgeMS < 0 || *b.ResumePoint < b.BrokerEpoch || b.Registered == "" {
		t.Errorf("%+v", b)
	}
	if len(v.Brokers) != 3 || b.ID != 2 || !b.Live || b.BrokerEpoch != int64(w.brokers[2].Epoch()) ||
		b.ControlAddress != w.brokers[2].ControlAddress() || b.Endpoints[0] != (endpointView{"client", "127.0.0.1:9002"}) {
		t.Errorf("%+v", v)
	}
}

// TestBrokerListNamesProblems: also of a broker of which one partition always
// fails, and in words.
func TestBrokerListNamesProblems(t *testing.T) {
	w := newWorld(t, 2, 2)
	w.broken[1].Store(true)
	w.topic("t", 1, 2)
	_, standby := w.roles()
	problem := func(id int) string {
		return decode[brokersView](t, cli("broker", "list", "-o", "json", "--server", standby.Endpoint)).Brokers[id].Problem
	}
	eventually(t, "the partition that fails is named", func() bool { return problem(1) == "t/0: the handler is broken" })
	w.broken[1].Store(false)
	eventually(t, "nothing is wrong any more", func() bool { return problem(1) == "" })
	w.brokers[0].Kill()
	eventually(t, "the broker is not reached", func() bool {
		return problem(0) == "dial broker 0 at "+w.brokers[0].ControlAddress()+": connection refused"
	})
}

// TestOfflineReplicas: whichever daemon is asked, replicas whose storage has
// failed are shown.
func TestOfflineReplicas(t *testing.T) {
	w := newWorld(t, 2, 2)
	w.topic("t", 2, 2, "--block-size", "1")
	var p cluster.PartitionID
	w.await(w.daemons[0], "topic", func(v rpc.View) bool { p.Topic = v.Image.Topics["t"].ID; return true })
	eventually(t, "the broker has its replica", func() bool { _, ok := w.brokers[1].Partition(p); return ok })
	w.failed[1].Store(true)
	w.brokers[1].SetOffline(p)
	active, standby := w.roles()
	for _, d := range []string{active.Endpoint, standby.Endpoint} {
		var v topicDetailView
		eventually(t, "the replica is marked and does not lead", func() bool {
			v = decode[topicDetailView](t, cli("topic", "describe", "t", "-o", "json", "--server", d))
			return slices.Equal(v.Partitions[0].OfflineReplicas, []int32{1}) && len(v.Partitions[0].ISR) == 1
		})
		if len(v.Partitions[1].OfflineReplicas) != 0 || !slices.Equal(v.Partitions[0].ISR, []int32{0}) {
			t.Errorf("%+v", v.Partitions)
		}
		if rows := strings.Join(cli("topic", "describe", "t", "--server", d).want(t, exitOK).lines(), "\n"); strings.Count(rows, "1!") != 1 {
			t.Errorf("table: %s", rows)
		}
		brokers := decode[brokersView](t, cli("broker", "list", "-o", "json", "--server", d)).Brokers
		if n := brokers[1].OfflineReplicas; n == nil || *n != 1 || *brokers[0].OfflineReplicas != 0 {
			t.Errorf("brokers %+v", brokers)
		}
	}
}

func TestControllerStatus(t *testing.T) {
	w := newWorld(t, 2, 3)
	w.topic("t", 4, 3)
	active, standby := w.roles()
	for role, d := range map[string]string{"active": active.Endpoint, "standby": standby.Endpoint} {
		r := cli("controller", "status", "--server", d).want(t, exitOK)
		wantLines(t, r.lines()[:7], "Controller: "+active.ID+" at "+active.Endpoint, "Epoch: 1", "Cluster: [0-9a-f-]{36}", "Brokers: 3",
			"Topics: 1", "Partitions: 4: 0 offline, 0 under-replicated, 0 unknown",
			`Answered by: [ab] \(`+role+`\), version v1.2.3, revision \d+`)
		if role == "standby" { // an active may say what brokers refuse while they are starting
			wantLines(t, r.lines()[7:], "Problems: none seen from here; the active sees more: --server "+active.Endpoint)
		}
	}
	v := decode[statusView](t, cli("controller", "status", "-o", "json", "--server", standby.Endpoint))
	if v.ID != standby.ID || v.Role != "standby" || v.ControllerID != active.ID || v.ControllerEndpoint != active.Endpoint ||
		v.Epoch != 1 || v.SessionState != "standby" || v.Partitions != 4 || v.Problems == nil || len(v.Problems) != 0 {
		t.Errorf("%+v", v)
	}
}

func TestControllerList(t *testing.T) {
	w := newWorld(t, 2, 0)
	active, standby := w.roles()
	rows := map[string]string{
		active.ID:  active.ID + " active " + active.Endpoint + " v1.2.3 " + timePattern,
		standby.ID: standby.ID + " standby " + standby.Endpoint + " v1.2.3 " + timePattern,
	}
	wantLines(t, w.cli("controller", "list").want(t, exitOK).lines(), "ID ROLE ENDPOINT VERSION STARTED", rows["a"], rows["b"])

	// The active is shown also while its candidate key, deleted by hand, is not
	// back yet.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var key string
	w.await(active, "its candidate key", func(v rpc.View) bool {
		for lease, c := range v.Image.Candidates {
			if c.Record.GetId() == active.ID {
				key = v.Image.Keys.Candidate(lease)
			}
		}
		return true
	})
	if _, err := w.etcd.Client(t).Delete(ctx, key); err != nil {
		t.Fatal(err)
	}
	v := decode[controllersView](t, cli("controller", "list", "-o", "json", "--server", standby.Endpoint))
	if len(v.Controllers) != 2 || v.Controllers[0].Active == v.Controllers[1].Active {
		t.Errorf("%+v", v)
	}
}

func TestControllerHistory(t *testing.T) {
	w := newWorld(t, 2, 0)
	first, second := w.roles()

	r := w.cli("controller", "resign", "--reason", "patching the host", "-o", "json")
	if v := decode[resignedView](t, r); v.Epoch != 1 {
		t.Errorf("%+v", v)
	}
	for _, d := range w.daemons {
		w.await(d, second.ID+" follows", func(v rpc.View) bool { return v.Image.Epoch == 2 && v.Image.Controller != nil })
	}
	duration := `[0-9.smh]+`
	resigned := `1 ` + first.ID + ` ` + timePattern + ` ` + timePattern + ` ` + duration + ` resigned ` + second.ID + ` patching the host`
	head := "EPOCH CONTROLLER BEGAN ENDED DURATION CAUSE SUCCESSOR REASON"
	wantLines(t, w.cli("controller", "history").want(t, exitOK).lines(), head,
		`2 `+second.ID+` `+timePattern+` - `+duration+` current - -`, resigned)

	second.Kill()
	w.daemons = w.daemons[:0:0]
	w.daemons = append(w.daemons, first)
	lost := `2 ` + second.ID + ` ` + timePattern + ` - <` + duration + ` lost ` + first.ID + ` -`
	w.await(first, second.ID+" is lost", func(v rpc.View) bool { return v.Image.Controller == nil || v.Image.Epoch == 3 })
	w.await(first, first.ID+" follows", func(v rpc.View) bool { return v.Image.Epoch == 3 && v.Active })
	wantLines(t, w.cli("controller", "history", "--limit", "2").want(t, exitOK).lines(), head,
		`3 `+first.ID+` `+timePattern+` - `+duration+` current - -`, lost)

	v := decode[historyView](t, w.cli("controller", "history", "-o", "json"))
	if len(v.Terms) != 3 || v.Terms[0].Cause != "current" || v.Terms[0].DurationMS == nil || v.Terms[1].Cause != "lost" ||
		v.Terms[1].DurationMS != nil || *v.Terms[1].DurationAtMostMS < 0 || v.Terms[1].VacantMS != nil || v.Terms[1].FollowedBy != first.ID ||
		v.Terms[2].Cause != "resigned" || v.Terms[2].Reason != "patching the host" || *v.Terms[2].DurationMS < 0 || *v.Terms[2].VacantMS < 0 || v.Terms[2].Successor != "" {
		t.Errorf("%+v", v)
	}
	if got := w.cli("controller", "resign").want(t, exitOK).stdout; got != "the controller of epoch 3 has resigned\n" {
		t.Error(got)
	}
}

func TestControllerTransfer(t *testing.T) {
	w := newWorld(t, 3, 0)
	first, _ := w.roles()
	var last string
	for _, d := range w.daemons {
		w.await(d, "three candidates", func(v rpc.View) bool { return len(v.Image.Candidates) == 3 })
		if d != first {
			last = d.ID // neither the active nor, of the two others, a certain winner
		}
	}
	v := decode[transferredView](t, w.cli("controller", "transfer", last, "--reason", "patching", "-o", "json"))
	if v != (transferredView{Ended: 1, Epoch: 2, ControllerID: last}) {
		t.Errorf("%+v", v)
	}
	terms := decode[historyView](t, w.cli("controller", "history", "-o", "json")).Terms
	if end := terms[1]; end.Cause != "transferred" || end.Successor != last || end.Reason != "patching" || terms[0].Controller != last {
		t.Errorf("%+v", terms)
	}
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{last}, exitFailed, "ELECTION_NOT_NEEDED: " + last + " is the active controller"},
		{[]string{"nobody"}, exitFailed, `INVALID_REQUEST: daemon "nobody" does not stand by, these do: `},
		{[]string{""}, exitFailed, `INVALID_REQUEST: daemon "" does not stand by`},
		{nil, exitUsage, "want the id of one daemon, have 0 arguments"},
		{[]string{"a", "b"}, exitUsage, "want the id of one daemon, have 2 arguments"},
		{[]string{last, "--timeout", "-1s"}, exitUsage, "timeout -1s is not positive"},
	} {
		r := w.cli(append([]string{"controller", "transfer"}, tt.args...)...).want(t, tt.code)
		if !strings.Contains(r.stderr, tt.says) {
			t.Errorf("%v says %q, want %q", tt.args, r.stderr, tt.says)
		}
	}
	if v := decode[statusView](t, w.cli("controller", "status", "-o", "json")); v.Epoch != 2 {
		t.Errorf("refused transfers ended the term: epoch %d", v.Epoch)
	}
}

// TestTermOf: wall clocks of other hosts may say anything.
func TestTermOf(t *testing.T) {
	const now = 1_800_000_000_000 // 2027
	for _, tt := range []struct {
		name              string
		began, ended      int64
		running           bool
		began2, ended2    string
		duration          string
		durationIsUnknown bool
	}{
		{name: "ordinary", began: now - 90_500, ended: now, began2: "2027-01-15T07:58:29.500Z", ended2: "2027-01-15T08:00:00.000Z", duration: "1m30.5s"},
		{name: "running", began: now - 1000, running: true, began2: "2027-01-15T07:59:59.000Z", duration: "1s"},
		{name: "running, begun in the future", began: 4_102_444_800_000, running: true, began2: "2100-01-01T00:00:00.000Z", duration: "0s"},
		{name: "ended before it began", began: now, ended: 1, began2: "2027-01-15T08:00:00.000Z", ended2: "1970-01-01T00:00:00.001Z", duration: "0s"},
		{name: "end unknown", began: now, began2: "2027-01-15T08:00:00.000Z", durationIsUnknown: true},
		{name: "begin unknown", ended: now, ended2: "2027-01-15T08:00:00.000Z", durationIsUnknown: true},
		{name: "longest", began: math.MinInt64, ended: math.MaxInt64},
		{name: "long", began: -1, ended: math.MaxInt64, began2: "1969-12-31T23:59:59.999Z"},
		{name: "longer than a duration", began: 1, ended: math.MaxInt64, began2: "1970-01-01T00:00:00.001Z"},
	} {
		r := &pb.TermRecord{BeganMs: tt.began, EndedMs: tt.ended}
		if tt.ended != 0 {
			r.EndCause = pb.EndCause_END_CAUSE_SELF_FENCED
		}
		got := termOf(r, tt.running, now)
		if got.Began != tt.began2 || got.Ended != tt.ended2 || (got.DurationMS == nil) != tt.durationIsUnknown || duration(got.DurationMS) != tt.duration {
			t.Errorf("%s: %+v, duration %q", tt.name, got, duration(got.DurationMS))
		}
		if got.DurationMS != nil && *got.DurationMS < 0 {
			t.Errorf("%s: duration %d", tt.name, *got.DurationMS)
		}
	}
}

// TestTermFollow: what is known of a term by the one after it.
func TestTermFollow(t *testing.T) {
	for _, tt := range []struct {
		began, ended, next int64
		vacant, atMost     string
		successor, shown   string
	}{
		{began: 1000, ended: 2000, next: 2500, vacant: "500ms", atMost: "1.5s", shown: "b"},
		{began: 1000, next: 2500, atMost: "1.5s", successor: "b", shown: "b"},
		{began: 3000, ended: 4000, next: 2500, vacant: "0s", atMost: "0s", successor: "c", shown: "b, not c"},
		{ended: 4000, next: 5000, vacant: "1s", shown: "b"},
		{began: 1000, ended: 2000, shown: "b"},
	} {
		r := &pb.TermRecord{BeganMs: tt.began, EndedMs: tt.ended, Successor: tt.successor}
		v := termOf(r, false, 0)
		v.follow(r, &pb.TermRecord{Controller: "b", BeganMs: tt.next})
		if duration(v.VacantMS) != tt.vacant || duration(v.DurationAtMostMS) != tt.atMost || successorOf(v) != tt.shown {
			t.Errorf("%+v: %+v, successor %s", tt, v, successorOf(v))
		}
	}
	if got := successorOf(termView{Successor: "c"}); got != "c" {
		t.Errorf("who is waited for is %q", got)
	}
}

// TestHistoryOfStrangers: a history that others wrote is shown, and breaks
// neither lines nor the terminal.
func TestHistoryOfStrangers(t *testing.T) {
	w := newWorld(t, 1, 0)
	w.cli("controller", "resign").want(t, exitOK)
	w.await(w.daemons[0], "the next term", func(v rpc.View) bool { return v.Active && v.Image.Epoch == 2 })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	key := cluster.KeysOf("test").Term(1)
	value := cluster.Encode(&pb.TermRecord{
		Epoch: 1, Controller: "x\ty", BeganMs: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli(), EndedMs: math.MaxInt64,
		EndCause: 99, EndReason: "a\nb \x1b[31mred", Successor: "z",
	})
	if _, err := w.etcd.Client(t).Put(ctx, key, string(value)); err != nil {
		t.Fatal(err)
	}
	w.await(w.daemons[0], "the term", func(v rpc.View) bool { return v.Image.Terms[1].Record.GetSuccessor() == "z" })
	r := w.cli("controller", "history", "--no-headers").want(t, exitOK)
	wantLines(t, r.lines()[1:], `1 x\\ty 2100-01-01T00:00:00.000Z - - 99 a, not z a\\nb \\x1b\[31mred`)
}
