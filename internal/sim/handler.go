package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// work is a handler that runs for the newest leader epoch of a partition, and
// who waits for its end.
type work struct {
	state   fencing.PartitionState
	waiting []waiting
}

type waiting struct {
	s     *stream
	state fencing.PartitionState
}

// obey takes one command through the gate and starts its handlers, in one
// step. With the lock taken out these are two, and others come in between.
func (b *simBroker) obey(s *stream, cmd *pb.Command) {
	v := b.gate.Admit(cmd)
	b.gate.Obeyed(&s.feed, cmd, &v)
	b.noteStrays(&v)
	s.answer(&pb.CommandsResponse{Response: &pb.CommandsResponse_Ack{Ack: &pb.CommandAck{
		Sequence: cmd.GetSequence(), Refusal: v.Refusal, ControllerEpoch: int64(v.ControllerEpoch),
	}}})
	if b.w.cfg.Lock.IsOpen() {
		b.after(b.w.upTo(pick(b.w, time.Millisecond, 100*time.Millisecond)), nil, func() { b.start(s, cmd, &v) })
		return
	}
	b.start(s, cmd, &v)
}

func (b *simBroker) start(s *stream, cmd *pb.Command, v *fencing.Verdict) {
	b.observe(s, cmd, v)
	if cmd.GetUpdateMetadata() != nil {
		return
	}
	for _, d := range v.Decisions {
		id := d.State.Partition
		running := b.work[id]
		switch {
		case d.Action == fencing.Inconsistent:
			s.result(&d.State, pb.PartitionResult_PARTITION_RESULT_INCONSISTENT_TOPIC_ID)
		case d.Action == fencing.Fenced:
			s.result(&d.State, pb.PartitionResult_PARTITION_RESULT_FENCED_LEADER_EPOCH)
		case d.Action == fencing.Admitted:
			b.apply(s, d.State)
		case running != nil:
			running.waiting = append(running.waiting, waiting{s, d.State})
		default:
			s.result(&d.State, pb.PartitionResult_PARTITION_RESULT_ALREADY)
		}
	}
}

// apply starts the handler of a leader epoch. One that runs is cancelled, and
// those that wait for it wait for this one.
func (b *simBroker) apply(s *stream, state fencing.PartitionState) {
	next := &work{state: state, waiting: []waiting{{s, state}}}
	if running := b.work[state.Partition]; running != nil {
		next.waiting = append(running.waiting, next.waiting...)
	}
	b.work[state.Partition] = next
	b.w.disks[b.id].store(&state)
	delete(b.w.planted[b.id], state.Partition) // it is assigned again
	b.after(b.w.upTo(pick(b.w, time.Millisecond, 50*time.Millisecond)), nil, func() {
		if b.work[state.Partition] == next {
			b.applied(next, b.w.chance(0.03) && !b.w.calm || b.broken[state.Partition])
		}
	})
}

func (b *simBroker) applied(done *work, failed bool) {
	delete(b.work, done.state.Partition)
	result := pb.PartitionResult_PARTITION_RESULT_FAILED
	switch {
	case failed && b.broken[done.state.Partition] && !done.state.Stop:
		result = pb.PartitionResult_PARTITION_RESULT_STORAGE_ERROR
		b.storageFailed(&done.state)
	case failed:
		b.gate.Failed(done.state.Partition, done.state.LeaderEpoch)
	case done.state.Stop:
		delete(b.done, done.state.Partition)
		b.erase(&done.state)
	default:
		b.done[done.state.Partition] = done.state.LeaderEpoch
	}
	if !failed {
		b.gate.Applied(&done.state)
	} else if result == pb.PartitionResult_PARTITION_RESULT_FAILED {
		b.resyncUnless(done.waiting)
	}
	for _, n := range done.waiting {
		switch {
		case failed:
			n.s.result(&n.state, result)
		case n.state.CompareRuns(&done.state) < 0:
			n.s.result(&n.state, pb.PartitionResult_PARTITION_RESULT_ALREADY)
		default:
			n.s.result(&n.state, pb.PartitionResult_PARTITION_RESULT_APPLIED)
		}
	}
}

// resyncUnless ends all streams if one of them is not told of a failure.
func (b *simBroker) resyncUnless(told []waiting) {
	for _, s := range b.streams {
		if s.gone || slices.ContainsFunc(told, func(n waiting) bool { return n.s == s }) {
			continue
		}
		for _, s := range b.streams {
			if !s.gone {
				s.brokerGone()
			}
		}
		return
	}
}

func (s *stream) result(p *fencing.PartitionState, r pb.PartitionResult) {
	if r != pb.PartitionResult_PARTITION_RESULT_APPLIED && r != pb.PartitionResult_PARTITION_RESULT_ALREADY {
		s.feed.Failures++
	}
	s.answer(&pb.CommandsResponse{Response: &pb.CommandsResponse_Results{Results: &pb.PartitionResults{
		Outcomes: []*pb.PartitionOutcome{{
			TopicId: slices.Clone(p.Partition.Topic[:]), Partition: p.Partition.Index,
			LeaderEpoch: int32(p.LeaderEpoch), PartitionEpoch: int32(p.PartitionEpoch), Result: r, Stop: p.Stop,
		}},
	}}})
}

// observe tells the checker what the gate decided, in the manner of the
// broker's observer.
func (b *simBroker) observe(s *stream, cmd *pb.Command, v *fencing.Verdict) {
	whole := broker.Observation{
		Command:         broker.UpdateMetadata,
		Sender:          cmd.GetStamp().GetControllerId(),
		ControllerEpoch: cluster.Epoch(cmd.GetStamp().GetControllerEpoch()),
		BrokerEpoch:     cluster.BrokerEpoch(cmd.GetStamp().GetBrokerEpoch()),
		Partition:       broker.WholeCommand,
		Result:          fencing.Admitted.String(),
		Live:            v.Live,
	}
	switch {
	case cmd.GetLeaderAndIsr() != nil:
		whole.Command = broker.LeaderAndIsr
	case cmd.GetStopReplica() != nil:
		whole.Command = broker.StopReplica
	}
	if v.Refused() {
		whole.Result = strings.TrimPrefix(v.Refusal.String(), "REFUSAL_")
	}
	if v.Refused() || whole.Command == broker.UpdateMetadata {
		b.tell(s, whole)
		return
	}
	for _, d := range v.Decisions {
		p := &d.State
		if p.Stop {
			b.w.checkStop(p, b)
		} else {
			b.w.checkStored(p.Partition, p.Leader, p.LeaderEpoch, p.PartitionEpoch, b.name)
		}
		one := whole
		one.Topic, one.TopicID, one.Partition = p.Topic, p.Partition.Topic, p.Partition.Index
		one.LeaderEpoch, one.PartitionEpoch = d.State.LeaderEpoch, d.State.PartitionEpoch
		one.Result = d.Action.String()
		b.tell(s, one)
	}
}

func (b *simBroker) tell(s *stream, o broker.Observation) {
	b.w.seen["command "+o.Result]++
	b.w.checker.Accepted(Accepted{At: b.w.now, Broker: b.id, Process: s.d.name, Observation: o})
	b.w.tracef("%s: %s of %s/%d for %d: %s-%d at %d, %d: %s", b.name, o.Command, s.d.name, o.ControllerEpoch,
		o.BrokerEpoch, o.Topic, o.Partition, o.LeaderEpoch, o.PartitionEpoch, o.Result)
}
