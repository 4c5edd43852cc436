package dev

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/sim"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// script feeds an account with a made-up history of a topic with a block of
// partitions, and reads what it tells.
type script struct {
	t     *testing.T
	out   strings.Builder
	a     *account
	keys  cluster.Keys
	rev   store.Rev
	now   time.Time
	epoch cluster.Epoch
	block *cluster.Block
}

var topicID = cluster.TopicID{1}

func newScript(t *testing.T) *script {
	s := &script{t: t, now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), keys: cluster.KeysOf("t")}
	s.a = newAccount(Config{Cluster: "t", Out: &s.out, Brokers: 3, LeaseTTL: 2 * time.Second}, s.now)
	// The script does not tell what brokers hear of partitions.
	s.a.check = sim.NewChecker(s.keys, sim.Bounds{Converge: time.Hour, Elect: time.Hour})
	s.a.watched(s.now, store.Batch{Rev: 1, Reset: true})
	s.rev = 1
	return s
}

// wait lets time pass in ticks.
func (s *script) wait(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(min(tickInterval, end.Sub(s.now)))
		s.a.tick(s.now)
	}
}

// batch is one revision.
func (s *script) batch(changes ...store.Change) {
	s.rev++
	for i := range changes {
		changes[i].KV.ModRev, changes[i].KV.CreateRev = s.rev, s.rev
	}
	s.a.watched(s.now, store.Batch{Rev: s.rev, Changes: changes})
}

func put(key string, value []byte) store.Change {
	return store.Change{KV: store.KV{Key: key, Value: value}}
}

func del(key string) store.Change { return store.Change{KV: store.KV{Key: key}, Deleted: true} }

func (s *script) wins(id string) {
	s.epoch++
	nonce := fmt.Sprint(id, s.epoch)
	s.batch(
		put(s.keys.Controller(), cluster.Encode(&pb.ControllerRecord{Id: id, Nonce: nonce})),
		put(s.keys.ControllerEpoch(), cluster.Encode(&pb.EpochRecord{Epoch: int64(s.epoch)})),
		put(s.keys.Term(s.epoch), cluster.Encode(&pb.TermRecord{Epoch: int64(s.epoch), Controller: id, Nonce: nonce})),
	)
}

// gone empties the seat; cause says what its holder wrote, if it could.
func (s *script) gone(cause pb.EndCause) {
	changes := []store.Change{del(s.keys.Controller())}
	if cause != pb.EndCause_END_CAUSE_UNSPECIFIED {
		r := &pb.TermRecord{Epoch: int64(s.epoch), EndCause: cause, EndedMs: s.now.UnixMilli()}
		cur := s.a.current()
		r.Controller, r.Nonce = cur.controller, cur.nonce
		changes = append(changes, put(s.keys.Term(s.epoch), cluster.Encode(r)))
	}
	s.batch(changes...)
}

func (s *script) brokerUp(id cluster.BrokerID) {
	s.a.brokerStarted(s.now, id, false)
	s.batch(put(s.keys.Broker(id), cluster.Encode(&pb.BrokerRecord{NodeUuid: "n", Nonce: fmt.Sprint(s.rev)})))
}

// obeys lets broker 1 obey the current term.
func (s *script) obeys() {
	s.a.heard(1, broker.Observation{
		Time: s.now, Command: broker.UpdateMetadata, Sender: s.a.current().controller, ControllerEpoch: s.epoch,
		BrokerEpoch: 1, Partition: broker.WholeCommand, Result: "ADMITTED",
	})
}

// write changes partitions of the topic in one transaction.
func (s *script) write(changes map[int32]*cluster.Partition) {
	for _, p := range changes {
		p.Replicas, p.ControllerEpoch = []cluster.BrokerID{1, 2, 3}, s.epoch
		p.LeaderEpoch, p.PartitionEpoch = cluster.LeaderEpoch(s.rev), cluster.PartitionEpoch(s.rev)
	}
	s.block = s.block.With(changes, nil)
	s.batch(put(s.keys.Block(cluster.BlockID{Topic: topicID}), s.block.Encode()))
}

