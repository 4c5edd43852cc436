package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// A plan is settled, and its requests answered, only when the image shows what
// was committed; the next plan waits for that.
func TestSettledByTheImage(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 2, 16)
	first := b.ask(b.shrink("a", 0))[0]
	if n := len(b.commits); n != 1 {
		t.Fatalf("%d transactions", n)
	}
	b.do(commits)
	second := b.ask(b.shrink("a", 1))[0]
	if b.answered(first) || len(b.commits) != 1 {
		t.Fatalf("answered %v, %d transactions, although the image shows nothing", b.answered(first), len(b.commits))
	}
	b.see()
	if got := b.alterResult(first); got != "ok 1" {
		t.Errorf("answered %s", got)
	}
	if b.answered(second) || len(b.commits) != 2 {
		t.Errorf("answered %v, %d transactions", b.answered(second), len(b.commits))
	}
	b.run()
	if got := b.alterResult(second); got != "ok 1" {
		t.Errorf("answered %s", got)
	}
	for _, c := range b.commits {
		claim, _ := b.l.Active()
		if guard := claim.Guard(keys); !slices.Equal(c.Txn.If[:2], guard) || c.Claim != claim {
			t.Errorf("conditions %v do not begin with the guard %v", c.Txn.If, guard)
		}
	}
	if !b.l.Idle() {
		t.Error("not idle")
	}
}

// Somebody else has written the block: it is decided again, when the image
// shows it, from what is there now.
func TestBlockGuardFails(t *testing.T) {
	cases := []struct {
		name string
		edit func(b *bench)
		want string
	}{
		{"another partition of the block", func(b *bench) { b.edit("a", 1, func(p *cluster.Partition) { p.PartitionEpoch++ }) }, "ok 1"},
		{"a newer leader epoch", func(b *bench) {
			b.edit("a", 0, func(p *cluster.Partition) { p.PartitionEpoch++; p.LeaderEpoch++ })
		}, string(cluster.FencedLeaderEpoch)},
		{"a newer partition epoch", func(b *bench) { b.edit("a", 0, func(p *cluster.Partition) { p.PartitionEpoch++ }) }, string(cluster.InvalidUpdateVersion)},
		{"the block was deleted", func(b *bench) {
			b.hand(store.Delete(keys.Block(cluster.BlockID{Topic: b.partition("a", 0).Topic})))
		}, string(cluster.UnknownTopicOrPartition)},
		{"the block is unreadable now", func(b *bench) {
			b.hand(store.Put(keys.Block(cluster.BlockID{Topic: b.partition("a", 0).Topic}), []byte{0xff}))
		}, string(cluster.UnknownTopicOrPartition)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, 3)
			b.created("a", 2, 16)
			id := b.ask(b.shrink("a", 0))[0]
			c.edit(b)
			b.do(commits)
			b.step()
			if b.answered(id) || len(b.commits) != 1 || b.l.Stats.GuardFailed != 1 {
				t.Fatalf("answered %v, %d transactions, stats %+v", b.answered(id), len(b.commits), b.l.Stats)
			}
			b.run()
			if got := b.alterResult(id); got != c.want {
				t.Errorf("answered %s, want %s", got, c.want)
			}
			if _, ok := b.l.Active(); !ok {
				t.Error("the seat was lost")
			}
		})
	}
}

