package controller

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/memstore"
)

var keys = cluster.KeysOf("test")

// bench is one loop with a store and a clock. What it wants done waits until
// the test says so: in run everything but what is held, in the order in which
// it was asked for.
type bench struct {
	t       testing.TB
	m       *memstore.Model
	l       *Loop
	now     time.Duration
	blind   bool                              // the watch brings nothing
	held    func(Action) bool                 // not done by run
	deaf    map[cluster.BrokerID]bool         // brokers that refuse streams
	streams map[cluster.BrokerID]rpc.StreamID // the newest of each

	waiting []Action
	asked   int64 // requests so far
	answers map[int64]rpc.Answer
	commits []Commit // all that were asked for since the last look
	term    string   // the last begin or stop

	steps   int
	longest time.Duration // that a step took
	spent   time.Duration // by all steps
	last    time.Duration // by the last one
}

// timed counts a step, by the time that it takes on a processor.
func (b *bench) timed(fn func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := threadTime()
	fn()
	b.last = threadTime() - began
	b.steps, b.spent, b.longest = b.steps+1, b.spent+b.last, max(b.longest, b.last)
}

// newBench is a loop that has won the first term of a cluster with brokers 1
// to n, which have no control listener.
func newBench(t *testing.T, brokers int) *bench {
	t.Helper()
	b := newIdleBench(t, "c1")
	b.run()
	for id := range brokers {
		b.broker(cluster.BrokerID(id + 1))
	}
	b.run()
	if _, ok := b.l.Active(); !ok {
		t.Fatal("not active")
	}
	b.commits = nil
	return b
}

func newIdleBench(t testing.TB, id string) *bench {
	random := rand.New(rand.NewPCG(1, 2))
	return &bench{
		t: t, m: memstore.NewModel(), now: time.Hour, answers: map[int64]rpc.Answer{}, held: nothing,
		deaf: map[cluster.BrokerID]bool{}, streams: map[cluster.BrokerID]rpc.StreamID{},
		l: NewLoop(LoopConfig{
			Keys: keys, Rand: random, Strict: true,
			Election: election.Config{
				Self: &pb.ControllerRecord{Id: id, Nonce: id + "-nonce", Endpoint: id + ":1"}, TTL: 5 * time.Second, ClusterUUID: "u", Rand: random,
			},
		}),
	}
}

func nothing(Action) bool { return false }

func commits(a Action) bool { _, ok := a.(Commit); return ok }
func reads(a Action) bool   { _, ok := a.(Read); return ok }

func (b *bench) at() election.Now { return election.Now{Mono: b.now, WallMs: 1000} }

func (b *bench) step(events ...Event) {
	b.t.Helper()
	var actions []Action
	b.timed(func() { actions = b.l.Step(b.at(), events...) })
	b.l.measure(b.now)
	for _, a := range actions {
		switch a := a.(type) {
		case Answer:
			if _, ok := b.answers[a.ID]; ok {
				b.t.Fatalf("request %d is answered twice", a.ID)
			}
			b.answers[a.ID] = a.Answer
			continue
		case Commit:
			b.commits = append(b.commits, a)
			if err := a.Txn.Validate(); err != nil {
				b.t.Fatal(err)
			}
		case Elect:
			switch e := a.Action.(type) {
			case election.Begin:
				b.term = fmt.Sprint("begin ", e.Claim.Epoch)
				continue
			case election.Stop:
				b.term = fmt.Sprint("stop: ", e.Cause)
				continue
			}
		}
		b.waiting = append(b.waiting, a)
	}
	if !b.l.Done() && b.l.Wake() < b.now {
		b.t.Fatalf("wakes at %v, it is %v", b.l.Wake(), b.now)
	}
}

// see lets the image show all that the store holds.
func (b *bench) see() {
	b.t.Helper()
	batch, err := b.m.ChangesSince(keys.Prefix(), b.l.Image().Rev)
	if err != nil {
		b.t.Fatal(err)
	}
	b.step(Watched{batch}, Watched{store.Batch{Rev: b.m.Rev()}})
}

// miss lets the watch skip all that happened: it shows progress only.
func (b *bench) miss() { b.t.Helper(); b.step(Watched{store.Batch{Rev: b.m.Rev()}}) }

// perform does what an action asks for.
func (b *bench) perform(a Action) Event {
	b.t.Helper()
	switch a := a.(type) {
	case Commit:
		r, err := b.m.Txn(a.Txn)
		return Committed{Chunk: a.Chunk, Result: r, Err: err}
	case Read:
		read, err := b.m.Get(a.Keys...)
		return ReadBack{Chunk: a.Chunk, Read: read, Err: err}
	case Fetch:
		read, err := b.m.Get(a.Keys...)
		return Fetched{Keys: a.Keys, Read: read, Err: err}
	case List:
		return Listed{b.m.List(keys.Prefix(), true)}
	case Elect:
		return Elected{b.elect(a.Action)}
	case Push:
		return b.push(a.Action)
	}
	b.t.Fatalf("cannot perform %#v", a)
	return nil
}

