package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/epoch"
	"github.com/controllerd/controllerd/internal/unfenced"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

func releases(a Action) bool {
	e, ok := a.(Elect)
	c, commit := e.Action.(election.Commit)
	return ok && commit && c.Purpose == election.Release
}

func revokes(a Action) bool {
	e, ok := a.(Elect)
	_, revoke := e.Action.(election.Revoke)
	return ok && revoke
}

func probes(a Action) bool {
	e, ok := a.(Elect)
	_, probe := e.Action.(election.Probe)
	return ok && probe
}

func hangups(a Action) bool {
	p, ok := a.(Push)
	_, hangup := p.Action.(rpc.Hangup)
	return ok && hangup
}

func fetches(a Action) bool { _, ok := a.(Fetch); return ok }

// A standby decides nothing. It says who is active, if it knows.
func TestStandbyAnswers(t *testing.T) {
	b := newIdleBench(t, "c2")
	id := b.ask(create("", newTopic("a", 1, 1)))[0]
	if got := b.answerOf(id).Err; rpc.ReasonOf(got) != cluster.NotController {
		t.Errorf("answered %v", got)
	}
	other := newBench(t, 1)
	b.m = other.m
	b.run()
	for _, r := range []rpc.Request{create("", newTopic("a", 1, 1)), rpc.Resign{ResignControllerRequest: &pb.ResignControllerRequest{}}} {
		id = b.ask(r)[0]
		if got := b.answerOf(id).Err; rpc.ReasonOf(got) != cluster.NotController || !strings.Contains(got.Error(), "c1 at c1:1") {
			t.Errorf("answered %v", got)
		}
	}
	if len(b.commits) != 0 {
		t.Errorf("a standby has written %v", b.commits)
	}
	if _, ok := b.l.Active(); ok || b.l.Quiet() != 0 || b.l.Idle() {
		t.Error("a standby claims to be active")
	}
}

// A resignation waits until the work of the term has stopped: transactions are
// answered, streams closed. Then the seat is released, then the lease, then
// the caller hears of it.
func TestResignWaitsForTheWork(t *testing.T) {
	for _, order := range [][]func(Action) bool{{hangups, commits}, {commits, hangups}} {
		resignsAfter(t, order[0], order[1])
	}
}

func resignsAfter(t *testing.T, first, second func(Action) bool) {
	t.Helper()
	b := newBench(t, 3)
	b.created("a", 1, 16)
	b.listening(4)
	b.run()
	if got := b.l.Pusher().Connected(); got != 1 {
		t.Fatalf("%d streams", got)
	}
	alter := b.ask(b.shrink("a", 0))[0]
	resign := b.ask(rpc.Resign{ResignControllerRequest: &pb.ResignControllerRequest{Reason: "r"}})[0]
	if b.answered(alter) {
		t.Error("the request in flight is answered before its transaction")
	}
	if _, ok := b.l.Active(); ok || b.l.Quiet() != 0 {
		t.Error("still active")
	}
	late := b.ask(b.shrink("a", 0))[0]
	if got := b.alterResult(late); got != string(cluster.NotController) {
		t.Errorf("a later request is answered %s", got)
	}
	wants := func(what string, releasing, revoking int, answered bool) {
		t.Helper()
		if b.count(releases) != releasing || b.count(revokes) != revoking || b.answered(resign) != answered {
			t.Fatalf("%s: %d releases, %d revokes, answered %v", what, b.count(releases), b.count(revokes), b.answered(resign))
		}
	}
	wants("at first", 0, 0, false)
	b.do(first)
	wants("with half of the work stopped", 0, 0, false)
	b.do(second)
	wants("without work", 1, 0, false)
	if got := b.alterResult(alter); got != "ok 1" {
		t.Errorf("the request whose write was committed is answered %s", got)
	}
	b.do(releases)
	wants("seat given up", 0, 1, false)
	b.do(revokes)
	wants("lease given up", 0, 0, true)
	if got := b.answerOf(resign).Response.(*pb.ResignControllerResponse).GetEpoch(); got != 1 {
		t.Errorf("epoch %d", got)
	}
	b.see()
	if term := b.l.Image().Terms[1].Record; term.GetEndCause() != pb.EndCause_END_CAUSE_RESIGNED || term.GetEndReason() != "r" {
		t.Errorf("term %v", term)
	}
	b.run()
	if b.term != "begin 2" { // there is nobody else
		t.Errorf("term: %s", b.term)
	}
	if b.run(); !b.l.Idle() {
		t.Error("not idle")
	}
}

