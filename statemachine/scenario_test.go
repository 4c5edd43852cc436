package statemachine

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// TestScenarios plays the files in testdata. Their commands, each with an
// example; those that change the store say how much is on the agenda then:
//
//	broker-up 1 2 rack=a     brokers become live, in one batch
//	broker-down 1 2          brokers die, in one batch
//	broker-restart 1         a broker dies and comes back, in one batch; with
//	                         "unseen", while the watch was away
//	drain 1, undrain 1       controlled shutdown begins, is cancelled
//	lose 1, find 1           no stream of commands is open for long, is again
//	replica-offline t/0 1, replica-online t/0 1
//	                         the storage of a replica fails, is back
//	create-topic t seed=7 partitions=3 rf=2 [block-size=1] [id=u] [config=(name,value)]
//	                         a request; with the replicas given below, if any
//	expand t partitions=3    a request for more partitions, likewise
//	place t                  a topic with the replicas given below, one
//	                         partition a line
//	put t/0 leader=2 isr=(2,3) decided=0 recovery=RECOVERING
//	                         a record changed by hand, against all rules
//	alter t/0 from=1 [isr=(1,2)] [le=1] [pe=4] [saw=(2,105)] [recovery=RECOVERING]
//	                         a leader's request; le and pe as in the record
//	                         unless given; saw: the epoch of one member
//	elect t/0 preferred, elect t/0 unclean, elect t/0 leader=2
//	                         somebody asks for an election
//	balance [percentage=10]  a run of the automatic preferred leader election
//	step [limit=2]           what is due, and store it
//	show                     all partitions
//	delete-topic t [id=t]    a request, up to the mark; with id it names that
//	                         id, with - as the name only that
//	chores                   what the active does for topics without being asked
//	confirm t 1 2            brokers have deleted what they held
//	want t partitions=5      a topic's record wants more partitions, by hand
//	spoil t, spoil t/0       a topic's record, the block of a partition becomes
//	                         unreadable
//	tombstones               who has yet to confirm, and what is marked
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := &scenario{world: newWorld(t), failed: map[replica]bool{}}
		s.m.offline = func(b *cluster.Broker, id cluster.PartitionID) bool { return s.failed[replica{id, b.ID, b.Epoch}] }
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.play(t, d)
			s.checkAgenda()
			return out
		})
	})
}

type scenario struct {
	*world
	failed map[replica]bool // offline
}

// replica is that of one incarnation of a broker.
type replica struct {
	of    cluster.PartitionID
	on    cluster.BrokerID
	epoch cluster.BrokerEpoch
}

// replicaFails takes a replica offline, or back.
func (s *scenario) replicaFails(t *testing.T, d *datadriven.TestData, fails bool) {
	id := s.partitionID(t, d)
	for _, b := range s.brokers(d) {
		s.failed[replica{id, b, s.im.Brokers[b].Epoch}] = fails
	}
	s.m.Review([]cluster.PartitionID{id})
	s.m.Continue(1)
}

func (s *scenario) play(t *testing.T, d *datadriven.TestData) string {
	running, draining := pb.BrokerState_BROKER_STATE_RUNNING, pb.BrokerState_BROKER_STATE_DRAINING
	switch d.Cmd {
	case "broker-up", "undrain":
		s.show(s.each(s.brokers(d), s.register(d, running))...)
	case "broker-down":
		s.down(s.brokers(d)...)
	case "broker-restart":
		if d.HasArg("unseen") {
			s.each(s.brokers(d), func(id cluster.BrokerID) store.Change { return s.del(s.im.Keys.Broker(id)) })
			s.each(s.brokers(d), s.register(d, running))
			s.relist()
		} else {
			s.restart(s.brokers(d)...)
		}
	case "drain":
		s.show(s.each(s.brokers(d), s.register(d, draining))...)
	case "lose", "find":
		s.show(s.each(s.brokers(d), func(id cluster.BrokerID) store.Change { return s.mark(id, d.Cmd == "lose") })...)
	case "replica-offline", "replica-online":
		s.replicaFails(t, d, d.Cmd == "replica-offline")
	case "create-topic":
		return s.createTopic(t, d)
	case "expand":
		return s.expand(t, d)
	case "balance":
		return s.balance(t, d)
	case "place":
		var parts []cluster.Partition
		for _, a := range given(t, d) {
			parts = append(parts, newPartition(cluster.BrokerIDs(a.GetReplicas()), ViewOf(s.im)))
		}
		s.topic(d.CmdArgs[0].Key, parts...)
	case "put":
		s.putByHand(t, d)
	case "reassign", "begin", "park", "deleted":
		return s.reassign(t, d)
	case "settings", "topic-config":
		return s.configure(t, d)
	case "alter":
		return s.alterPartition(t, d)
	case "elect":
		return s.elect(t, d)
	case "step":
		return s.step(t, d)
	case "show":
		var out strings.Builder
		for _, topic := range s.im.SortedTopics() {
			s.im.Partitions(topic, func(id cluster.PartitionID, p *cluster.Partition) {
				out.WriteString(s.line(id, p))
			})
		}
		return out.String()
	default:
		return s.playDeletion(t, d)
	}
	return s.agenda()
}