// The outcome of a transaction is unknown: its keys are read, as often as it
// takes, and what it wanted is decided again from the image that shows them.
func TestUnknownOutcome(t *testing.T) {
	for _, applied := range []bool{true, false} {
		t.Run(fmt.Sprint("applied ", applied), func(t *testing.T) {
			b := newBench(t, 3)
			b.created("a", 1, 16)
			id := b.ask(b.shrink("a", 0))[0]
			if applied {
				b.lose()
			} else {
				b.refuse(store.ErrUnknown)
			}
			block := keys.Block(cluster.BlockID{Topic: b.partition("a", 0).Topic})
			for range 3 {
				read := b.next(reads).(Read)
				if !slices.Contains(read.Keys, block) || !slices.Contains(read.Keys, keys.Controller()) {
					t.Fatalf("reads %v", read.Keys)
				}
				b.step(ReadBack{Chunk: read.Chunk, Err: store.ErrUnknown})
				b.now += 99 * time.Millisecond
				b.step()
				if b.count(reads) != 0 {
					t.Fatal("reads again at once")
				}
				if got := b.l.Wake(); got > b.now+time.Millisecond {
					t.Errorf("wakes in %v", got-b.now)
				}
				b.now += time.Millisecond
				b.step()
			}
			b.do(reads)
			if applied && (b.answered(id) || len(b.commits) != 1) {
				t.Fatal("decided before the image shows it")
			}
			b.run()
			if got := b.alterResult(id); got != "ok 1" {
				t.Errorf("answered %s", got)
			}
			if last := b.commits[len(b.commits)-1]; len(b.commits) != 2 || applied != (len(last.Txn.Then) == 0) {
				t.Errorf("%d transactions, the last with %d writes", len(b.commits), len(last.Txn.Then))
			}
		})
	}
}

// A failed claim guard ends the term, whether the store says so at once or a
// read after an unknown outcome does. Requests hear NOT_CONTROLLER.
func TestClaimGuardFails(t *testing.T) {
	lost := map[string]func(b *bench){
		"seat deleted":            func(b *bench) { b.hand(store.Delete(keys.Controller())) },
		"seat overwritten":        func(b *bench) { b.hand(store.PutKeepLease(keys.Controller(), []byte("x"))) },
		"epoch key overwritten":   func(b *bench) { b.hand(store.Put(keys.ControllerEpoch(), []byte("x"))) },
		"lease and all with it":   func(b *bench) { b.m.Revoke(b.l.Candidate().Lease()) },
		"epoch key deleted since": func(b *bench) { b.hand(store.Delete(keys.ControllerEpoch())) },
	}
	for name, lose := range lost {
		for _, unknown := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", unknown ", unknown), func(t *testing.T) {
				b := newBench(t, 3)
				b.created("a", 2, 16)
				id := b.ask(b.shrink("a", 0))[0]
				later := b.ask(b.shrink("a", 1))[0]
				lose(b)
				if unknown {
					b.refuse(store.ErrUnknown)
					b.do(reads)
				} else {
					b.do(commits)
				}
				if !strings.HasPrefix(b.term, "stop: epoch: claim lost") {
					t.Fatalf("term: %s", b.term)
				}
				for _, id := range []int64{id, later} {
					if got := b.alterResult(id); got != string(cluster.NotController) {
						t.Errorf("request %d: answered %s", id, got)
					}
				}
				if len(b.commits) != 1 {
					t.Errorf("%d transactions", len(b.commits))
				}
			})
		}
	}
}