// A transaction whose outcome is unknown is not read any more once the term
// has ended; the others are waited for.
func TestStopWithUnknownOutcomes(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 150, 1)
	b.hand(store.Delete(keys.Broker(3)))
	b.held = commits
	b.run()
	if b.count(commits) != 2 {
		t.Fatalf("%d transactions", b.count(commits))
	}
	b.step(Elected{election.Leave{Reason: "stop"}})
	b.refuse(store.ErrUnknown)
	if b.count(reads) != 0 || b.count(releases) != 0 {
		t.Fatalf("%d reads, %d releases", b.count(reads), b.count(releases))
	}
	b.lose()
	if b.count(releases) != 1 {
		t.Fatal("not released")
	}
	b.run()
	if !b.l.Done() || len(b.m.Leases()) != 0 {
		t.Errorf("done %v, leases %v", b.l.Done(), b.m.Leases())
	}
}

func TestStopWhileReading(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 2, 1)
	b.ask(b.shrink("a", 0))
	b.refuse(store.ErrUnknown)
	b.step(Elected{election.Leave{}})
	if b.count(releases) != 0 {
		t.Fatal("released before the read was answered")
	}
	r := b.next(reads).(Read)
	b.step(ReadBack{Chunk: r.Chunk, Err: store.ErrUnknown})
	if b.count(reads) != 0 || b.count(releases) != 1 {
		t.Fatalf("%d reads, %d releases", b.count(reads), b.count(releases))
	}
}

// What a new active has to do it finds in its agenda, at once.
func TestNewActiveStepsTheAgenda(t *testing.T) {
	a := newBench(t, 3)
	a.created("a", 50, 16)
	a.hand(store.Delete(keys.Broker(2)))
	a.m.Revoke(a.l.Candidate().Lease()) // both gone before anybody has acted
	b := newIdleBench(t, "c2")
	b.m = a.m
	b.run()
	if b.term != "begin 2" || !b.l.Idle() || b.l.Sweep() != 0 {
		t.Fatalf("term %s, idle %v", b.term, b.l.Idle())
	}
	b.l.Image().Partitions(b.l.Image().Topics["a"], func(id cluster.PartitionID, p *cluster.Partition) {
		if p.Leader == 2 || slices.Contains(p.ISR, 2) || p.ControllerEpoch != 2 {
			t.Fatalf("partition %v: %+v", id, p)
		}
	})
	a.see()
	if !strings.HasPrefix(a.term, "stop: epoch: claim lost") {
		t.Errorf("the old one: %s", a.term)
	}
	a.run()
	if _, ok := a.l.Active(); ok || a.l.Candidate().Lease() == 0 {
		t.Error("the old one is no standby")
	}
}

// A list of keys and revisions shows what the watch has missed; it is read and
// the rules act on it.
func TestCompareHeals(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 4, 2)
	b.hand(store.Delete(keys.Broker(3)))                                           // missed
	b.edit("a", 0, func(p *cluster.Partition) { p.PartitionEpoch++ })              // missed
	b.hand(store.Put(keys.Node(9), cluster.Encode(&pb.NodeRecord{NodeUuid: "n"}))) // missed
	list := b.m.List(keys.Prefix(), true)
	b.step(Listed{list})
	if b.count(fetches) != 0 {
		t.Fatal("compared with an image that is older than the list")
	}
	b.miss()
	want := []string{keys.Broker(3), keys.Node(9), keys.Block(cluster.BlockID{Topic: b.partition("a", 0).Topic})}
	slices.Sort(want)
	if got := b.next(fetches).(Fetch); !slices.Equal(got.Keys, want) {
		t.Fatalf("reads %q, want %q", got.Keys, want)
	} else {
		b.step(Fetched{Keys: slices.Clone(got.Keys), Err: store.ErrUnknown}) // the next compare will do
		b.step(Listed{list})
		b.do(fetches)
	}
	if b.l.Stats.Healed != 3 || b.l.Image().Brokers[3] != nil || b.l.Image().Nodes[9] == nil {
		t.Errorf("healed %d, brokers %v", b.l.Stats.Healed, b.l.Image().Brokers)
	}
	b.run()
	if !b.l.Idle() || b.l.Sweep() != 0 {
		t.Error("not idle")
	}
	b.l.Image().Partitions(b.l.Image().Topics["a"], func(id cluster.PartitionID, p *cluster.Partition) {
		if slices.Contains(p.ISR, 3) {
			t.Errorf("partition %v: isr %v", id, p.ISR)
		}
	})
	b.step(Listed{b.m.List(keys.Prefix(), true)})
	if b.count(fetches) != 0 || b.l.Stats.Healed != 3 {
		t.Error("there is nothing left to heal")
	}
}