func (s *scenario) agenda() string { return fmt.Sprintf("to do: %d\n", s.m.Agenda()) }

// brokers are the arguments that are numbers.
func (s *scenario) brokers(d *datadriven.TestData) []cluster.BrokerID {
	var out []cluster.BrokerID
	for _, arg := range d.CmdArgs {
		if n, err := strconv.Atoi(arg.Key); err == nil {
			out = append(out, cluster.BrokerID(n))
		}
	}
	return out
}

func (s *scenario) register(d *datadriven.TestData, state pb.BrokerState) func(cluster.BrokerID) store.Change {
	return func(id cluster.BrokerID) store.Change {
		rack := ""
		if b := s.im.Brokers[id]; b != nil {
			rack = b.Record.GetRack()
		}
		if arg, ok := d.Arg("rack"); ok {
			rack = arg.Vals[0]
		}
		return s.broker(id, rack, state)
	}
}

func (s *scenario) createTopic(t *testing.T, d *datadriven.TestData) string {
	nt := &pb.NewTopic{Name: d.CmdArgs[0].Key, Partitions: 1, ReplicationFactor: 1}
	if nt.Assignments = given(t, d); len(nt.Assignments) > 0 {
		nt.Partitions, nt.ReplicationFactor = Shape(nt)
	}
	if d.HasArg("config") {
		var name, value string
		d.ScanArgs(t, "config", &name, &value)
		nt.Config = map[string]string{name: value}
	}
	var seed uint64
	d.MaybeScanArgs(t, "partitions", &nt.Partitions)
	d.MaybeScanArgs(t, "rf", &nt.ReplicationFactor)
	d.MaybeScanArgs(t, "block-size", &nt.BlockSize)
	d.MaybeScanArgs(t, "seed", &seed)
	id := topicID(nt.Name)
	if arg, ok := d.Arg("id"); ok {
		id = topicID(arg.FirstVal(t))
	}
	record, writes, rej := createTopic(s.im, s.term, nt, id, "request", seed)
	if rej != nil {
		return rej.line()
	}
	for _, w := range writes {
		if err := CheckEdge(w.Old, &w.New); err != nil {
			d.Fatalf(t, "%v", err)
		}
	}
	s.made(nt.Name, record, writes)
	return s.lines(writes) + s.agenda()
}

// given are the replicas below a command, one partition a line.
func given(t *testing.T, d *datadriven.TestData) (out []*pb.ReplicaAssignment) {
	for line := range strings.Lines(d.Input) {
		a := &pb.ReplicaAssignment{}
		for _, id := range parseIDs(t, line) {
			a.Replicas = append(a.Replicas, int32(id))
		}
		out = append(out, a)
	}
	return out
}

// expand stores what a request for more partitions makes at once; the rest is a
// chore.
func (s *scenario) expand(t *testing.T, d *datadriven.TestData) string {
	np := &pb.NewPartitions{Topic: d.CmdArgs[0].Key, Assignments: given(t, d)}
	d.ScanArgs(t, "partitions", &np.Count)
	record, writes, rej := Expand(s.im, s.term, s.im.Topics[np.GetTopic()], np)
	if rej != nil {
		return rej.line()
	}
	s.made(np.GetTopic(), record, writes)
	return s.lines(writes) + s.agenda()
}

