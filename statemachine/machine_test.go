package statemachine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// randomPartition is a record that may stand in an image at the given
// revision, with replicas out of brokers 0 to 5.
func randomPartition(rng *rand.Rand, rev store.Rev) cluster.Partition {
	var replicas []cluster.BrokerID
	for _, id := range rng.Perm(6)[:1+rng.IntN(4)] {
		replicas = append(replicas, cluster.BrokerID(id))
	}
	p := newPartition(replicas, View{Rev: store.Rev(rng.Int64N(int64(rev) + 1))})
	p.ISR = slices.Clone(replicas[:1+rng.IntN(len(replicas))])
	p.LeaderEpoch, p.PartitionEpoch = cluster.LeaderEpoch(rng.IntN(3)), cluster.PartitionEpoch(rng.IntN(3))
	if rng.IntN(4) > 0 {
		p.Leader = p.ISR[rng.IntN(len(p.ISR))]
	}
	rng.Shuffle(len(p.ISR), func(i, j int) { p.ISR[i], p.ISR[j] = p.ISR[j], p.ISR[i] })
	return p
}

// randomView has each of brokers 0 to 5 dead, draining or running, since a
// revision up to rev.
func randomView(rng *rand.Rand, rev store.Rev) View {
	v := View{Brokers: map[cluster.BrokerID]*cluster.Broker{}, Rev: rev}
	for id := range cluster.BrokerID(6) {
		if state := pb.BrokerState(rng.IntN(3)); state != pb.BrokerState_BROKER_STATE_UNSPECIFIED {
			epoch := cluster.BrokerEpoch(1 + rng.Int64N(int64(rev)))
			lost := rng.IntN(8) == 0
			v.Brokers[id] = &cluster.Broker{ID: id, Epoch: epoch, Record: &pb.BrokerRecord{State: state, Unreachable: lost}}
		}
	}
	return v
}

// TestNext holds what must be true of every decision, on random records and
// brokers.
func TestNext(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	changes, without := 0, 0
	for range 100_000 {
		v := randomView(rng, 100)
		p := randomPartition(rng, 100)
		before := p.Clone()
		next, changed := Next(&p, v)
		if !reflect.DeepEqual(p.Clone(), before) {
			t.Fatalf("the record was changed in place: %+v", before)
		}
		now := &p
		if changed {
			changes++
			now = &next
			if err := CheckEdge(&p, &next); err != nil {
				t.Fatalf("%s became %s: %v", state(&p), state(&next), err)
			}
			if again, changed := Next(&next, v); changed {
				t.Fatalf("%s became %s, then %s", state(&p), state(&next), state(&again))
			}
		}
		if now.Leader == cluster.NoLeader {
			without++
			if i := slices.IndexFunc(now.ISR, v.Online); i >= 0 {
				t.Fatalf("%s became %s, though %d could lead", state(&p), state(now), now.ISR[i])
			}
			if !slices.Equal(now.ISR, p.ISR) {
				t.Fatalf("%s became %s: nobody leads, but the ISR changed", state(&p), state(now))
			}
			continue
		}
		for _, id := range now.ISR {
			if !v.steady(now, id) {
				t.Fatalf("%s became %s, though %d was away", state(&p), state(now), id)
			}
		}
		if now.Leader != p.Leader && !v.Online(now.Leader) {
			t.Fatalf("%s became %s, whose leader is not online", state(&p), state(now))
		}
		fit := slices.IndexFunc(now.ISR, v.Online)
		unfit := slices.IndexFunc(now.ISR, v.draining)
		if v.Online(now.Leader) && unfit >= 0 {
			t.Fatalf("%s became %s, though %d is draining", state(&p), state(now), now.ISR[unfit])
		}
		if !v.Online(now.Leader) && fit >= 0 {
			t.Fatalf("%s became %s, though %d could lead", state(&p), state(now), now.ISR[fit])
		}
	}
	if changes < 10_000 || without < 1_000 {
		t.Errorf("%d changes, %d partitions without a leader: too few to prove anything", changes, without)
	}
}

// TestNextRestartIsDownThenUp: that a broker was away may be seen in one step
// or in two; who leads and who is in the ISR must not depend on it.
func TestNextRestartIsDownThenUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 0))
	restarts := 0
	for range 100_000 {
		v := randomView(rng, 100)
		p := randomPartition(rng, 100)
		down := View{Brokers: map[cluster.BrokerID]*cluster.Broker{}, Rev: 100}
		up := View{Brokers: map[cluster.BrokerID]*cluster.Broker{}, Rev: 200}
		for id, b := range v.Brokers {
			if v.steady(&p, id) {
				down.Brokers[id], up.Brokers[id] = b, b
				continue
			}
			later := *b
			later.Epoch = 150
			up.Brokers[id] = &later
			restarts++
		}
		if len(down.Brokers) == len(v.Brokers) {
			continue
		}
		one, two := p, p
		if next, changed := Next(&p, v); changed {
			one = next
		}
		for _, step := range []View{down, up} {
			if next, changed := Next(&two, step); changed {
				two = next
			}
		}
		if one.Leader != two.Leader || !slices.Equal(one.ISR, two.ISR) || one.LeaderEpoch > two.LeaderEpoch {
			t.Fatalf("%s: in one step %s, in two %s", state(&p), state(&one), state(&two))
		}
	}
	if restarts < 10_000 {
		t.Errorf("only %d restarts", restarts)
	}
}