func (s *script) tells(want string) {
	s.t.Helper()
	if got := s.out.String(); got != want {
		s.t.Errorf("told:\n%s\nwant:\n%s", got, want)
	}
	s.out.Reset()
}

const (
	created = pb.ChangeCause_CHANGE_CAUSE_CREATED
	isDown  = pb.ChangeCause_CHANGE_CAUSE_BROKER_DOWN
	isUp    = pb.ChangeCause_CHANGE_CAUSE_BROKER_UP
	altered = pb.ChangeCause_CHANGE_CAUSE_ISR_ALTERED
)

func state(cause pb.ChangeCause, leader cluster.BrokerID, isr ...cluster.BrokerID) *cluster.Partition {
	return &cluster.Partition{Leader: leader, ISR: isr, Cause: cause}
}

// up is a cluster with one controller, three brokers and n partitions.
func up(t *testing.T, n int32) *script {
	s := newScript(t)
	s.a.daemonStarted(s.now, "c1", "127.0.0.1:1", false)
	s.wins("c1")
	for id := range cluster.BrokerID(3) {
		s.brokerUp(id + 1)
	}
	s.wait(time.Second)
	records := map[int32]*cluster.Partition{}
	for i := range n {
		records[i] = state(created, 2, 2, 3, 1)
	}
	s.write(records)
	s.batch(put(s.keys.Topic("orders"), cluster.Encode(&pb.TopicRecord{
		TopicId: topicID[:], PartitionsWanted: n, PartitionsMade: n, ReplicationFactor: 3, BlockSize: 16,
	})))
	s.obeys()
	s.wait(time.Second)
	s.a.begin(s.now, "ready")
	return s
}

func TestTellsFewChangesOneByOne(t *testing.T) {
	s := up(t, 2)
	s.tells(`12:00:00 controller c1 active, epoch 1
12:00:00 brokers 1 to 3 up
12:00:01 orders-0: leader 2, isr [2 3 1], created
12:00:01 orders-1: leader 2, isr [2 3 1], created
12:00:02 ready
12:00:02 = epoch 1, c1 active, 3 of 3 brokers live, 2 of 2 partitions online
`)
	s.a.brokerKilled(s.now, 2)
	s.wait(4 * time.Second)
	s.batch(del(s.keys.Broker(2)))
	s.write(map[int32]*cluster.Partition{0: state(isDown, 3, 3, 1), 1: state(isDown, cluster.NoLeader, 2)})
	s.wait(time.Second)
	s.tells(`12:00:02 broker 2 killed
12:00:06 broker 2 down
12:00:06 orders-0: leader 2 -> 3, isr [3 1], broker 2 down
12:00:06 orders-1: leader 2 -> none, isr [2], broker 2 down
12:00:06 = epoch 1, c1 active, 2 of 3 brokers live, 1 of 2 partitions online, 1 under-replicated
`)
	s.brokerUp(2)
	s.write(map[int32]*cluster.Partition{1: state(isUp, 2, 2)})
	s.wait(time.Second)
	s.write(map[int32]*cluster.Partition{0: state(altered, 3, 3, 1, 2)})
	s.batch(put(s.keys.Topic("orders"), cluster.Encode(&pb.TopicRecord{
		TopicId: topicID[:], PartitionsWanted: 2, PartitionsMade: 2, ReplicationFactor: 3, BlockSize: 16, Deleting: true,
	})))
	s.batch(del(s.keys.Topic("orders")))
	s.wait(time.Second)
	s.tells(`12:00:07 broker 2 up
12:00:07 orders-1: leader none -> 2, isr [2], broker 2 up
12:00:07 = epoch 1, c1 active, 3 of 3 brokers live, 2 of 2 partitions online, 2 under-replicated
12:00:08 orders-0: leader 3 stays, leader epoch 11, isr [3 1 2], broker 2 caught up
12:00:08 orders-0: deleted
12:00:08 orders-1: deleted
12:00:08 = epoch 1, c1 active, 3 of 3 brokers live, 0 of 0 partitions online
`)
}

