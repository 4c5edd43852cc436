package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// topicWith is what a watch tells of a topic's partitions, whose index is their
// place.
func topicWith(name string, parts ...*pb.PartitionMetadata) *pb.TopicMetadata {
	id := make([]byte, 16)
	copy(id, name)
	for i, p := range parts {
		p.Partition = int32(i)
	}
	return &pb.TopicMetadata{TopicId: id, Topic: name, Partitions: parts}
}

func part(leader, le, pe int32, cause pb.ChangeCause, isr ...int32) *pb.PartitionMetadata {
	return &pb.PartitionMetadata{Leader: leader, LeaderEpoch: le, PartitionEpoch: pe, Isr: isr, Replicas: []int32{1, 2}, Cause: cause}
}

func up(id int32, epoch int64, change ...func(*pb.BrokerStatus)) *pb.BrokerStatus {
	b := &pb.BrokerStatus{Id: id, Live: true, BrokerEpoch: epoch, State: pb.BrokerState_BROKER_STATE_RUNNING}
	for _, fn := range change {
		fn(b)
	}
	return b
}

func brokers(all ...*pb.BrokerStatus) *pb.WatchMetadataResponse {
	return &pb.WatchMetadataResponse{LiveBrokers: &pb.LiveBrokers{}, Brokers: all}
}

func terms(holder string, epoch int64, all ...*pb.TermRecord) *pb.WatchMetadataResponse {
	return &pb.WatchMetadataResponse{Seat: &pb.Seat{ControllerId: holder, Epoch: epoch, Terms: all}}
}

func topics(all ...*pb.TopicMetadata) *pb.WatchMetadataResponse {
	return &pb.WatchMetadataResponse{Topics: all}
}

func snapshot(r *pb.WatchMetadataResponse) *pb.WatchMetadataResponse {
	r.Snapshot = true
	return r
}

func at(revision int64) *pb.WatchMetadataResponse {
	return &pb.WatchMetadataResponse{Revision: revision}
}