func (b *bench) elect(a election.Action) election.Event {
	switch a := a.(type) {
	case election.Grant:
		l, err := b.m.Grant(b.now, a.TTL)
		return election.Granted{Sent: a.Sent, Lease: l, Err: err}
	case election.Renew:
		ttl, err := b.m.Renew(b.now, a.Lease)
		return election.Renewed{Lease: a.Lease, Sent: a.Sent, TTL: ttl, Err: err}
	case election.Probe:
		read, err := b.m.Get(a.Keys...)
		return election.Probed{Sent: a.Sent, Read: read, Err: err}
	case election.Commit:
		r, err := b.m.Txn(a.Txn)
		return election.Committed{Commit: a, Result: r, Err: err}
	case election.Revoke:
		b.m.Revoke(a.Lease)
		return election.Revoked{Lease: a.Lease}
	}
	return nil
}

// push plays a broker that admits everything and answers nothing else.
func (b *bench) push(a rpc.PushAction) Event {
	switch a := a.(type) {
	case rpc.Dial:
		if b.deaf[a.Stream.Broker] {
			return Pushed{rpc.Closed{Stream: a.Stream, Err: errors.New("refused")}}
		}
		b.streams[a.Stream.Broker] = a.Stream
		return Pushed{rpc.Opened{Stream: a.Stream, Hello: &pb.Hello{BrokerId: int32(a.Stream.Broker)}}}
	case rpc.Hangup:
		return Pushed{rpc.Closed{Stream: a.Stream}}
	case rpc.Send:
		r := &pb.CommandsResponse{Response: &pb.CommandsResponse_Pong{Pong: &pb.Pong{}}}
		if c := a.Request.GetCommand(); c != nil {
			r = &pb.CommandsResponse{Response: &pb.CommandsResponse_Ack{Ack: &pb.CommandAck{Sequence: c.GetSequence()}}}
		}
		return Pushed{rpc.Received{Stream: a.Stream, Response: r}}
	}
	return nil
}

// next takes the oldest action of a kind that waits.
func (b *bench) next(kind func(Action) bool) Action {
	b.t.Helper()
	i := slices.IndexFunc(b.waiting, kind)
	if i < 0 {
		b.t.Fatalf("nothing of that kind waits, but %v", b.waiting)
	}
	a := b.waiting[i]
	b.waiting = slices.Delete(b.waiting, i, i+1)
	return a
}

func (b *bench) count(kind func(Action) bool) int {
	n := 0
	for _, a := range b.waiting {
		if kind(a) {
			n++
		}
	}
	return n
}

// do performs the oldest action of a kind that waits.
func (b *bench) do(kind func(Action) bool) { b.t.Helper(); b.step(b.perform(b.next(kind))) }

// refuse answers the oldest transaction with an error; it is not applied.
func (b *bench) refuse(err error) {
	b.t.Helper()
	b.step(Committed{Chunk: b.next(commits).(Commit).Chunk, Err: err})
}

// lose applies the oldest transaction, and loses the reply.
func (b *bench) lose() {
	b.t.Helper()
	c := b.next(commits).(Commit)
	b.perform(c)
	b.step(Committed{Chunk: c.Chunk, Err: store.ErrUnknown})
}

// run does everything that is not held, and shows it, until nothing is left to
// do at this moment.
func (b *bench) run() {
	b.t.Helper()
	for range 100_000 {
		if !b.turn() {
			return
		}
	}
	b.t.Fatal("it never comes to rest")
}

// turn shows what the store holds and does one thing that is not held. It
// reports whether there was any.
func (b *bench) turn() bool {
	b.t.Helper()
	if !b.blind {
		b.see()
	}
	for b.l.Backlog() {
		b.step()
	}
	i := slices.IndexFunc(b.waiting, func(a Action) bool { return !b.held(a) })
	switch {
	case i < 0 && !b.l.Unfinished():
		return false
	case i < 0:
		b.step()
	default:
		a := b.waiting[i]
		b.waiting = slices.Delete(b.waiting, i, i+1)
		b.step(b.perform(a))
	}
	return true
}

// pass lets time pass, and run.
func (b *bench) pass(d time.Duration) {
	b.t.Helper()
	for end := b.now + d; b.now < end; {
		b.now = min(max(b.l.Wake(), b.now+time.Millisecond), end)
		b.m.Expire(b.now)
		b.run()
	}
}

// hand writes to the store by hand.
func (b *bench) hand(ops ...store.Op) {
	b.t.Helper()
	r, err := b.m.Txn(store.Txn{If: []store.Cond{store.Missing("never/written")}, Then: ops})
	if err != nil || !r.Succeeded {
		b.t.Fatalf("write by hand: %+v %v", r, err)
	}
}