func TestSumsUpManyChanges(t *testing.T) {
	s := up(t, 12)
	s.out.Reset()
	changes := map[int32]*cluster.Partition{}
	for i := range int32(12) {
		changes[i] = state(isDown, 3, 3, 1)
	}
	changes[11] = state(isDown, cluster.NoLeader, 3, 1)
	s.a.brokerKilled(s.now, 2)
	s.batch(del(s.keys.Broker(2)))
	s.write(changes)
	s.wait(time.Second)
	s.tells(`12:00:02 broker 2 killed
12:00:02 broker 2 down
12:00:02 12 partitions: 11 leaders moved, 1 lost their leader, 12 isrs shrunk, broker 2 down
12:00:02 = epoch 1, c1 active, 2 of 3 brokers live, 11 of 12 partitions online, 11 under-replicated
`)
	if stuck := s.a.stuck(); len(stuck) != 1 || stuck[0] != "orders-11" {
		t.Errorf("stuck are %v, want the one without a leader", stuck)
	}
}

// TestTerms: why terms end, and how long it takes until a broker obeys the
// next one.
func TestTerms(t *testing.T) {
	s := up(t, 1)
	s.out.Reset()
	s.a.daemonStarted(s.now, "c2", "127.0.0.1:2", false)
	s.a.daemonKilled(s.now, "c1")
	s.wait(2 * time.Second)
	s.gone(pb.EndCause_END_CAUSE_UNSPECIFIED)
	s.wait(100 * time.Millisecond)
	s.wins("c2")
	s.wait(100 * time.Millisecond)
	s.obeys()
	s.wait(time.Second)

	s.gone(pb.EndCause_END_CAUSE_RESIGNED)
	s.wins("c2")
	s.wait(30 * time.Millisecond)
	s.obeys()
	s.wait(time.Second)

	s.a.daemonStarted(s.now, "c1", "127.0.0.1:1", true)
	s.a.daemonKilled(s.now, "c1")
	s.gone(pb.EndCause_END_CAUSE_UNSPECIFIED)
	s.wins("c3") // no broker hears of it
	s.wait(3 * time.Second)
	s.tells(`12:00:02 controller c1 killed, it was active in epoch 1
12:00:04 = epoch 1, nobody active, 3 of 3 brokers live, 1 of 1 partitions online
12:00:04 controller c2 active, epoch 2 (c1 killed), took over in 2.2 s
12:00:04 = epoch 2, c2 active, 3 of 3 brokers live, 1 of 1 partitions online
12:00:05 controller c2 active, epoch 3 (c2 resigned), took over in 30 ms
12:00:05 = epoch 3, c2 active, 3 of 3 brokers live, 1 of 1 partitions online
12:00:06 controller c1 started again at 127.0.0.1:1
12:00:06 controller c1 killed, it was not active
12:00:06 controller c3 active, epoch 4 (c2 lost the seat)
12:00:08 = epoch 4, c3 active, 3 of 3 brokers live, 1 of 1 partitions online
`)
	r := s.a.report()
	got, err := json.Marshal(r.Terms)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"epoch":1,"controller":"c1","cause":"killed","takeover_ms":null},` +
		`{"epoch":2,"controller":"c2","cause":"resigned","takeover_ms":2200},` +
		`{"epoch":3,"controller":"c2","cause":"lost","takeover_ms":30},` +
		`{"epoch":4,"controller":"c3","cause":"current","takeover_ms":null}]`
	if string(got) != want {
		t.Errorf("terms:\n%s\nwant:\n%s", got, want)
	}
	if len(r.Violations) != 0 {
		t.Error(r.Violations)
	}
}

// TestTellsViolation: a broken invariant is told at once and fails the run.
func TestTellsViolation(t *testing.T) {
	s := up(t, 1)
	s.a.daemonKilled(s.now, "c1")
	s.gone(pb.EndCause_END_CAUSE_UNSPECIFIED)
	s.wins("c2")
	s.obeys()
	s.out.Reset()
	s.a.heard(1, broker.Observation{
		Time: s.now, Command: broker.LeaderAndIsr, Sender: "c1", ControllerEpoch: 1, BrokerEpoch: 1, Topic: "orders", Result: "ADMITTED",
	})
	if !strings.Contains(s.out.String(), "INVARIANT BROKEN: I3") {
		t.Errorf("told: %s", s.out.String())
	}
	if err := s.a.report().Err(); err == nil || !strings.Contains(err.Error(), "1 invariant broken") {
		t.Errorf("the report says %v", err)
	}
}

// TestReportShape: scripts read exactly these fields, also in a report of
// nothing.
func TestReportShape(t *testing.T) {
	got, err := json.Marshal(newScript(t).a.report())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"epoch":0,"terms":[],"brokers":{"live":0},"partitions":{"total":0,"online":0,"offline":0},` +
		`"commands":{"sent":0,"applied":0,"already":0,"refused_stale":0},"invariant_violations":[]}`
	if string(got) != want {
		t.Errorf("report:\n%s\nwant:\n%s", got, want)
	}
}

