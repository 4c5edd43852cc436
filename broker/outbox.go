package broker

import (
	"slices"
	"strings"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

const (
	// maxAnswers is how many pongs and acks may wait for the network before no
	// more is read from the stream.
	maxAnswers = 1000
	// maxOutcomes, of each kind, and maxMessage keep a response below 1 MiB, well
	// within gRPC's limit of 4 MiB, and short work for the controller.
	maxOutcomes = 2000
	maxMessage  = 400
)

// about is what a result is about: a partition's state, or its end.
type about struct {
	partition cluster.PartitionID
	stop      bool
}

// outbox is what one stream has to say. It keeps the newest result of each
// partition, so its size is bounded however slow the reader is.
type outbox struct {
	pongs   []*pb.Pong
	acks    []*pb.CommandAck
	results []*pb.PartitionOutcome
	at      map[about]int // in results
	topic   []byte        // of the last result
	report  report
	closed  bool // nobody listens any more
	feed    fencing.Feed
	wake    func() // says that there is something to send
}

func (o *outbox) pong(p *pb.Pong) {
	o.pongs = append(o.pongs, p)
	o.wake()
}

// ack answers a whole command, before the results of its partitions.
func (o *outbox) ack(sequence int64, v *fencing.Verdict) {
	o.acks = append(o.acks, &pb.CommandAck{
		Sequence:        sequence,
		Refusal:         v.Refusal,
		ControllerEpoch: int64(v.ControllerEpoch),
	})
	o.wake()
}

// result says what became of a state that the stream named. A result of a newer
// state stands already for an older one. It is sent with the next ack, or when
// the workers have nothing else to do.
func (o *outbox) result(s *PartitionState, r pb.PartitionResult, message string) {
	if o.closed {
		return
	}
	if len(message) > maxMessage {
		message = message[:maxMessage]
	}
	outcome := &pb.PartitionOutcome{
		TopicId:        o.topicID(s.Partition.Topic),
		Partition:      s.Partition.Index,
		LeaderEpoch:    int32(s.LeaderEpoch),
		PartitionEpoch: int32(s.PartitionEpoch),
		Result:         r,
		Message:        strings.ToValidUTF8(message, "?"),
		Stop:           s.Stop,
	}
	key := about{s.Partition, s.Stop}
	if i, ok := o.at[key]; !ok {
		if o.at == nil {
			o.at = map[about]int{}
		}
		o.at[key] = len(o.results)
		o.results = append(o.results, outcome)
		o.feed.Failures += failure(outcome)
	} else if !newer(o.results[i], outcome) {
		o.feed.Failures += failure(outcome) - failure(o.results[i])
		o.results[i] = outcome
	}
}

// topicID are the bytes of an id, the same ones for results of one topic that
// follow each other.
func (o *outbox) topicID(id cluster.TopicID) []byte {
	if len(o.topic) == 0 || cluster.TopicID(o.topic) != id {
		o.topic = slices.Clone(id[:])
	}
	return o.topic
}

// failure is 1 for a result that the controller counts as one.
func failure(o *pb.PartitionOutcome) int64 {
	if r := o.GetResult(); r == pb.PartitionResult_PARTITION_RESULT_APPLIED || r == pb.PartitionResult_PARTITION_RESULT_ALREADY {
		return 0
	}
	return 1
}

func newer(a, b *pb.PartitionOutcome) bool {
	if a.GetLeaderEpoch() != b.GetLeaderEpoch() {
		return a.GetLeaderEpoch() > b.GetLeaderEpoch()
	}
	return a.GetPartitionEpoch() > b.GetPartitionEpoch()
}

// report is what a stream has to say of the broker's replicas. A replica is in
// one list of two: offline or restored, stray or a former one.
type report struct {
	offline, strays map[cluster.PartitionID]notice
}

// notice says that a replica is so, or is so no more.
type notice struct {
	replica fencing.HeldReplica
	is      bool
}

// tell adds replicas to what is to be said, in the place of what was said of
// them before.
func (o *outbox) tell(into *map[cluster.PartitionID]notice, is bool, replicas []fencing.HeldReplica) {
	if o.closed || len(replicas) == 0 {
		return
	}
	if *into == nil {
		*into = map[cluster.PartitionID]notice{}
	}
	for _, r := range replicas {
		(*into)[r.Partition] = notice{r, is}
	}
	o.wake()
}

// take empties the report, in pieces that hold up nobody: the storage of all
// replicas may have failed at once.
func (r *report) take() []*pb.ReplicaReport {
	split := func(of map[cluster.PartitionID]notice) (is, no []fencing.HeldReplica) {
		for _, n := range of {
			if n.is {
				is = append(is, n.replica)
			} else {
				no = append(no, n.replica)
			}
		}
		byPartition := func(a, b fencing.HeldReplica) int { return a.Partition.Compare(b.Partition) }
		slices.SortFunc(is, byPartition)
		slices.SortFunc(no, byPartition)
		return is, no
	}
	offline, restored := split(r.offline)
	strays, former := split(r.strays)
	*r = report{}
	var out []*pb.ReplicaReport
	for from := 0; from < max(len(offline), len(restored), len(strays), len(former)); from += maxOutcomes {
		piece := func(of []fencing.HeldReplica) []*pb.TopicReplicas {
			return fencing.WireReplicas(of[min(from, len(of)):min(from+maxOutcomes, len(of))])
		}
		out = append(out, &pb.ReplicaReport{
			Offline: piece(offline), Restored: piece(restored), Strays: piece(strays), FormerStrays: piece(former),
		})
	}
	return out
}

// full reports whether nothing more should be read from the stream.
func (o *outbox) full() bool { return len(o.pongs)+len(o.acks) >= maxAnswers }

// take empties the outbox: pongs, acks, results, and what else there is to
// report, which may be newer than the results.
func (o *outbox) take() []*pb.CommandsResponse {
	var out []*pb.CommandsResponse
	for _, p := range o.pongs {
		out = append(out, &pb.CommandsResponse{Response: &pb.CommandsResponse_Pong{Pong: p}})
	}
	for _, ack := range o.acks {
		out = append(out, &pb.CommandsResponse{Response: &pb.CommandsResponse_Ack{Ack: ack}})
	}
	for results := o.results; len(results) > 0; {
		n := min(len(results), maxOutcomes)
		out = append(out, &pb.CommandsResponse{Response: &pb.CommandsResponse_Results{
			Results: &pb.PartitionResults{Outcomes: results[:n:n]},
		}})
		results = results[n:]
	}
	for _, r := range o.report.take() {
		out = append(out, &pb.CommandsResponse{Response: &pb.CommandsResponse_Report{Report: r}})
	}
	o.pongs, o.acks, o.results, o.at = nil, nil, nil, nil
	return out
}