// However many keys the watch has missed, one comparison heals them all.
func TestCompareHealsMany(t *testing.T) {
	const n = 2*store.MaxOps + 10
	b := newBench(t, 3)
	b.created("a", n, 1)
	for i := range int32(n) {
		b.edit("a", i, func(p *cluster.Partition) { p.PartitionEpoch++ })
	}
	b.miss()
	b.step(Listed{b.m.List(keys.Prefix(), true)})
	b.run()
	if b.l.Stats.Healed != n {
		t.Errorf("%d of %d keys healed", b.l.Stats.Healed, n)
	}
}

// A list of the watch ends a comparison that is under way: both mark the keys
// that they meet.
func TestListEndsACompare(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 100, 1)
	b.l.cfg.Slice = 1
	b.step(Listed{b.m.List(keys.Prefix(), true)})
	if b.l.comparing == nil {
		t.Fatal("compared at once")
	}
	list := b.m.List(keys.Prefix(), false)
	batch := store.Batch{Rev: list.Rev, Reset: true}
	for _, kv := range list.KVs {
		batch.Changes = append(batch.Changes, store.Change{KV: kv})
	}
	b.held = fetches
	b.step(Watched{batch})
	b.run()
	if b.count(fetches) != 0 || b.l.comparing != nil {
		t.Error("keys are read that nobody has missed")
	}
}

// Two reads that the image has yet to reach are both taken in.
func TestHealsTwice(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 2, 1)
	for i := range int32(2) {
		b.edit("a", i, func(p *cluster.Partition) { p.PartitionEpoch += 5 })
	}
	b.miss()
	b.hand(store.Put(keys.Node(9), nil)) // so that the reads are ahead of the image
	for i := range int32(2) {
		key := keys.Block(cluster.BlockID{Topic: b.l.im.Topics["a"].ID, Index: i})
		b.l.fetch([]string{key}, nil)
		b.step(b.perform(Fetch{Keys: []string{key}}))
	}
	if b.l.Stats.Healed != 0 {
		t.Fatal("taken in too early")
	}
	b.see()
	if b.l.Stats.Healed != 2 {
		t.Errorf("%d keys healed", b.l.Stats.Healed)
	}
}

// What the watch says after a read was taken is newer than the read.
func TestHealDoesNotUndo(t *testing.T) {
	b := newBench(t, 1)
	b.hand(store.Delete(keys.Broker(1)))
	b.miss()
	b.step(Listed{b.m.List(keys.Prefix(), true)})
	fetched := b.perform(b.next(fetches)) // finds nothing
	b.broker(1)
	b.see()
	epoch := b.l.Image().Brokers[1].Epoch
	b.step(fetched)
	if got := b.l.Image().Brokers[1]; got == nil || got.Epoch != epoch || b.l.Stats.Healed != 0 {
		t.Errorf("broker %+v, healed %d", got, b.l.Stats.Healed)
	}
}

// So is a list: what it does not name is gone, though a read before it was taken
// in has found it.
func TestHealDoesNotUndoAList(t *testing.T) {
	b := newBench(t, 1)
	key := keys.Broker(1)
	b.l.fetch([]string{key}, nil)
	fetched := b.perform(Fetch{Keys: []string{key}}) // finds it
	b.hand(store.Delete(key))
	list := b.m.List(keys.Prefix(), false)
	batch := store.Batch{Rev: list.Rev, Reset: true}
	for _, kv := range list.KVs {
		batch.Changes = append(batch.Changes, store.Change{KV: kv})
	}
	b.step(Watched{batch})
	b.step(fetched)
	if got := b.l.Image().Brokers[1]; got != nil || b.l.Stats.Healed != 0 {
		t.Errorf("broker %+v, healed %d", got, b.l.Stats.Healed)
	}
}