func (s *scenario) balance(t *testing.T, d *datadriven.TestData) string {
	percentage := 10
	d.MaybeScanArgs(t, "percentage", &percentage)
	var writes []Write
	for _, b := range Imbalanced(s.im, percentage) {
		s.im.HostedFrom(b, 0, 1<<30, func(_ *cluster.Topic, id cluster.PartitionID, _ *cluster.Partition) {
			if w := s.m.Rebalance(s.term, id, b); w != nil {
				writes = append(writes, *w)
			}
		})
	}
	s.write(writes)
	return s.lines(writes) + s.agenda()
}

func (r *Rejection) line() string { return fmt.Sprintf("%s: %s\n", r.Reason, r.Message) }

// putByHand writes a record over the old one without regard to any rule.
func (s *scenario) putByHand(t *testing.T, d *datadriven.TestData) {
	id := s.partitionID(t, d)
	p := s.im.Partition(id).Clone()
	d.MaybeScanArgs(t, "leader", &p.Leader)
	d.MaybeScanArgs(t, "decided", &p.Decided)
	d.MaybeScanArgs(t, "isr", &p.ISR)
	if arg, ok := d.Arg("recovery"); ok {
		p.Recovery = recovery(arg.FirstVal(t))
	}
	s.show(s.blocks([]Write{{ID: id, New: p}}, 0)...)
}

// reassign is "reassign T/P to=(1,2)|cancel [full]", "begin T/P", "park T/P" or
// "deleted T/P from=1".
func (s *scenario) reassign(t *testing.T, d *datadriven.TestData) string {
	id := s.partitionID(t, d)
	var w *Write
	switch d.Cmd {
	case "begin":
		w = s.m.Begin(s.term, id)
	case "park":
		w = s.m.Park(s.term, id)
	case "deleted":
		var from cluster.BrokerID
		d.ScanArgs(t, "from", &from)
		w = s.m.Deleted(s.term, id, func(b cluster.BrokerID) bool { return b == from })
	default:
		mv := Move{Cancel: d.HasArg("cancel")}
		d.MaybeScanArgs(t, "to", &mv.Target)
		got, state, rej := s.m.Reassign(s.term, id, mv, !d.HasArg("full"))
		if rej != nil {
			return rej.line()
		}
		if got == nil {
			return strings.ToLower(strings.TrimPrefix(state.String(), "REASSIGNMENT_STATE_")) + " already\n"
		}
		w = got
	}
	if w == nil {
		return "nothing\n"
	}
	s.write([]Write{*w})
	out := s.lines([]Write{*w})
	if _, words := s.m.WaitsFor(id); words != "" {
		out += "waits for " + words + "\n"
	}
	return out + s.agenda()
}

// configure sets "settings NAME=VALUE..." or "topic-config TOPIC NAME=VALUE...";
// an empty value takes it back.
func (s *scenario) configure(t *testing.T, d *datadriven.TestData) string {
	set, unset, topic := map[string]string{}, []string(nil), ""
	for _, a := range d.CmdArgs {
		switch {
		case len(a.Vals) == 0:
			topic = a.Key
		case a.Vals[0] == "":
			unset = append(unset, a.Key)
		default:
			set[a.Key] = a.Vals[0]
		}
	}
	k := s.im.Keys
	if d.Cmd == "settings" {
		r, rej := AlterSettings(s.im, s.term, &pb.AlterSettingsRequest{Set: set, Unset: unset})
		if rej != nil {
			return rej.line()
		}
		s.show(s.put(k.Settings(), cluster.Encode(r)))
		return s.agenda()
	}
	r, rej := AlterTopic(s.im.Topics[topic], &pb.AlterTopicsRequest{Set: set, Unset: unset})
	if rej != nil {
		return rej.line()
	}
	s.show(s.put(k.Topic(topic), cluster.Encode(r)))
	return s.agenda()
}

