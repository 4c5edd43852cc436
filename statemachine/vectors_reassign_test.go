package statemachine

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

type assignmentVector struct {
	Replicas, Adding, Removing, Origin, Target []cluster.BrokerID
	Reassigning                                *bool
}

func (x assignmentVector) String() string {
	return fmt.Sprintf("%v adding %v removing %v origin %v target %v: %v", x.Replicas, x.Adding, x.Removing, x.Origin, x.Target, *x.Reassigning)
}

func viewOf(a Assignment) string {
	active := a.Active()
	return assignmentVector{a.Replicas, a.Adding, a.Removing, a.Origin(), a.Target(), &active}.String()
}

func playReassignTo(t *testing.T, v vector) (got, want string) {
	in := read[struct {
		Current Assignment
		Target  []cluster.BrokerID
	}](t, v.Input)
	return viewOf(in.Current.ReassignTo(in.Target)), read[assignmentVector](t, v.Expected).String()
}

func playAssignmentView(t *testing.T, v vector) (got, want string) {
	return viewOf(read[Assignment](t, v.Input)), read[assignmentVector](t, v.Expected).String()
}

// playReassignComplete begins from a partition that is on its way to the target.
func playReassignComplete(t *testing.T, v vector) (got, want string) {
	in := read[struct {
		Target, ISR []cluster.BrokerID
		Reassigning bool
	}](t, v.Input)
	x := read[struct{ Complete bool }](t, v.Expected)
	a := Assignment{Replicas: union(in.Target, in.ISR)}
	if a.Removing = without(a.Replicas, in.Target); !in.Reassigning {
		return fmt.Sprint(!a.Active() || a.CompleteWith(in.ISR)), fmt.Sprint(x.Complete)
	}
	return fmt.Sprint(a.CompleteWith(in.ISR)), fmt.Sprint(x.Complete)
}

// playReassignWalk takes the steps that are ours: begin, the leader's expansion,
// the end. The leader epoch is a bound: above the one before, at most Kafka's.
func playReassignWalk(t *testing.T, v vector) (got, want string) {
	in := read[struct{ Origin, Target []cluster.BrokerID }](t, v.Input)
	type step struct {
		Replicas, Adding, Removing, ISR []cluster.BrokerID
		Leader                          cluster.BrokerID
		LeaderEpoch                     cluster.LeaderEpoch
	}
	steps := read[[]step](t, v.Expected)
	w := newWorld(t)
	w.up(union(in.Origin, in.Target)...)
	topic := w.topic("t", newPartition(in.Origin, ViewOf(w.im)))
	id := cluster.PartitionID{Topic: topic}
	line := func(s step) string {
		return fmt.Sprintf("%v adding %v removing %v leader %d isr %v; ", s.Replicas, s.Adding, s.Removing, s.Leader, s.ISR)
	}
	last := cluster.LeaderEpoch(-1)
	note := func(of step) {
		p := w.im.Partition(id)
		got += line(step{p.Replicas, p.Adding, AssignmentOf(p).Removing, p.ISR, p.Leader, 0})
		want += line(of)
		if p.LeaderEpoch < last || p.LeaderEpoch > of.LeaderEpoch {
			got += fmt.Sprintf("leader epoch %d after %d, Kafka has %d; ", p.LeaderEpoch, last, of.LeaderEpoch)
		}
		last = p.LeaderEpoch
	}
	note(steps[0])
	wr, _, rej := w.m.Reassign(w.term, id, Move{Target: in.Target}, true)
	if rej != nil {
		return rej.line(), ""
	}
	w.write([]Write{*wr})
	note(steps[1])
	if rej := w.alter(topic, in.Origin[0], w.entry(w.im.Partition(id), steps[2].ISR...)); rej != nil {
		return rej.line(), ""
	}
	note(steps[2])
	w.settle()
	note(steps[len(steps)-1])
	return got, want
}

func playReassignValidation(t *testing.T, v vector) (got, want string) {
	in := read[struct {
		Topic                       string
		Current, Live, ShuttingDown []cluster.BrokerID
		QueuedForDeletion           bool
	}](t, v.Input)
	x := read[struct{ Error *string }](t, v.Expected)
	w := newWorld(t)
	current, live := in.Current, in.Live
	if current == nil {
		current = ids(1, 2)
	}
	if live == nil {
		live = ids(1, 2, 3)
	}
	w.up(union(live, current)...)
	topic := w.topic("t", newPartition(current, ViewOf(w.im)))
	w.down(without(current, live)...)
	w.drain(in.ShuttingDown...)
	w.settle()
	var mv Move
	switch {
	case in.Topic != "":
		topic, mv.Target = topicID(in.Topic), ids(1)
	case in.QueuedForDeletion:
		mv.Target = ids(1)
		w.show(w.put(w.im.Keys.Topic("t"), cluster.Encode(MarkDeleting(w.im.Topics["t"], ""))))
	case bytes.Contains(v.Input, []byte(`"replicas": null`)), bytes.Contains(v.Input, []byte(`"replicas":null`)):
		mv.Cancel = true
	case bytes.Contains(v.Input, []byte("one too many")):
		mv.Target = ids(1, 2, 3, 4)
	default:
		mv.Target = read[struct{ Replicas []cluster.BrokerID }](t, v.Input).Replicas
	}
	if x.Error != nil {
		want = *x.Error
	}
	_, _, rej := w.m.Reassign(w.term, cluster.PartitionID{Topic: topic}, mv, true)
	if rej != nil {
		got = string(rej.Reason)
	}
	return got, want
}