// A broker that knows a higher epoch makes the active read the seat at once. It
// steps down if etcd agrees, and leaves the broker alone if not.
func TestDoubt(t *testing.T) {
	for _, deposed := range []bool{false, true} {
		b := newBench(t, 3)
		b.listening(4)
		b.held = probes
		b.run()
		for b.count(probes) > 0 {
			b.do(probes)
		}
		if deposed {
			b.hand(store.Delete(keys.Controller()))
		}
		b.hand(store.Delete(keys.Broker(1)))
		batch, _ := b.m.ChangesSince(keys.Prefix(), b.l.Image().Rev)
		if deposed { // the watch is late
			batch.Changes = slices.DeleteFunc(batch.Changes, func(c store.Change) bool { return c.KV.Key == keys.Controller() })
		}
		b.step(Watched{batch})
		var send rpc.Send
		for send.Request.GetCommand() == nil {
			send = b.next(func(a Action) bool { p, ok := a.(Push); _, send := p.Action.(rpc.Send); return ok && send }).(Push).Action.(rpc.Send)
		}
		b.step(Pushed{rpc.Received{Stream: send.Stream, Response: &pb.CommandsResponse{Response: &pb.CommandsResponse_Ack{Ack: &pb.CommandAck{
			Sequence: send.Request.GetCommand().GetSequence(), Refusal: pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH, ControllerEpoch: 9,
		}}}}})
		if b.count(probes) != 1 || b.l.Stats.Disbelieved != 1 {
			t.Fatalf("%d reads of the seat, stats %+v", b.count(probes), b.l.Stats)
		}
		b.do(probes)
		if _, ok := b.l.Active(); ok == deposed {
			t.Errorf("active %v, deposed %v", ok, deposed)
		}
		if deposed && b.term != "stop: "+epoch.ErrClaimLost.Error() {
			t.Errorf("term: %s", b.term)
		}
	}
}

// The claim is not acted on from its quiet time on: nothing is committed or
// sent, although renewals may still be on their way.
func TestQuietEndsTheTerm(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 1, 16)
	id := b.ask(b.shrink("a", 0))[0]
	b.held = func(Action) bool { return true }
	quiet := b.l.Quiet()
	b.pass(quiet - b.now - 1)
	if _, ok := b.l.Active(); !ok {
		t.Fatal("not active just before")
	}
	b.now = quiet
	b.step()
	if _, ok := b.l.Active(); ok || b.term != "stop: "+election.ErrLeaseLost.Error() {
		t.Errorf("active %v, term: %s", ok, b.term)
	}
	if got := b.alterResult(id); got != string(cluster.NotController) {
		t.Errorf("answered %s", got)
	}
}

// An unanswered write keeps the lease from being renewed, and so ends the term.
func TestHungWriteEndsTheTerm(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 1, 16)
	b.ask(b.shrink("a", 0))
	b.held = commits
	b.pass(7 * time.Second)
	if b.term != "stop: "+election.ErrLeaseLost.Error() {
		t.Errorf("term: %s", b.term)
	}
	b.held = nothing
	b.run()
	if b.term != "begin 2" {
		t.Errorf("term: %s", b.term)
	}
}

// Events of an earlier plan or term, and of chunks that are not in flight,
// change nothing.
func TestLateEvents(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 2, 16)
	old := b.ask(b.shrink("a", 0))[0]
	c := b.next(commits).(Commit)
	answer := b.perform(c)
	b.step(answer)
	for _, ev := range []Event{
		answer, Committed{Chunk: c.Chunk, Err: store.ErrUnknown}, ReadBack{Chunk: c.Chunk}, ReadBack{Chunk: 99}, Committed{Chunk: 99, Err: store.ErrBusy},
		Fetched{Err: store.ErrUnknown}, Pushed{rpc.Closed{}},
	} {
		b.step(ev)
		if b.answered(old) || len(b.waiting) != 0 {
			t.Fatalf("%#v: answered %v, %v waits", ev, b.answered(old), b.waiting)
		}
	}
	b.see()
	if got := b.alterResult(old); got != "ok 1" {
		t.Errorf("answered %s", got)
	}
	b.step(answer)
	if !b.l.Idle() {
		t.Error("not idle")
	}
}