func (b *bench) broker(id cluster.BrokerID) {
	b.t.Helper()
	b.hand(store.Put(keys.Broker(id), cluster.Encode(&pb.BrokerRecord{NodeUuid: "n", Nonce: "x"})))
}

// listening registers a broker that has a control listener.
func (b *bench) listening(id cluster.BrokerID) {
	b.t.Helper()
	b.hand(store.Put(keys.Broker(id), cluster.Encode(&pb.BrokerRecord{NodeUuid: "n", Nonce: "x", ControlAddress: "b:1"})))
}

// ask hands in requests together and returns their numbers.
func (b *bench) ask(requests ...rpc.Request) []int64 {
	b.t.Helper()
	var ids []int64
	var events []Event
	for _, r := range requests {
		b.asked++
		ids = append(ids, b.asked)
		events = append(events, Requested{b.asked, r})
	}
	b.step(events...)
	return ids
}

func (b *bench) answered(id int64) bool { _, ok := b.answers[id]; return ok }

func create(requestID string, topics ...*pb.NewTopic) rpc.CreateTopics {
	return rpc.CreateTopics{CreateTopicsRequest: &pb.CreateTopicsRequest{Topics: topics, RequestId: requestID}}
}

func newTopic(name string, partitions, blockSize int32) *pb.NewTopic {
	return &pb.NewTopic{Name: name, Partitions: partitions, ReplicationFactor: 3, BlockSize: blockSize}
}

// created makes a topic and waits until it stands.
func (b *bench) created(name string, partitions, blockSize int32) {
	b.t.Helper()
	id := b.ask(create("", newTopic(name, partitions, blockSize)))[0]
	b.run()
	if got := b.topicResult(id); got != "ok" {
		b.t.Fatal(got)
	}
	b.commits = nil
}

// topicResult is what a request for one topic was answered: ok, or why not.
func (b *bench) topicResult(id int64) string {
	b.t.Helper()
	a := b.answerOf(id)
	if a.Err != nil {
		return string(rpc.ReasonOf(a.Err))
	}
	out := ""
	for _, r := range a.Response.(*pb.CreateTopicsResponse).GetResults() {
		if out != "" {
			out += " "
		}
		if r.GetError() == "" {
			out += "ok"
		}
		out += r.GetError()
	}
	return out
}

func (b *bench) answerOf(id int64) rpc.Answer {
	b.t.Helper()
	a, ok := b.answers[id]
	if !ok {
		b.t.Fatalf("request %d is not answered", id)
	}
	return a
}

// partition names a partition by its topic's name.
func (b *bench) partition(name string, index int32) cluster.PartitionID {
	return cluster.PartitionID{Topic: b.l.Image().Topics[name].ID, Index: index}
}

// shrink is the request of a partition's leader to leave the last member out
// of the ISR.
func (b *bench) shrink(name string, index int32) rpc.Alter {
	b.t.Helper()
	p := b.l.Image().Partition(b.partition(name, index))
	return b.alter(name, index, p, p.ISR[:len(p.ISR)-1])
}

func (b *bench) alter(name string, index int32, p *cluster.Partition, isr []cluster.BrokerID) rpc.Alter {
	var members []*pb.IsrMember
	for _, id := range isr {
		members = append(members, &pb.IsrMember{BrokerId: int32(id), BrokerEpoch: -1})
	}
	topic := b.l.Image().Topics[name].ID
	return rpc.Alter{AlterPartitionRequest: &pb.AlterPartitionRequest{
		BrokerId: int32(p.Leader), BrokerEpoch: int64(b.l.Image().Brokers[p.Leader].Epoch),
		Topics: []*pb.AlterPartitionTopic{{TopicId: topic[:], Partitions: []*pb.AlterPartitionEntry{{
			Partition: index, LeaderEpoch: int32(p.LeaderEpoch), PartitionEpoch: int32(p.PartitionEpoch), NewIsr: members,
		}}}},
	}}
}

// alterResult is what a request for one partition was answered: ok and its
// partition epoch, or why not.
func (b *bench) alterResult(id int64) string {
	b.t.Helper()
	a := b.answerOf(id)
	if a.Err != nil {
		return string(rpc.ReasonOf(a.Err))
	}
	r := a.Response.(*pb.AlterPartitionResponse).GetTopics()[0].GetPartitions()[0]
	if r.GetError() != "" {
		return r.GetError()
	}
	return fmt.Sprint("ok ", r.GetState().GetPartitionEpoch())
}

// edit changes a partition's record in the store by hand.
func (b *bench) edit(name string, index int32, fn func(*cluster.Partition)) {
	b.t.Helper()
	id := b.partition(name, index)
	p := b.l.Image().Partition(id).Clone()
	fn(&p)
	block := cluster.BlockOf(id, b.l.Image().Topics[name].BlockSize())
	b.hand(store.Put(keys.Block(block), b.l.Image().Block(block).With(map[int32]*cluster.Partition{index: &p}, nil).Encode()))
}
