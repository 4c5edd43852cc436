package controller

import (
	"cmp"
	"slices"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/statemachine"
	"github.com/controllerd/controllerd/store"
)

// maxElectionResults bounds the results of an answer, well below the size that a
// message may have. What is left out is counted.
const maxElectionResults = 10_000

// maxElectionWait is for how many plans an election waits until what the rules
// want of the partition is done.
const maxElectionWait = 100

// elections is a request for other leaders that is being decided, slice by
// slice, over as many plans as it takes.
type elections struct {
	began     store.Rev
	topics    []*pb.TopicPartitions // in order
	topic     int                   // that is to be looked at next
	partition int                   // of it, of those that are named
	waited    int                   // plans, for that one
	answer    *pb.ElectLeadersResponse
	before    *elections // as they were before the plan that is under way
}

func (l *Loop) newElections(r rpc.ElectLeaders) *elections {
	e := &elections{began: l.im.Rev, answer: &pb.ElectLeadersResponse{}}
	if r.GetAll() {
		for _, t := range l.im.SortedTopics() {
			e.topics = append(e.topics, &pb.TopicPartitions{Topic: t.Name})
		}
		return e
	}
	for _, t := range r.GetTopics() {
		e.topics = append(e.topics, &pb.TopicPartitions{Topic: t.GetTopic(), Partitions: slices.Sorted(slices.Values(t.GetPartitions()))})
	}
	slices.SortFunc(e.topics, func(a, b *pb.TopicPartitions) int { return cmp.Compare(a.GetTopic(), b.GetTopic()) })
	return e
}

// electLeaders goes on with a request for other leaders. Without an answer it is
// gone on with by the next plan, also if a partition is due for something else
// first.
func (d *draft) electLeaders(a *asked, r rpc.ElectLeaders) bool {
	if a.elections == nil {
		a.elections = d.l.newElections(r)
	}
	e := a.elections.again()
	a.elections = e
	for limit := d.l.cfg.Slice; e.topic < len(e.topics); limit-- {
		if limit <= 0 || d.writes >= d.limit || !d.electNext(a.id, r, e) {
			return true
		}
	}
	d.answers[a.id] = rpc.Answer{Response: e.answer}
	return true
}

// again is a copy for the next plan, which is dropped if that fails.
func (e *elections) again() *elections {
	e.before = nil
	next := *e
	next.before = e
	next.answer = &pb.ElectLeadersResponse{
		Results: slices.Clip(e.answer.GetResults()),
		Elected: e.answer.GetElected(), Failed: e.answer.GetFailed(), NotNeeded: e.answer.GetNotNeeded(),
	}
	return &next
}

// electNext decides the next partition, or says that something else comes
// first.
func (d *draft) electNext(owner int64, r rpc.ElectLeaders, e *elections) bool {
	of := e.topics[e.topic]
	t := d.l.im.Topics[of.GetTopic()]
	index, last := int32(e.partition), len(of.GetPartitions())
	named := last > 0
	if named {
		index = of.GetPartitions()[e.partition]
	} else if t != nil {
		last = int(t.Made())
	}
	switch id := (cluster.PartitionID{Index: index}); {
	case t != nil && e.partition < last:
		id.Topic = t.ID
		if busy := d.taken(id) || d.l.machine.Due(id); busy && e.waited < maxElectionWait {
			e.waited++
			return false
		} else if busy {
			result := &pb.ElectionResult{Topic: t.Name, Partition: index, Leader: int32(cluster.NoLeader), PreviousLeader: int32(cluster.NoLeader)}
			e.say(result, cluster.OperationNotAttempted, "another change of the partition is due, try again")
		} else {
			d.electOne(owner, r, e, id, named)
		}
	case t == nil && !r.GetAll():
		e.say(&pb.ElectionResult{Topic: of.GetTopic(), Partition: index}, cluster.UnknownTopicOrPartition, "The topic does not exist.")
	}
	e.waited = 0
	if e.partition++; e.partition >= last {
		e.topic, e.partition = e.topic+1, 0
	}
	return true
}

func (d *draft) electOne(owner int64, r rpc.ElectLeaders, e *elections, id cluster.PartitionID, named bool) {
	p := d.l.im.Partition(id)
	result := &pb.ElectionResult{Topic: d.l.im.TopicByID(id.Topic).Name, Partition: id.Index, Leader: int32(cluster.NoLeader), PreviousLeader: int32(cluster.NoLeader)}
	if p != nil {
		result.Leader, result.PreviousLeader = int32(p.Leader), int32(p.Leader)
	}
	asked := statemachine.Election{Type: r.GetType(), Leader: cluster.BrokerID(r.GetLeader())}
	w, rej := d.l.machine.Elect(d.term, id, asked)
	if w != nil {
		w.Reason = r.GetReason()
	}
	switch {
	case rej != nil && rej.Reason == cluster.ElectionNotNeeded && d.elected(p, e, asked):
		e.say(result, "", "")
	case rej != nil && rej.Reason == cluster.ElectionNotNeeded && !named:
		e.answer.NotNeeded++
	case rej != nil:
		e.say(result, rej.Reason, rej.Message)
	case !r.GetValidateOnly() && !d.put(*w, owner):
		e.say(result, cluster.InvalidRequest, "no rule makes this change")
	default:
		result.Leader = int32(w.New.Leader)
		e.say(result, "", "")
	}
}

// elected reports whether the request has done its work already, by a plan of
// which another part failed.
func (d *draft) elected(p *cluster.Partition, e *elections, asked statemachine.Election) bool {
	return p.Decided >= e.began && p.ControllerEpoch == d.term.Epoch && p.Cause == asked.Cause()
}

// say adds a result.
func (e *elections) say(result *pb.ElectionResult, reason cluster.Reason, message string) {
	result.Error, result.Message = string(reason), message
	switch reason {
	case "":
		e.answer.Elected++
	case cluster.ElectionNotNeeded:
		e.answer.NotNeeded++
	default:
		e.answer.Failed++
	}
	if len(e.answer.GetResults()) < maxElectionResults {
		e.answer.Results = append(e.answer.Results, result)
	}
}