// Brokers and topics whose records cannot be read are named; all else works.
func TestProblems(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 4, 2)
	b.hand(store.Put(keys.Broker(7), []byte{0xff}))
	b.hand(store.Put(keys.Block(cluster.BlockID{Topic: b.partition("a", 0).Topic}), []byte{0xff}))
	b.hand(store.Put(keys.Prefix()+"other", nil))
	b.hand(store.Put(keys.Candidate(77), cluster.Encode(&pb.CandidateRecord{Id: "c1", Nonce: "other", Endpoint: "x:1"})))
	b.run()
	got := b.l.View().Problems()
	for i, want := range []string{"another daemon at x:1 has the same id c1", "brokers/7 is skipped", "other is skipped", "/0 is skipped"} {
		if len(got) != 4 || !strings.Contains(got[i], want) {
			t.Fatalf("problems %q", got)
		}
	}
	id := b.ask(b.shrink("a", 3))[0]
	b.run()
	if got := b.alterResult(id); got != "ok 1" || !b.l.View().Healthy {
		t.Errorf("answered %s, healthy %v", got, b.l.View().Healthy)
	}
	for i := range 50 {
		b.hand(store.Put(keys.Broker(cluster.BrokerID(100+i)), nil))
	}
	b.run()
	if got := b.l.View().Problems(); len(got) != maxNamed+2 || got[maxNamed+1] != "and 33 more such keys" {
		t.Errorf("%d problems, the last is %q", len(got), got[len(got)-1])
	}
	b.hand(store.Delete(keys.Cluster()))
	b.run()
	if v := b.l.View(); v.Healthy || !strings.HasPrefix(v.Problems()[0], "not campaigning: ") {
		t.Errorf("healthy %v, problems %q", v.Healthy, v.Problems())
	}
}

func TestView(t *testing.T) {
	b := newIdleBench(t, "c1")
	if v := b.l.View(); v.Active || v.ClusterUUID != "" || v.Self != "c1" || v.Nonce != "c1-nonce" || v.Claim.Rev != 0 {
		t.Errorf("before anything was read: %+v", v)
	}
	b.run()
	claim, _ := b.l.Active()
	if v := b.l.View(); !v.Active || !v.Healthy || v.ClusterUUID != "u" || v.Claim != claim || v.Pending != 0 {
		t.Errorf("active: %+v", v)
	}
	b.listening(1)
	b.held = func(a Action) bool { _, ok := a.(Push); return ok }
	b.run()
	if b.l.Idle() != true { // a broker without a stream is not waited for
		t.Error("not idle")
	}
	b.held = nothing
	b.run()
	if got := b.l.View().Problems(); len(got) != 0 {
		t.Errorf("problems %q", got)
	}
}

// The switches take out what they say, and nothing else.
func TestTakenOut(t *testing.T) {
	open := unfenced.Open()
	t.Run("claim guard", func(t *testing.T) {
		b := newBench(t, 3)
		b.created("a", 1, 16)
		b.l.cfg.TakenOut.ClaimGuard = open
		b.ask(b.shrink("a", 0))
		b.hand(store.Delete(keys.Controller()))
		if r, err := b.m.Txn(b.next(commits).(Commit).Txn); err != nil || !r.Succeeded {
			t.Errorf("%+v %v", r, err)
		}
	})
	t.Run("block guard", func(t *testing.T) {
		b := newBench(t, 3)
		b.created("a", 1, 16)
		b.l.cfg.TakenOut.BlockGuard = open
		b.ask(b.shrink("a", 0))
		b.edit("a", 0, func(p *cluster.Partition) { p.PartitionEpoch += 5 })
		if r, err := b.m.Txn(b.next(commits).(Commit).Txn); err != nil || !r.Succeeded {
			t.Errorf("%+v %v", r, err)
		}
	})
	t.Run("settled", func(t *testing.T) {
		b := newBench(t, 3)
		b.created("a", 1, 16)
		b.l.cfg.TakenOut.Settled = open
		id := b.ask(b.shrink("a", 0))[0]
		b.do(commits)
		if !b.answered(id) {
			t.Error("it waits for the image")
		}
	})
}

// An epoch above that of the term, in whatever key, ends the term: the next one
// is above it, so that nobody can be told of an epoch that no term has.
func TestOutbid(t *testing.T) {
	for name, op := range map[string]func(b *bench) store.Op{
		"in the history": func(*bench) store.Op { return store.Put(keys.Term(50), nil) },
		"in a record": func(b *bench) store.Op {
			p := b.l.Image().Partition(b.partition("a", 0)).Clone()
			p.ControllerEpoch = 50
			block := (*cluster.Block)(nil).With(map[int32]*cluster.Partition{0: &p}, nil)
			return store.Put(keys.Block(cluster.BlockID{Topic: b.partition("a", 0).Topic}), block.Encode())
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 3)
			b.created("a", 1, 16)
			b.hand(op(b))
			b.run()
			if b.term != "begin 51" {
				t.Errorf("term: %s", b.term)
			}
		})
	}
	t.Run("at the limit", func(t *testing.T) {
		b := newBench(t, 3)
		b.hand(store.Put(keys.Term(cluster.MaxEpoch-1), nil), store.Put(keys.Prefix()+fmt.Sprintf("terms/%020d", cluster.MaxEpoch), nil))
		b.run()
		if got := b.l.View().Problems(); len(got) == 0 || !strings.Contains(got[0], "there is none above it") {
			t.Errorf("problems %q", got)
		}
		if b.l.Image().Epoch != 1 {
			t.Errorf("minted %d", b.l.Image().Epoch)
		}
	})
}