// A store that takes no writes: callers hear so, nothing is written for half a
// second, the seat is kept, and all goes on once it does again.
func TestStoreTakesNoWrites(t *testing.T) {
	for _, refusal := range []error{store.ErrBusy, fmt.Errorf("%w: %w", store.ErrNoSpace, store.ErrUnknown)} {
		t.Run(refusal.Error(), func(t *testing.T) {
			b := newBench(t, 3)
			b.created("a", 2, 16)
			id := b.ask(b.shrink("a", 0))[0]
			b.refuse(refusal)
			b.held = commits
			b.run()
			if got := b.answerOf(id).Err; status.Code(got) != codes.ResourceExhausted {
				t.Errorf("answered %v", got)
			}
			if b.l.Refused() == nil || b.l.View().Healthy || len(b.l.View().Problems()) != 1 {
				t.Errorf("refused %v, healthy %v, problems %q", b.l.Refused(), b.l.View().Healthy, b.l.View().Problems())
			}
			b.hand(store.Delete(keys.Broker(3))) // the rules want something too
			id = b.ask(b.shrink("a", 1))[0]
			b.pass(storePause - time.Millisecond)
			if n := len(b.commits); n != 1 {
				t.Fatalf("%d transactions in the pause", n)
			}
			b.pass(time.Millisecond)
			if n := len(b.commits); n != 2 {
				t.Fatalf("%d transactions after the pause", n)
			}
			b.held = nothing
			b.run()
			if b.l.Refused() != nil || !b.l.View().Healthy || !b.l.Idle() {
				t.Errorf("refused %v, healthy %v, idle %v", b.l.Refused(), b.l.View().Healthy, b.l.Idle())
			}
			if b.answerOf(id); b.term != "begin 1" {
				t.Errorf("term: %s", b.term)
			}
		})
	}
	t.Run("no space for a while", func(t *testing.T) {
		b := newBench(t, 4)
		b.created("a", 16, 1)
		b.m.NoSpace = true
		b.hand(store.Delete(keys.Broker(4)))
		b.pass(10 * time.Second)
		if b.l.Refused() == nil || b.l.Image().Epoch != 1 || len(b.commits) > 25 {
			t.Errorf("refused %v, epoch %d, %d transactions in 10 s", b.l.Refused(), b.l.Image().Epoch, len(b.commits))
		}
		b.m.NoSpace = false
		b.pass(storePause)
		if !b.l.Idle() {
			t.Error("not idle")
		}
	})
	t.Run("no space, and nothing to write afterwards", func(t *testing.T) {
		b := newBench(t, 3)
		b.created("a", 1, 16)
		b.m.NoSpace = true
		b.ask(b.shrink("a", 0))
		b.pass(10 * time.Second)
		if n := len(b.commits); b.l.Refused() == nil || n > 25 {
			t.Errorf("refused %v, %d transactions in 10 s", b.l.Refused(), n)
		}
		b.m.NoSpace = false
		b.pass(storePause)
		if b.l.Refused() != nil || !b.l.View().Healthy {
			t.Errorf("refused %v although there is room again", b.l.Refused())
		}
		n := len(b.commits)
		if b.pass(10 * time.Second); len(b.commits) != n {
			t.Errorf("%d transactions without a reason", len(b.commits)-n)
		}
	})
	t.Run("a write that no store takes", func(t *testing.T) {
		b := newBench(t, 3)
		b.created("a", 1, 16)
		id := b.ask(b.shrink("a", 0))[0]
		b.refuse(store.ErrLimit)
		b.run()
		if got := b.answerOf(id).Err; status.Code(got) != codes.Internal {
			t.Errorf("answered %v", got)
		}
	})
}