// TestHistory plays random histories: the agenda that is kept by events is the
// one of the whole image, all writes are legal, and one step settles all.
func TestHistory(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			w := newWorld(t)
			w.up(0, 1, 2)
			topics := 0
			for range 60 {
				randomEvent(rng, w, &topics)
				w.checkAgenda()
				if rng.IntN(3) == 0 {
					w.write(stepTwice(t, w, rng.IntN(6)))
				}
			}
			w.settle()
		})
	}
}

// stepTwice checks that a step changes nothing, obeys its limit and is in
// order.
func stepTwice(t *testing.T, w *world, limit int) []Write {
	writes, again := w.m.Step(w.term, limit, 1<<30), w.m.Step(w.term, limit, 1<<30)
	if !reflect.DeepEqual(writes, again) {
		t.Fatalf("a step is not repeatable: %v, then %v", writes, again)
	}
	if want := min(limit, w.m.Agenda()); len(writes) != want {
		t.Fatalf("%d writes, want %d", len(writes), want)
	}
	if !slices.IsSortedFunc(writes, func(a, b Write) int { return a.ID.Compare(b.ID) }) {
		t.Fatalf("writes out of order: %v", writes)
	}
	return writes
}

func randomEvent(rng *rand.Rand, w *world, topics *int) {
	id := cluster.BrokerID(rng.IntN(6))
	live := w.im.Brokers[id] != nil
	switch k := rng.IntN(10); {
	case k < 3 && live:
		w.down(id)
	case k < 3:
		w.up(id)
	case k < 5 && live && rng.IntN(2) == 0:
		w.del(w.im.Keys.Broker(id))
		w.broker(id, "", pb.BrokerState_BROKER_STATE_RUNNING)
		w.relist()
	case k < 5 && live:
		w.restart(id)
	case k < 6 && live && w.im.Brokers[id].Draining():
		w.up(id)
	case k < 6 && live && rng.IntN(2) == 0:
		w.show(w.mark(id, !w.im.Brokers[id].Unreachable()))
	case k < 6 && live:
		w.drain(id)
	case k < 7 && *topics < 5:
		var parts []cluster.Partition
		for range 1 + rng.IntN(5) {
			parts = append(parts, randomPartition(rng, w.im.Rev))
		}
		w.topic(fmt.Sprint("topic-", rng.IntN(100)), parts...)
		*topics++
	default:
		randomAlter(rng, w)
	}
}

// randomAlter sends a plausible request of some leader.
func randomAlter(rng *rand.Rand, w *world) {
	for _, topic := range w.im.SortedTopics() {
		p := w.im.Partition(cluster.PartitionID{Topic: topic.ID})
		if p == nil || p.Leader == cluster.NoLeader || rng.IntN(2) == 0 {
			continue
		}
		isr := slices.Clone(p.Replicas)
		isr = slices.DeleteFunc(isr, func(id cluster.BrokerID) bool { return id != p.Leader && rng.IntN(3) == 0 })
		w.alter(topic.ID, p.Leader, w.entry(p, isr...))
	}
}

func TestResetFindsWhatWasMissed(t *testing.T) {
	w := newWorld(t)
	w.up(1, 2)
	w.topic("t", newPartition(ids(1, 2), ViewOf(w.im)), newPartition(ids(2, 1), ViewOf(w.im)), newPartition(ids(2), ViewOf(w.im)))
	broker := w.del(w.im.Keys.Broker(1))
	w.im.Apply(store.Batch{Rev: w.rev, Changes: []store.Change{broker}}) // not observed
	if n := w.m.Reset(); n != 2 || w.m.Agenda() != 2 {
		t.Errorf("%d differences, %d to do; want 2 and 2", n, w.m.Agenda())
	}
	topic := w.del(w.im.Keys.Topic("t"))
	w.im.Apply(store.Batch{Rev: w.rev, Changes: []store.Change{topic}})
	if n := w.m.Reset(); n != 2 || w.m.Agenda() != 0 {
		t.Errorf("%d differences, %d to do; want 2 and 0", n, w.m.Agenda())
	}
}