func TestTracker(t *testing.T) {
	const (
		created   = pb.ChangeCause_CHANGE_CAUSE_CREATED
		down      = pb.ChangeCause_CHANGE_CAUSE_BROKER_DOWN
		altered   = pb.ChangeCause_CHANGE_CAUSE_ISR_ALTERED
		moved     = pb.ChangeCause_CHANGE_CAUSE_REASSIGNMENT
		unclean   = pb.ChangeCause_CHANGE_CAUSE_UNCLEAN_ELECTION
		resigned  = pb.EndCause_END_CAUSE_RESIGNED
		provenRIP = pb.EndCause_END_CAUSE_PROVEN_DEAD
	)
	draining := func(b *pb.BrokerStatus) { b.State = pb.BrokerState_BROKER_STATE_DRAINING }
	unreachable := func(b *pb.BrokerStatus) { b.Unreachable = true }
	type step struct {
		resp *pb.WatchMetadataResponse
		want string // events, one a line
	}
	begin := []step{
		{snapshot(terms("a", 2, &pb.TermRecord{Epoch: 1, Controller: "b", EndCause: resigned, EndReason: "why", Successor: "a"}, &pb.TermRecord{Epoch: 2, Controller: "a"})),
			"term 1 began b\nterm 1 ended b, cause resigned, successor a, reason why\nterm 2 began a"},
		{brokers(up(1, 10), &pb.BrokerStatus{Id: 2}, up(3, 12, draining)), "broker 1 known running\nbroker 2 known down\nbroker 3 known draining"},
		{topics(topicWith("t", part(1, 0, 0, created, 1, 2), part(-1, 3, 7, down, 1))),
			"partition t/0 known leader 1, ISR 1,2, created\npartition t/1 known leader none, ISR 1, broker_down"},
		{at(20), "revision 20 revision "},
	}
	for _, tt := range []struct {
		name  string
		since int64
		steps []step
	}{
		{name: "terms", steps: append(begin[:len(begin):len(begin)],
			step{terms("", 2, &pb.TermRecord{Epoch: 1, Controller: "b", EndCause: resigned}, &pb.TermRecord{Epoch: 2, Controller: "a", EndCause: provenRIP}), "term 2 ended a, cause proven_dead"},
			step{terms("c", 3, &pb.TermRecord{Epoch: 2, Controller: "a", EndCause: provenRIP}, &pb.TermRecord{Epoch: 3, Controller: "c"}), "term 3 began c"},
			step{terms("", 3), "term 3 ended c, cause lost"},
			step{terms("d", 4, &pb.TermRecord{Epoch: 3, Controller: "c"}, &pb.TermRecord{Epoch: 4, Controller: "d"}), "term 4 began d"},
			step{terms("e", 9, &pb.TermRecord{Epoch: 8, Controller: "x"}, &pb.TermRecord{Epoch: 9, Controller: "e"}),
				"term 4 ended d, cause lost\ngap 20 gap terms 5 to 7 were not told\nterm 8 began x\nterm 8 ended x, cause lost\nterm 9 began e"},
		)},
		{name: "brokers", steps: append(begin[:len(begin):len(begin)],
			step{brokers(up(1, 10, draining), up(2, 21), up(3, 12)), "broker 1 draining draining\nbroker 2 up running\nbroker 3 running running"},
			step{brokers(up(1, 10, draining, unreachable), &pb.BrokerStatus{Id: 2}, up(3, 30)),
				"broker 1 unreachable draining, unreachable\nbroker 2 down down\nbroker 3 restarted running"},
			step{brokers(up(1, 10, draining), up(4, 31, draining)),
				"broker 1 reachable draining\nbroker 4 up draining\nbroker 4 draining draining\nbroker 3 down down"},
		)},
		{name: "partitions", steps: append(begin[:len(begin):len(begin)],
			step{topics(topicWith("t", part(-1, 1, 1, down, 1), part(1, 4, 8, unclean, 1))),
				"partition t/0 offline leader 1 -> none, ISR 1,2 -> 1, broker_down\npartition t/1 leader leader none -> 1, ISR 1, unclean_election"},
			step{topics(topicWith("t", part(2, 3, 4, down, 2), part(1, 4, 9, altered, 1, 2))),
				"partition t/0 leader leader none -> 2, ISR 1 -> 2, broker_down +2\npartition t/1 isr leader 1, ISR 1 -> 1,2, isr_altered"},
			step{topics(topicWith("t", part(2, 3, 4, down, 2), part(1, 4, 10, altered, 2, 1))), "partition t/1 changed leader 1, ISR 1,2 -> 2,1, isr_altered"},
			step{topics(&pb.TopicMetadata{TopicId: topicWith("t").TopicId, Topic: "t", Unknown: []int32{1}}), "partition t/1 unknown its record is missing or unreadable"},
			step{topics(topicWith("u", part(1, 0, 0, created, 1))), "partition u/0 created leader 1, ISR 1, created"},
			step{&pb.WatchMetadataResponse{Gone: [][]byte{topicWith("t").TopicId, topicWith("z").TopicId}, Revision: 40}, "topic t gone \nrevision 40 revision "},
		)},
		{name: "told anew", steps: append(begin[:len(begin):len(begin)],
			step{topics(topicWith("u", part(1, 0, 0, created, 1))), "partition u/0 created leader 1, ISR 1, created"},
			step{snapshot(brokers(&pb.BrokerStatus{Id: 1}, up(3, 12, draining))), "gap 20 gap the daemon does not know what happened since\nbroker 1 down down"},
			step{topics(topicWith("t", part(1, 0, 0, created, 1, 2), part(2, 9, 17, moved, 2)), topicWith("v", part(1, 0, 0, created, 1))),
				"partition t/1 leader leader none -> 2, ISR 1 -> 2, reassignment +9\npartition v/0 created leader 1, ISR 1, created"},
			step{at(90), "topic u gone \nrevision 90 revision "},
		)},
		{name: "since", since: 20, steps: []step{
			{terms("c", 3, &pb.TermRecord{Epoch: 2, Controller: "a"}, &pb.TermRecord{Epoch: 3, Controller: "c"}), "term 2 began a\nterm 2 ended a, cause lost\nterm 3 began c"},
			{brokers(up(1, 10), up(2, 21), &pb.BrokerStatus{Id: 3}), "broker 1 known running\nbroker 2 up running\nbroker 3 known down"},
			{topics(topicWith("t", part(1, 3, 4, down, 1), part(1, 0, 0, created, 1))),
				"partition t/0 changed leader 1, ISR 1, broker_down\npartition t/1 created leader 1, ISR 1, created"},
			{at(30), "revision 30 revision "},
		}},
		{name: "since long ago", since: 5, steps: []step{
			{snapshot(brokers(up(1, 10))), "gap 5 gap the daemon does not know what happened since\nbroker 1 known running"},
			{topics(topicWith("t", part(1, 3, 4, down, 1))), "partition t/0 known leader 1, ISR 1, broker_down"},
		}},
		{name: "interrupted", steps: []step{
			{snapshot(brokers(up(1, 10))), "broker 1 known running"},
			{topics(topicWith("t", part(1, 3, 4, down, 1))), "partition t/0 known leader 1, ISR 1, broker_down"},
			{snapshot(brokers(up(1, 10))), ""},
			{topics(topicWith("t", part(1, 3, 4, down, 1), part(1, 0, 0, created, 1))), "partition t/1 known leader 1, ISR 1, created"},
			{at(30), "revision 30 revision "},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			x := newTracker(func(e event) error {
				h, subject, details := e.words()
				line := fmt.Sprintf("%s %s %s %s", h.Type, subject, h.Event, details)
				if p, ok := e.(partitionEvent); ok && p.Skipped > 0 {
					line += fmt.Sprint(" +", p.Skipped)
				}
				got = append(got, line)
				return nil
			})
			x.since = tt.since
			for i, s := range tt.steps {
				got = nil
				if err := x.take(s.resp, 1); err != nil {
					t.Fatal(err)
				}
				if all := strings.Join(got, "\n"); all != s.want {
					t.Fatalf("step %d:\n%s\nwant:\n%s", i, all, s.want)
				}
			}
		})
	}
	full := errors.New("disk full")
	calls := 0
	x := newTracker(func(event) error { calls++; return full })
	if err := x.take(begin[0].resp, 1); !errors.Is(err, full) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// TestEvents: a follower is told of everything once, from daemon to daemon.
func TestEvents(t *testing.T) {
	w := newWorld(t, 3, 2)
	w.topic("orders", 2, 2)
	active, standby := w.roles()
	servers := []string{active.Endpoint, standby.Endpoint}
	follow := func(args ...string) *watching {
		return watch(t, append(args, "--follow", "--server", strings.Join(servers, ","))...)
	}
	lines, text := follow("events", "-o", "json"), follow("events")
	type anyEvent struct {
		eventHead
		Epoch      int64
		Controller string
		Cause      string
		Broker     int32
		Topic      string
		Leader     int32
		Revision   int64
	}
	var all []anyEvent
	sees := func(what string, fits func(anyEvent) bool) anyEvent {
		t.Helper()
		for _, line := range lines.sees(what, func(line string) bool {
			var e anyEvent
			return json.Unmarshal([]byte(line), &e) == nil && fits(e)
		}) {
			var e anyEvent
			if err := json.Unmarshal([]byte(line), &e); err != nil || e.Time == "" || e.Type == "" || e.Event == "" {
				t.Fatalf("%s: %v", line, err)
			}
			all = append(all, e)
		}
		return all[len(all)-1]
	}
	said := func(kind, event string, fits func(anyEvent) bool) func(anyEvent) bool {
		return func(e anyEvent) bool { return e.Type == kind && e.Event == event && fits(e) }
	}
	first := sees("everything", said(typeRevision, "revision", func(anyEvent) bool { return true }))
	if len(all) != 6 || all[0].Controller != active.ID {
		t.Errorf("at first: %+v", all)
	}

	w.cli("controller", "transfer", standby.ID).want(t, exitOK)
	sees("the first term's end", said(typeTerm, "ended", func(e anyEvent) bool { return e.Epoch == 1 && e.Cause == "transferred" }))
	sees("the second term", said(typeTerm, "began", func(e anyEvent) bool { return e.Epoch == 2 && e.Controller == standby.ID }))
	active.Kill() // which the follower talks to
	for _, d := range w.daemons {
		if d != active {
			w.daemons = append(w.daemons[:0:0], d, standby)
		}
	}
	w.cli("topic", "create", "late", "--partitions", "1", "--replication-factor", "1").want(t, exitOK)
	sees("a new topic", said(typePartition, "created", func(e anyEvent) bool { return e.Topic == "late" }))
	w.cli("topic", "delete", "late", "--yes").want(t, exitOK)
	sees("its end", said(typeTopic, "gone", func(e anyEvent) bool { return e.Topic == "late" }))
	w.brokers[1].Kill()
	sees("a broker's end", said(typeBroker, "down", func(e anyEvent) bool { return e.Broker == 1 }))
	sees("what follows", said(typePartition, "leader", func(e anyEvent) bool { return e.Topic == "orders" && e.Leader == 0 && e.Cause == "broker_down" }))
	for _, e := range all {
		if e.Type == typeGap {
			t.Errorf("told of a gap: %+v", e)
		}
	}
	if code := lines.end(); code != exitOK || lines.stderr.String() != "" {
		t.Errorf("exit code %d, %s", code, lines.stderr.String())
	}

	begun := text.sees("its end", func(line string) bool { return strings.Contains(line, "broker 1 down down") })
	wantLines(t, begun[:1], timePattern+` term 1 began `+active.ID)
	text.end()

	// Without --follow it ends by itself, and goes on from a revision.
	once := w.cli("events", "-o", "json").want(t, exitOK).lines()
	if last := once[len(once)-1]; !strings.Contains(last, `"type":"revision"`) || len(once) < 6 {
		t.Errorf("%q", once)
	}
	since := w.cli("events", "--since", fmt.Sprint(first.Revision)).want(t, exitOK)
	for _, want := range []string{"ended " + active.ID + ", cause transferred", "began " + standby.ID, "down", "changed leader 0, ISR 0, broker_down"} {
		if !strings.Contains(strings.Join(since.lines(), "\n"), want) {
			t.Errorf("since %d: %q is missing in\n%s", first.Revision, want, since.stdout)
		}
	}
	if got := w.cli("events", "--since", "-1").want(t, exitFailed).stderr; !strings.Contains(got, "revision -1 is negative") {
		t.Error(got)
	}
	if docs := strings.Count(w.cli("events", "-o", "yaml").want(t, exitOK).stdout, "---\n"); docs != len(once) {
		t.Errorf("%d documents, want %d", docs, len(once))
	}
}

// TestEventsEndInTime: a daemon that waits for a revision which is far off does
// not hold up the command beyond its time.
func TestEventsEndInTime(t *testing.T) {
	w := newWorld(t, 2, 0)
	r := w.cli("events", "--since", "99999999", "--timeout", "4s").want(t, exitAway)
	if n := strings.Count(r.stderr, "no answer in time"); n < 2 {
		t.Errorf("%d daemons have not answered in time:\n%s", n, r.stderr)
	}
}