// Two requests for one partition, or for one topic, are decided one after the
// other, the second from what the first has made.
func TestRequestsForTheSameThing(t *testing.T) {
	t.Run("partition", func(t *testing.T) {
		b := newBench(t, 3)
		b.created("a", 1, 16)
		p := b.l.Image().Partition(b.partition("a", 0))
		ids := b.ask(b.alter("a", 0, p, p.ISR[:2]), b.alter("a", 0, p, p.ISR[:1]), b.alter("a", 0, p, p.ISR[:2]))
		b.run()
		got := []string{b.alterResult(ids[0]), b.alterResult(ids[1]), b.alterResult(ids[2])}
		if want := []string{"ok 1", string(cluster.InvalidUpdateVersion), "ok 1"}; !slices.Equal(got, want) {
			t.Errorf("answered %q, want %q", got, want)
		}
	})
	t.Run("partition named twice by one request", func(t *testing.T) {
		b := newBench(t, 3)
		b.created("a", 1, 16)
		r := b.shrink("a", 0)
		r.Topics = append(r.Topics, r.Topics[0])
		id := b.ask(r)[0]
		b.run()
		topics := b.answerOf(id).Response.(*pb.AlterPartitionResponse).GetTopics()
		if topics[0].GetPartitions()[0].GetError() != "" || topics[1].GetPartitions()[0].GetError() != string(cluster.InvalidRequest) {
			t.Errorf("answered %v", topics)
		}
	})
	t.Run("partition that a rule changes too", func(t *testing.T) {
		b := newBench(t, 3)
		b.created("a", 1, 16)
		r := b.shrink("a", 0)
		p := b.l.Image().Partition(b.partition("a", 0))
		last := p.ISR[2]
		b.hand(store.Delete(keys.Broker(last)))
		batch, _ := b.m.ChangesSince(keys.Prefix(), b.l.Image().Rev)
		b.asked++
		b.step(Watched{batch}, Requested{b.asked, r})
		b.run()
		if got := b.alterResult(b.asked); got == "ok 1" || b.l.Image().Partition(b.partition("a", 0)).PartitionEpoch != 1 {
			t.Errorf("answered %s, partition epoch %d", got, b.l.Image().Partition(b.partition("a", 0)).PartitionEpoch)
		}
	})
	t.Run("topic", func(t *testing.T) {
		b := newBench(t, 3)
		ids := b.ask(
			create("1", newTopic("a.b", 1, 16)), create("2", newTopic("a.b", 1, 16)), create("3", newTopic("a_b", 1, 16)),
			create("4", newTopic("c", 1, 16), newTopic("c", 1, 16), newTopic("d", 1, 16)),
		)
		b.run()
		var got []string
		for _, id := range ids {
			got = append(got, b.topicResult(id))
		}
		if want := []string{"ok", "TOPIC_ALREADY_EXISTS", "INVALID_TOPIC_EXCEPTION", "INVALID_REQUEST INVALID_REQUEST ok"}; !slices.Equal(got, want) {
			t.Errorf("answered %q, want %q", got, want)
		}
	})
}

// What arrives while a plan is in flight is decided together: 64 changes of 64
// blocks are one transaction.
func TestGroupCommit(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 128, 1)
	b.ask(b.shrink("a", 100))
	var ids []int64
	for i := range int32(64) {
		ids = append(ids, b.ask(b.shrink("a", i))...)
	}
	b.run()
	if n := len(b.commits); n != 2 {
		t.Errorf("%d transactions for 1 + 64 requests", n)
	}
	if n := len(b.commits[1].Txn.Then); n != 64 {
		t.Errorf("%d writes in the second", n)
	}
	for _, id := range ids {
		if got := b.alterResult(id); got != "ok 1" {
			t.Errorf("request %d: answered %s", id, got)
		}
	}
}

// One plan decides so many requests at most; none is left behind.
func TestManyRequests(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 1, 16)
	r := b.shrink("a", 0)
	r.Topics[0].Partitions[0].Partition = 99
	var last int64
	for range 3 * maxRequests {
		last = b.ask(r)[0]
	}
	b.run()
	if n := len(b.commits); n != 4 {
		t.Errorf("%d transactions for 1, 1024, 1024 and 1023 requests", n)
	}
	for id := int64(2); id <= last; id++ {
		if got := b.alterResult(id); got != string(cluster.UnknownTopicOrPartition) {
			t.Fatalf("request %d: answered %s", id, got)
		}
	}
}

// A big topic needs many transactions. Its record, which makes it visible, is
// in the last one, when all blocks are committed.
func TestBigTopic(t *testing.T) {
	for _, c := range []struct{ partitions, blockSize int32 }{{10_000, 16}, {3_000, 1}, {60_000, 1024}} {
		t.Run(fmt.Sprint(c.partitions, " in blocks of ", c.blockSize), func(t *testing.T) {
			b := newBench(t, 5)
			b.held = commits
			id := b.ask(create("r", newTopic("a", c.partitions, c.blockSize)))[0]
			for record := keys.Topic("a"); ; {
				last := slices.ContainsFunc(b.commits, func(a Commit) bool { return writes(a, record) })
				if n := b.count(commits); n == 0 {
					break
				} else if n > inFlight || last && n != 1 {
					t.Fatalf("%d transactions in flight, the record among them: %v", n, last)
				}
				b.do(commits)
				if last && b.answered(id) {
					t.Fatal("answered before the image shows it")
				}
				b.run()
				if last {
					break
				}
				if len(b.l.Image().Topics) != 0 {
					t.Fatal("visible before its record stands")
				}
			}
			if got := b.topicResult(id); got != "ok" {
				t.Fatalf("answered %s", got)
			}
			known := int32(0)
			b.l.Image().Partitions(b.l.Image().Topics["a"], func(_ cluster.PartitionID, p *cluster.Partition) {
				if p != nil && p.Leader != cluster.NoLeader && len(p.Replicas) == 3 {
					known++
				}
			})
			if known != c.partitions {
				t.Errorf("%d partitions, want %d", known, c.partitions)
			}
		})
	}
}