// TestAgendaOfStandby: on a standby topics come and go, and nobody steps.
func TestAgendaOfStandby(t *testing.T) {
	var a agenda
	a.set(cluster.PartitionID{Topic: cluster.TopicID{15: 1}, Index: 500}, true)
	for i := range 10_000 {
		id := cluster.PartitionID{Topic: cluster.TopicID{byte(i), byte(i >> 8)}, Index: int32(i)}
		a.set(id, true)
		a.set(id, false)
	}
	if n := len(a.topics); n > 66 || n != len(a.order) || a.count != 1 {
		t.Errorf("%d topics, %d in order, for %d members", n, len(a.order), a.count)
	}
}

// TestAgenda plays random changes of a set.
func TestAgenda(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 0))
	var a agenda
	members := map[cluster.PartitionID]bool{}
	for n := range 5000 {
		id := cluster.PartitionID{Topic: cluster.TopicID{byte(rng.IntN(8))}, Index: int32(rng.IntN(200))}
		due := rng.IntN(5) < n/1000 // it fills
		a.set(id, due)
		if members[id] = due; !due {
			delete(members, id)
		}
		limit := rng.IntN(30)
		want := slices.SortedFunc(maps.Keys(members), cluster.PartitionID.Compare)
		want = want[:min(limit, len(want))]
		if got := a.first(limit); !slices.Equal(got, want) || a.count != len(members) || a.has(id) != due {
			t.Fatalf("after %d changes the first %d are %v, want %v; %d members, want %d", n, limit, got, want, a.count, len(members))
		}
	}
}

// TestReviewInSlices: however small the slices, and whatever happens between
// them, the agenda is that of the whole image in the end.
func TestReviewInSlices(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 4))
		w := newWorld(t)
		w.slice = 1 + rng.IntN(3)
		w.up(0, 1, 2)
		topics := 0
		for range 60 {
			randomEvent(rng, w, &topics)
			if rng.IntN(3) == 0 {
				w.write(w.m.Step(w.term, rng.IntN(6), 1<<30))
			}
			if rng.IntN(10) == 0 {
				w.m.BeginCheck()
			}
			if wrong := w.m.Check(w.slice); wrong != 0 {
				t.Fatalf("seed %d: the check put %d right", seed, wrong)
			}
		}
		for w.m.Reviewing() {
			w.m.Continue(w.slice)
		}
		w.checkAgenda()
		for w.m.Checking() {
			if wrong := w.m.Check(w.slice); wrong != 0 {
				t.Fatalf("seed %d: the check put %d right", seed, wrong)
			}
		}
	}
}

// TestUnreadableBlock: what cannot be read is left alone, and taken up again
// when it is repaired.
func TestUnreadableBlock(t *testing.T) {
	w := newWorld(t)
	w.up(1, 2)
	part := newPartition(ids(1, 2), ViewOf(w.im))
	topic := w.topic("t", part, part, part)
	good := w.kvs[w.im.Keys.Block(cluster.BlockID{Topic: topic})].Value
	w.show(w.put(w.im.Keys.Block(cluster.BlockID{Topic: topic}), []byte("garbage")))
	w.down(1)
	if writes := w.settle(); len(writes) != 1 || writes[0].ID.Index != 2 {
		t.Errorf("writes %v, want one for partition 2", writes)
	}
	w.show(w.put(w.im.Keys.Block(cluster.BlockID{Topic: topic}), good))
	if writes := w.settle(); len(writes) != 2 {
		t.Errorf("after the repair: writes %v, want two", writes)
	}
}

// lossWorld is 100,000 partitions with 3 replicas on 5 brokers.
func lossWorld(b *testing.B) *world {
	w := newWorld(b)
	w.up(0, 1, 2, 3, 4)
	for n := range 10 {
		nt := &pb.NewTopic{Name: fmt.Sprint("topic-", n), Partitions: 10_000, ReplicationFactor: 3}
		record, writes, rej := createTopic(w.im, w.term, nt, topicID(nt.Name), "", uint64(n))
		if rej != nil {
			b.Fatal(rej)
		}
		w.made(nt.Name, record, writes)
	}
	return w
}

// BenchmarkBrokerLoss is one of 5 brokers lost and the whole plan made, in
// steps of 2,048; the image does not change between the steps.
func BenchmarkBrokerLoss(b *testing.B) {
	w := lossWorld(b)
	broker := w.del(w.im.Keys.Broker(0))
	down := w.im.Apply(store.Batch{Rev: w.rev, Changes: []store.Change{broker}})
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		m := &Machine{im: w.im}
		b.StartTimer()
		m.Observe(down)
		m.Continue(1 << 30)
		for m.Agenda() > 0 {
			writes := m.Step(w.term, 2048, 1<<30)
			for i := range writes {
				m.due.set(writes[i].ID, false)
			}
		}
	}
}

// BenchmarkReset is the full sweep of 100,000 partitions with nothing to do.
func BenchmarkReset(b *testing.B) {
	w := lossWorld(b)
	b.ReportAllocs()
	for b.Loop() {
		w.m.Reset()
	}
}