// TestNeverLooked: what nobody has looked at is not said to hold.
func TestNeverLooked(t *testing.T) {
	s := up(t, 1)
	s.a.check = sim.NewChecker(s.keys, sim.Bounds{Converge: 2 * time.Second, Elect: 2 * time.Second})
	var out strings.Builder
	if err := s.a.report().Print(&out); err != nil || !strings.Contains(out.String(), "no violation, but never looked at I5 and I6") {
		t.Errorf("the summary says, %v:\n%s", err, out.String())
	}
	s.wins("c1")
	for id := range cluster.BrokerID(3) {
		s.batch(put(s.keys.Broker(id+1), cluster.Encode(&pb.BrokerRecord{NodeUuid: "n", Nonce: fmt.Sprint(s.rev)})))
	}
	since := s.a.check.Looks()
	for range 10 { // a broker that comes and goes
		s.brokerUp(2)
		s.wait(time.Second)
	}
	if got := s.a.lastReport(since).Violations; len(got) != 1 || got[0] != "I5 was never looked at in the end" {
		t.Errorf("violations %q", got)
	}
	if s.a.atRest(since) {
		t.Error("it is at rest")
	}
	s.wait(3 * time.Second) // nothing is known of what the brokers have heard
	if got := s.a.lastReport(since).Violations; len(got) == 0 || !strings.HasPrefix(got[0], "I5: broker does not agree") {
		t.Errorf("violations %q", got)
	}
}

func TestReportErr(t *testing.T) {
	for want, r := range map[string]Report{
		"":                                       {},
		"2 invariants broken, the first: I4":     {Violations: []string{"I4", "I5"}},
		"1 partition could be online and is not": {stuck: []string{"a-0"}},
		"2 partitions could be online and are not": {stuck: []string{"a-0", "a-1"}},
	} {
		if err := r.Err(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v says %v, want %q", r, err, want)
		}
	}
}

func TestBrokerList(t *testing.T) {
	for want, ids := range map[string][]cluster.BrokerID{
		"":              nil,
		"7":             {7},
		"1, 2":          {2, 1},
		"1 to 3":        {1, 2, 3, 3},
		"0, 2 to 4, 9":  {9, 4, 3, 2, 0},
		"1, 2, 5 to 10": {1, 2, 5, 6, 7, 8, 9, 10},
	} {
		if got := brokerList(ids); got != want {
			t.Errorf("%v: %q, want %q", ids, got, want)
		}
	}
}