func writes(c Commit, key string) bool {
	return slices.ContainsFunc(c.Txn.Then, func(op store.Op) bool { return op.Key == key })
}

// If a block could not be written, neither is the record.
func TestBigTopicFails(t *testing.T) {
	for _, n := range []int{0, 7} {
		b := newBench(t, 5)
		b.held = commits
		id := b.ask(create("r", newTopic("a", 3000, 1)))[0]
		for range n {
			b.do(commits)
		}
		b.refuse(store.ErrBusy)
		b.held = nothing
		b.run()
		if got := b.answerOf(id).Err; status.Code(got) != codes.ResourceExhausted {
			t.Errorf("answered %v", got)
		}
		if slices.ContainsFunc(b.commits, func(c Commit) bool { return writes(c, keys.Topic("a")) }) || len(b.l.Image().Topics) != 0 {
			t.Error("the record was written")
		}
		id = b.ask(create("r", newTopic("a", 3000, 1)))[0]
		b.pass(storePause)
		if got := b.topicResult(id); got != "ok" {
			t.Errorf("the second attempt is answered %s", got)
		}
	}
}

// A retry of a creation gets the first answer, whatever has become of the
// reply. A creation without an id is known as its own as long as it is not
// answered.
func TestCreateIsIdempotent(t *testing.T) {
	b := newBench(t, 3)
	first := b.ask(create("r", newTopic("a", 5, 16)))[0]
	b.run()
	again := b.ask(create("r", newTopic("a", 5, 16)), create("s", newTopic("a", 5, 16)), create("", newTopic("a", 5, 16)))
	b.run()
	if got := b.topicResult(again[0]); got != "ok" {
		t.Errorf("the retry is answered %s", got)
	}
	one, two := b.answerOf(first).Response.(*pb.CreateTopicsResponse), b.answerOf(again[0]).Response.(*pb.CreateTopicsResponse)
	if string(one.GetResults()[0].GetTopicId()) != string(two.GetResults()[0].GetTopicId()) || two.GetResults()[0].GetPartitions() != 5 {
		t.Errorf("first %v, then %v", one, two)
	}
	for _, id := range again[1:] {
		if got := b.topicResult(id); got != string(cluster.TopicAlreadyExists) {
			t.Errorf("another request is answered %s", got)
		}
	}
	for _, requestID := range []string{"t", ""} {
		name := "lost" + requestID
		id := b.ask(create(requestID, newTopic(name, 1, 16)))[0]
		b.lose()
		b.run()
		if got := b.topicResult(id); got != "ok" {
			t.Errorf("lost reply, request id %q: answered %s", requestID, got)
		}
	}
}