// A record from the future, copied or written by hand, holds up nobody, itself
// included.
func TestRecordFromTheFuture(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 1, 16)
	p := b.l.Image().Partition(b.partition("a", 0)).Clone()
	p.Decided = 1 << 40
	block := (*cluster.Block)(nil).With(map[int32]*cluster.Partition{0: &p}, nil)
	b.hand(store.Put(keys.Block(cluster.BlockID{Topic: b.partition("a", 0).Topic}), block.Encode()), store.Delete(keys.Broker(p.Leader)))
	b.run()
	now := b.l.Image().Partition(b.partition("a", 0))
	if now.Leader == p.Leader || now.Leader == cluster.NoLeader || slices.Contains(now.ISR, p.Leader) || b.l.Stats.Illegal != 0 {
		t.Errorf("led by %d, ISR %v, %d illegal writes", now.Leader, now.ISR, b.l.Stats.Illegal)
	}
}

// TestRestored: when more than half of the live brokers know of a higher epoch
// than etcd goes on to hold, the daemon says what has happened and what to do,
// and is not healthy. It says so no more when they obey.
func TestRestored(t *testing.T) {
	b := newBench(t, 0)
	for id := range cluster.BrokerID(4) {
		b.listening(id)
	}
	b.run()
	outdated := map[cluster.BrokerID]bool{} // they answer nothing but what the test says
	b.held = func(a Action) bool {
		p, _ := a.(Push)
		s, ok := p.Action.(rpc.Send)
		return ok && outdated[s.Stream.Broker]
	}
	knows := func(id cluster.BrokerID) {
		outdated[id] = true
		b.step(Pushed{rpc.Opened{Stream: b.streams[id], Hello: &pb.Hello{BrokerId: int32(id), ControllerEpoch: 7 + int64(id)}}})
		b.run()
	}
	says := func(want string) {
		t.Helper()
		v := b.l.View()
		got := ""
		for _, p := range v.Problems() {
			if strings.Contains(p, "run controllerd recover") {
				got = p
			}
		}
		if !strings.HasPrefix(got, want) || (got == "") != (want == "") || v.Healthy != (want == "") {
			t.Errorf("healthy %v, says %q, want %q", v.Healthy, got, want)
		}
	}
	knows(0)
	knows(1)
	b.pass(2 * time.Second)
	says("") // half of them
	knows(2)
	says("") // it may have been replaced, and not know it yet
	b.pass(2 * time.Second)
	says("3 of 4 live brokers know of controller epoch 9, etcd holds 1:")
	b.step(Pushed{rpc.Received{Stream: b.streams[2], Response: &pb.CommandsResponse{Response: &pb.CommandsResponse_Ack{Ack: &pb.CommandAck{Sequence: 99}}}}})
	says("")
}

// A call that is repeated ends no second term: one that names another epoch than
// that of the term is refused.
func TestResignOfAnotherTerm(t *testing.T) {
	b := newBench(t, 3)
	b.run()
	for _, epoch := range []int64{-1, 2} {
		for _, r := range []rpc.Request{
			rpc.Resign{ResignControllerRequest: &pb.ResignControllerRequest{Epoch: epoch}},
			rpc.Transfer{TransferControllerRequest: &pb.TransferControllerRequest{Successor: "b", Epoch: epoch}},
		} {
			id := b.ask(r)[0]
			b.run()
			if got := rpc.ReasonOf(b.answerOf(id).Err); got != cluster.StaleControllerEpoch {
				t.Errorf("%T of epoch %d is answered %q", r, epoch, got)
			}
		}
	}
	if _, ok := b.l.Active(); !ok {
		t.Fatal("not active any more")
	}
	id := b.ask(rpc.Resign{ResignControllerRequest: &pb.ResignControllerRequest{Epoch: 1}})[0]
	b.run()
	if !b.answered(id) || b.answerOf(id).Err != nil {
		t.Errorf("its own term: %v", b.answerOf(id))
	}
}