// playTransition looks an edge up in the table of partitions or of replicas.
func playTransition(t *testing.T, v vector) (got, want string) {
	in := read[struct{ From, To string }](t, v.Input)
	x := read[struct{ Valid bool }](t, v.Expected)
	after := func(valid bool) string {
		if valid {
			return "to " + in.To
		}
		return "stays " + in.From
	}
	want = after(x.Valid)
	var names []string
	var table func(i, j int) bool
	suffix := "Partition"
	if v.Kind == "replica.transition" {
		suffix = "Replica"
		for s := range replicaStates {
			names = append(names, s.String())
		}
		table = func(i, j int) bool { return replicaEdges[i][j] }
	} else {
		for s := range partitionStates {
			names = append(names, s.String())
		}
		table = func(i, j int) bool { return partitionEdges[i][j] }
	}
	from, to := slices.Index(names, strings.TrimSuffix(in.From, suffix)), slices.Index(names, strings.TrimSuffix(in.To, suffix))
	if from < 0 || to < 0 {
		return "no such state", want
	}
	return after(table(from, to)), want
}

func playBalanceThreshold(t *testing.T, v vector) (got, want string) {
	in := read[struct {
		PartitionsPreferredOnBroker, NotLedByPreferred int32
		Percentage                                     int
	}](t, v.Input)
	x := read[struct{ Triggers bool }](t, v.Expected)
	return fmt.Sprint(exceeds(cluster.Load{Preferred: in.PartitionsPreferredOnBroker, Imbalanced: in.NotLedByPreferred}, in.Percentage)), fmt.Sprint(x.Triggers)
}

func playImbalancePredicate(t *testing.T, v vector) (got, want string) {
	in := read[struct {
		Assignment Assignment
		Leader     cluster.BrokerID
		ISR        []cluster.BrokerID
	}](t, v.Input)
	x := read[struct{ HasPreferredLeader bool }](t, v.Expected)
	p := cluster.Partition{Replicas: in.Assignment.Replicas, Adding: in.Assignment.Adding, Removing: in.Assignment.Removing, Leader: in.Leader, ISR: in.ISR}
	return fmt.Sprint(p.LedByPreferred()), fmt.Sprint(x.HasPreferredLeader)
}

// playAddPartitions compares the replicas that the reference code gives, or that
// are given.
func playAddPartitions(t *testing.T, v vector) (got, want string) {
	in := read[struct {
		Brokers, Partition0         []cluster.BrokerID
		Existing, Total, IncreaseTo int32
		TopicRF                     int
		NewAssignments              [][]int32
	}](t, v.Input)
	x := read[struct {
		ExactByReferenceCode map[string][]cluster.BrokerID
		P1Set, P2Set         []cluster.BrokerID
		Error                string
	}](t, v.Expected)
	if in.Brokers == nil {
		in.Brokers = ids(0, 1, 2, 3)
	}
	if in.Partition0 == nil {
		in.Partition0 = in.Brokers[:max(in.TopicRF, 3*b2i(in.TopicRF == 0))]
	}
	w := newWorld(t)
	w.up(in.Brokers...)
	topic := w.topic("t", newPartition(in.Partition0, ViewOf(w.im)))
	with := proto.CloneOf(w.im.TopicByID(topic).Record)
	with.ReplicationFactor, with.BlockSize = int32(len(in.Partition0)), 16
	w.show(w.put(w.im.Keys.Topic("t"), cluster.Encode(with)))
	np := &pb.NewPartitions{Topic: "t", Count: max(in.Total, in.IncreaseTo)}
	for _, a := range in.NewAssignments {
		np.Assignments = append(np.Assignments, &pb.ReplicaAssignment{Replicas: a})
	}
	record, parts, rej := Expand(w.im, w.term, w.im.TopicByID(topic), np)
	if rej != nil {
		return string(rej.Reason), x.Error
	}
	if len(parts) == 0 {
		wanting := *w.im.TopicByID(topic)
		wanting.Record = record
		if _, parts, rej = Complete(w.im, w.term, &wanting, 100, 0); rej != nil {
			return string(rej.Reason), x.Error
		}
	}
	for _, p := range parts {
		got += fmt.Sprintf("%d %v; ", p.ID.Index, p.New.Replicas)
		exact := x.ExactByReferenceCode[fmt.Sprint(p.ID.Index)]
		switch {
		case exact == nil && p.ID.Index == 1:
			exact = x.P1Set
		case exact == nil && p.ID.Index == 2:
			exact = x.P2Set
		}
		want += fmt.Sprintf("%d %v; ", p.ID.Index, exact)
	}
	if x.Error != "" {
		want = x.Error
	}
	return got, want
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