// An answer without a write is given only after a transaction that carries the
// guard alone; all that wait share one.
func TestAnswerWithoutAWriteIsProved(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 2, 16)
	p := b.l.Image().Partition(b.partition("a", 0))
	same := b.alter("a", 0, p, p.ISR)
	b.ask(b.shrink("a", 1)) // in flight meanwhile
	ids := b.ask(same, create("", newTopic("a", 1, 16)), same)
	b.do(commits)
	b.see()
	proof := b.commits[len(b.commits)-1]
	if len(b.commits) != 2 || len(proof.Txn.Then) != 0 || len(proof.Txn.If) != 2 {
		t.Fatalf("transactions %+v", b.commits)
	}
	for _, id := range ids {
		if b.answered(id) {
			t.Fatal("answered without a proof")
		}
	}
	b.do(commits)
	if got := []string{b.alterResult(ids[0]), b.topicResult(ids[1]), b.alterResult(ids[2])}; !slices.Equal(got, []string{"ok 0", "TOPIC_ALREADY_EXISTS", "ok 0"}) {
		t.Errorf("answered %q", got)
	}
	t.Run("the claim is gone", func(t *testing.T) {
		id := b.ask(same)[0]
		b.hand(store.Delete(keys.Controller()))
		b.do(commits)
		if got := b.alterResult(id); got != string(cluster.NotController) {
			t.Errorf("answered %s", got)
		}
	})
	t.Run("the outcome is unknown", func(t *testing.T) {
		b := newBench(t, 3)
		b.created("a", 1, 16)
		id := b.ask(same)[0]
		b.refuse(store.ErrUnknown)
		b.do(reads)
		if b.answered(id) {
			t.Fatal("answered without a proof")
		}
		b.run()
		if !b.answered(id) || len(b.commits) != 2 {
			t.Errorf("answered %v, %d transactions", b.answered(id), len(b.commits))
		}
	})
}

// A broker that leads and follows thousands of partitions is gone: the plan is
// cut into transactions within the store's limits, at most 16 in flight.
func TestBrokerLossOfManyPartitions(t *testing.T) {
	for _, blockSize := range []int32{1, 16, 1024} {
		t.Run(fmt.Sprint("blocks of ", blockSize), func(t *testing.T) {
			b := newBench(t, 5)
			for i := range 4 {
				b.created(fmt.Sprint("t", i), 2500, blockSize)
			}
			b.hand(store.Delete(keys.Broker(3)))
			b.held = commits
			b.run()
			most, total := 0, 0
			for b.count(commits) > 0 {
				most = max(most, b.count(commits))
				b.do(commits)
				b.run()
			}
			for _, c := range b.commits {
				total += len(c.Txn.Then)
				if n := c.Txn.Size(); n > store.MaxTxnBytes || len(c.Txn.Then) > store.MaxOps || len(c.Txn.If) > store.MaxConds {
					t.Errorf("a transaction of %d bytes, %d writes, %d conditions", n, len(c.Txn.Then), len(c.Txn.If))
				}
			}
			if most > inFlight || blockSize == 1 && most != inFlight {
				t.Errorf("%d transactions in flight", most)
			}
			if !b.l.Idle() || b.l.Sweep() != 0 {
				t.Error("not idle, or the agenda is not what a sweep finds")
			}
			for i := range 4 {
				topic := b.l.Image().Topics[fmt.Sprint("t", i)]
				b.l.Image().Partitions(topic, func(id cluster.PartitionID, p *cluster.Partition) {
					if p.Leader == 3 || slices.Contains(p.ISR, 3) {
						t.Fatalf("partition %v: leader %d, isr %v", id, p.Leader, p.ISR)
					}
				})
			}
		})
	}
}

// A guard that fails although the image is as new shows that the watch has
// missed a change: it is read, and what was wanted is not tried before.
func TestMissedChangeIsRead(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 2, 16)
	b.edit("a", 1, func(p *cluster.Partition) { p.PartitionEpoch++ })
	b.miss()
	id := b.ask(b.shrink("a", 0))[0]
	b.do(commits)
	fetch := func(a Action) bool { _, ok := a.(Fetch); return ok }
	if b.count(fetch) != 1 || b.count(commits) != 0 || b.answered(id) {
		t.Fatalf("%d reads, %d transactions, answered %v", b.count(fetch), b.count(commits), b.answered(id))
	}
	b.run()
	b.pass(storePause)
	if got := b.alterResult(id); got != "ok 1" || b.l.Stats.Healed != 1 || b.l.Stats.GuardFailed != 1 {
		t.Errorf("answered %s, stats %+v", got, b.l.Stats)
	}
}