func (s *scenario) partitionID(t *testing.T, d *datadriven.TestData) cluster.PartitionID {
	name, index, _ := strings.Cut(d.CmdArgs[0].Key, "/")
	n, err := strconv.Atoi(index)
	if err != nil {
		d.Fatalf(t, "partition %q: %v", d.CmdArgs[0].Key, err)
	}
	return cluster.PartitionID{Topic: topicID(name), Index: int32(n)}
}

func (s *scenario) elect(t *testing.T, d *datadriven.TestData) string {
	e := Election{Type: pb.ElectionType_ELECTION_TYPE_PREFERRED}
	if d.HasArg("unclean") {
		e.Type = pb.ElectionType_ELECTION_TYPE_UNCLEAN
	}
	if d.HasArg("leader") {
		e.Type = pb.ElectionType_ELECTION_TYPE_DESIGNATED
		d.ScanArgs(t, "leader", &e.Leader)
	}
	w, rej := s.m.Elect(s.term, s.partitionID(t, d), e)
	if rej != nil {
		return rej.line()
	}
	s.write([]Write{*w})
	return s.lines([]Write{*w}) + s.agenda()
}

func (s *scenario) alterPartition(t *testing.T, d *datadriven.TestData) string {
	id := s.partitionID(t, d)
	p := s.im.Partition(id)
	if p == nil {
		p = &cluster.Partition{}
	}
	var from cluster.BrokerID
	var isr []cluster.BrokerID
	d.ScanArgs(t, "from", &from)
	d.MaybeScanArgs(t, "isr", &isr)
	e := s.entry(p, isr...)
	d.MaybeScanArgs(t, "le", &e.LeaderEpoch)
	d.MaybeScanArgs(t, "pe", &e.PartitionEpoch)
	if arg, ok := d.Arg("recovery"); ok {
		e.Recovery = recovery(arg.FirstVal(t))
	}
	if d.HasArg("saw") {
		var member int32
		var saw int64
		d.ScanArgs(t, "saw", &member, &saw)
		for _, m := range e.NewIsr {
			if m.BrokerId == member {
				m.BrokerEpoch = saw
			}
		}
	}
	var epoch cluster.BrokerEpoch
	if b := s.im.Brokers[from]; b != nil {
		epoch = b.Epoch
	}
	w, rej := s.m.Alter(s.term, from, epoch, id, e)
	switch {
	case rej != nil:
		return rej.line()
	case w == nil:
		return "is so already\n"
	}
	s.write([]Write{*w})
	return s.lines([]Write{*w}) + s.agenda()
}

func (s *scenario) step(t *testing.T, d *datadriven.TestData) string {
	limit := 1 << 30
	d.MaybeScanArgs(t, "limit", &limit)
	writes := s.m.Step(s.term, limit, 1<<30)
	s.write(writes)
	return s.lines(writes) + s.agenda()
}

func (s *scenario) lines(writes []Write) string {
	var out strings.Builder
	for _, w := range writes {
		out.WriteString(s.line(w.ID, &w.New))
	}
	return out.String()
}

func (s *scenario) line(id cluster.PartitionID, p *cluster.Partition) string {
	name := strings.TrimRight(string(id.Topic[:]), "\x00")
	if p == nil {
		return fmt.Sprintf("%s/%d unknown\n", name, id.Index)
	}
	cause := strings.TrimPrefix(p.Cause.String(), "CHANGE_CAUSE_")
	replicas := join(p.Replicas)
	for _, of := range []struct {
		what string
		ids  []cluster.BrokerID
	}{{"adding", p.Adding}, {"removing", p.Removing}, {"target", p.Target}} {
		if len(of.ids) > 0 {
			replicas += " " + of.what + " " + join(of.ids)
		}
	}
	return fmt.Sprintf("%s/%d replicas %s: %s, %s\n", name, id.Index, replicas, state(p), strings.ToLower(strings.ReplaceAll(cause, "_", " ")))
}

func join(list []cluster.BrokerID) string { return strings.Trim(fmt.Sprint(list), "[]") }

// parseIDs reads broker ids with spaces between them.
func parseIDs(t *testing.T, s string) []cluster.BrokerID {
	var out []cluster.BrokerID
	for _, f := range strings.Fields(s) {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatalf("brokers %q: %v", s, err)
		}
		out = append(out, cluster.BrokerID(n))
	}
	return out
}
