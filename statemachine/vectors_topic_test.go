package statemachine

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// playCreateTopic creates a topic as a request says, in which partitions have no
// numbers: those that are given begin at 0 and leave none out, or the request
// cannot be made.
func playCreateTopic(t *testing.T, v vector) (got, want string) {
	in := read[struct {
		Assignment                     map[string][]int32
		TopicExists, MarkedForDeletion bool
		Existing, New                  string
	}](t, v.Input)
	x := read[struct {
		Error  string
		Stored map[string]Assignment
	}](t, v.Expected)
	w := newWorld(t)
	w.up(0, 1, 2, 3, 4)
	name := "t"
	if in.TopicExists || in.MarkedForDeletion {
		w.topic(name, newPartition(ids(0, 1), ViewOf(w.im)))
	}
	if in.MarkedForDeletion {
		w.show(w.put(w.im.Keys.Topic(name), cluster.Encode(MarkDeleting(w.im.Topics[name], ""))))
	}
	if in.Existing != "" {
		w.topic(in.Existing, newPartition(ids(0, 1), ViewOf(w.im)))
		name = in.New
	}
	nt := &pb.NewTopic{Name: name, Partitions: 1, ReplicationFactor: 1}
	if in.Assignment != nil {
		nt.Partitions, nt.ReplicationFactor = 0, 0
	}
	var numbers []int
	for key := range in.Assignment {
		n, err := strconv.Atoi(key)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	for i, n := range numbers {
		for len(nt.Assignments) < n || i == 0 && n < 0 && len(nt.Assignments) == 0 { // what is left out has no replicas
			nt.Assignments = append(nt.Assignments, &pb.ReplicaAssignment{})
		}
		nt.Assignments = append(nt.Assignments, &pb.ReplicaAssignment{Replicas: in.Assignment[strconv.Itoa(n)]})
	}
	made, rej := BeginTopic(w.im, w.term, nt, topicID(name), "", 0)
	if rej != nil {
		return string(rej.Reason), x.Error
	}
	for _, p := range made.Partitions(w.im, w.term, 0, made.Record.GetPartitionsMade()) {
		got += fmt.Sprintf("%d %v; ", p.ID.Index, AssignmentOf(&p.New))
		want += fmt.Sprintf("%d %v; ", p.ID.Index, x.Stored[fmt.Sprint(p.ID.Index)])
	}
	if x.Error != "" {
		want = x.Error
	}
	return got, want
}

// playIsrRemoval lets the broker of a replica die, and that of every other one
// before it if it leads: nobody can take over.
func playIsrRemoval(t *testing.T, v vector) (got, want string) {
	type state struct {
		Write       bool
		Leader      cluster.BrokerID
		ISR         []cluster.BrokerID
		LeaderEpoch cluster.LeaderEpoch
	}
	in := read[struct {
		Replica cluster.BrokerID
		state
	}](t, v.Input)
	x := read[state](t, v.Expected)
	w := newWorld(t)
	w.up(1, 2, 3, 4)
	p := newPartition(ids(1, 2, 3, 4), ViewOf(w.im))
	p.ISR, p.LeaderEpoch, p.PartitionEpoch = in.ISR, in.LeaderEpoch, 1
	id := cluster.PartitionID{Topic: w.topic("t", p)}
	gone := ids(in.Replica)
	if in.Replica == in.Leader {
		gone = ids(1, 2, 3, 4)
	}
	w.down(gone...)
	w.settle()
	now := w.im.Partition(id)
	line := func(s state) string {
		return fmt.Sprintf("write %v leader %d isr %v le %d", s.Write, s.Leader, s.ISR, s.LeaderEpoch)
	}
	return line(state{now.PartitionEpoch > 1, now.Leader, now.ISR, now.LeaderEpoch}), line(x)
}
