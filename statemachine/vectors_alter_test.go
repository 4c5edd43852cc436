package statemachine

import (
	"strconv"
	"strings"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// alterInput is the input of an alterPartition vector: a base and what is
// changed in it, or a rule with a state of its own.
type alterInput struct {
	Base   string
	Change struct {
		BrokerEpoch, LeaderEpoch, PartitionEpoch string // "+1", "-1"
		BrokerID                                 *cluster.BrokerID
		TopicID, ISR                             string
		Partition                                *int32
		Recovery                                 *int32
	}
}

// playAlter returns the reason of the rejection, of the whole request or of
// the entry, or "" for success.
func playAlter(t *testing.T, v vector) (got, want string) {
	type expected struct {
		TopLevel  string
		Partition *string
	}
	if v.Name == "alterPartition is idempotent" {
		return playIdempotence(t)
	}
	x := read[expected](t, v.Expected)
	if want = x.TopLevel; want == "NONE" {
		want = ""
	}
	if x.Partition != nil && want == "" { // else the whole request is answered with the error
		want, _, _ = strings.Cut(*x.Partition, " ")
		want = strings.TrimRight(want, ",:")
	}
	switch want {
	case "accepted", "success":
		want = ""
	case "top-level":
		want = "UNKNOWN_SERVER_ERROR"
	}
	if in := read[alterInput](t, v.Input); in.Base != "" {
		return playAlterBase(t, in), want
	}
	return playAlterRule(t, v), want
}

func playAlterBase(t *testing.T, in alterInput) string {
	w := newWorld(t)
	w.up(1, 2)
	p := cluster.Partition{
		Replicas: ids(1, 2), Leader: 1, ISR: ids(1, 2), LeaderEpoch: 3, PartitionEpoch: 5,
		Recovery: pb.RecoveryState_RECOVERY_STATE_RECOVERED, Decided: w.im.Rev,
	}
	if strings.Contains(in.Base, "RECOVERING") {
		p.ISR, p.Recovery = ids(1), pb.RecoveryState_RECOVERY_STATE_RECOVERING
	}
	topic := w.topic("t", p)
	e := w.entry(&p, 1, 2)
	sender, epoch := cluster.BrokerID(1), w.im.Brokers[1].Epoch
	epoch += cluster.BrokerEpoch(delta(t, in.Change.BrokerEpoch))
	e.LeaderEpoch += delta(t, in.Change.LeaderEpoch)
	e.PartitionEpoch += delta(t, in.Change.PartitionEpoch)
	if in.Change.BrokerID != nil {
		sender = *in.Change.BrokerID
	}
	if in.Change.TopicID != "" {
		topic = topicID("another")
	}
	if in.Change.Partition != nil {
		e.Partition = *in.Change.Partition
	}
	if in.Change.ISR == "[controller]" {
		e.NewIsr = e.NewIsr[:1]
	}
	if in.Change.Recovery != nil {
		e.Recovery = pb.RecoveryState(*in.Change.Recovery + 1) // Kafka counts from 0
	}
	if rej := CheckSender(w.im, sender, epoch); rej != nil {
		return reason(rej)
	}
	x, rej := w.m.Alter(w.term, sender, epoch, cluster.PartitionID{Topic: topic, Index: e.Partition}, e)
	if (x == nil) == (rej == nil) {
		t.Errorf("write %v, rejection %v", x, rej)
	}
	return reason(rej)
}

func delta(t *testing.T, s string) int32 {
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}

// playIdempotence sends the same shrink three times.
func playIdempotence(t *testing.T) (got, want string) {
	w := newWorld(t)
	w.up(1, 2)
	topic := w.topic("t", newPartition(ids(1, 2), ViewOf(w.im)))
	e := w.entry(w.partition(topic), 1)
	for _, pe := range []int32{0, 0, 1} {
		e.PartitionEpoch = pe
		got += reason(w.alter(topic, 1, e)) + state(w.partition(topic)) + "\n"
	}
	return got, strings.Repeat("leader 1 isr [1] le 0 pe 1\n", 3)
}

func playAlterRule(t *testing.T, v vector) string {
	w := newWorld(t)
	w.up(1, 2, 3)
	p := newPartition(ids(1, 2, 3), ViewOf(w.im))
	p.LeaderEpoch, p.PartitionEpoch = 3, 5
	topic := w.topic("t", p)
	send := func(isr ...cluster.BrokerID) string {
		before := state(w.partition(topic))
		rej := w.alter(topic, 1, w.entry(&p, isr...))
		if after := state(w.partition(topic)); rej != nil && after != before {
			t.Errorf("rejected, but %s became %s", before, after)
		}
		return reason(rej)
	}
	_, rule, _ := strings.Cut(v.Name, "alterPartition ")
	switch {
	case strings.HasSuffix(rule, ": ISR contains a down broker"):
		w.down(3)
		w.settle()
		p = *w.partition(topic)
		return send(1, 2, 3)
	case rule == "v2 still works after controller downgraded below topic-id protocol":
		return send(1, 2)
	case rule == "rule: same members, other order, stale partition epoch":
		p.PartitionEpoch--
		return send(2, 1, 3)
	case rule == "rule: same list, stale partition epoch":
		p.PartitionEpoch--
		got := send(1, 2, 3)
		if pe := w.partition(topic).PartitionEpoch; pe != p.PartitionEpoch+1 {
			t.Errorf("partition epoch is now %d: something was written", pe)
		}
		return got
	case rule == "rule: ISR contains a broker in controlled shutdown":
		w.drain(2)
		return send(1, 2)
	case rule == "rule: ISR shrink that keeps a dead broker":
		w.down(3)
		return send(1, 3)
	case rule == "rule: RECOVERING -> RECOVERED with ISR [leader]":
		p.ISR, p.Recovery = ids(1), pb.RecoveryState_RECOVERY_STATE_RECOVERING
		topic = w.topic("u", p)
		got := send(1)
		if s := state(w.partition(topic)); s != "leader 1 isr [1] le 3 pe 6" {
			t.Errorf("became %s", s)
		}
		return got
	case rule == "rule: CAS lost": // judged again, on the image that beat it
		if rej := send(1, 2); rej != "" {
			t.Errorf("the other request: %s", rej)
		}
		return send(1, 3)
	case rule == "rule: controller epoch guard lost":
		return send(1, 2)
	}
	t.Fatalf("nobody plays rule %q", rule)
	return ""
}
