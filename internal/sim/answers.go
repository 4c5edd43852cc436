package sim

import (
	"errors"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// ErrTakenBack is an answer of an active that does not know what it has
// answered before: its image does not show it yet. A leader that is told a
// smaller ISR than etcd holds could count on it.
var ErrTakenBack = errors.New("an answer that takes back an earlier one")

// entries visits what a request asks for, or what the answer says of it.
func entries[T any, R interface{ GetPartition() int32 }](topics []T, of func(T) ([]byte, []R), visit func(cluster.PartitionID, R)) {
	for _, t := range topics {
		id, all := of(t)
		topic, err := cluster.TopicIDFrom(id)
		if err != nil {
			continue
		}
		for _, e := range all {
			visit(cluster.PartitionID{Topic: topic, Index: e.GetPartition()}, e)
		}
	}
}

// asking notes what was asked, and what had been answered by then. The result
// is to be called with the answer.
func (d *simDaemon) asking(r rpc.Request) func(rpc.Answer) {
	req, ok := r.(rpc.Alter)
	if !ok {
		return func(rpc.Answer) {}
	}
	asked, before := map[cluster.PartitionID]epochs{}, map[cluster.PartitionID]epochs{}
	of := func(t *pb.AlterPartitionTopic) ([]byte, []*pb.AlterPartitionEntry) {
		return t.GetTopicId(), t.GetPartitions()
	}
	entries(req.GetTopics(), of, func(id cluster.PartitionID, e *pb.AlterPartitionEntry) {
		asked[id] = epochs{cluster.LeaderEpoch(e.GetLeaderEpoch()), cluster.PartitionEpoch(e.GetPartitionEpoch())}
		if was, known := d.answered[id]; known {
			before[id] = was
		}
	})
	return func(a rpc.Answer) {
		resp, ok := a.Response.(*pb.AlterPartitionResponse)
		if !ok {
			return
		}
		of := func(t *pb.AlterPartitionTopicResult) ([]byte, []*pb.AlterPartitionResult) {
			return t.GetTopicId(), t.GetPartitions()
		}
		entries(resp.GetTopics(), of, func(id cluster.PartitionID, r *pb.AlterPartitionResult) {
			was, known := before[id]
			d.answers(id, asked[id], was, known, r)
		})
	}
}

// answers takes in one answer. In runs whose watches lose events an image can
// be behind for a while without knowing it.
func (d *simDaemon) answers(id cluster.PartitionID, asked, was epochs, known bool, r *pb.AlterPartitionResult) {
	said := epochs{cluster.LeaderEpoch(r.GetState().GetLeaderEpoch()), cluster.PartitionEpoch(r.GetState().GetPartitionEpoch())}
	ok := r.GetError() == ""
	if ok && d.answered[id].below(said) {
		d.answered[id] = said
	}
	unaware := r.GetError() == string(cluster.NotController) // the request has higher epochs than the image
	if known && d.w.p.compare == 0 && (ok && said.below(was) || unaware && !was.below(asked)) {
		d.w.blame(ErrTakenBack, "%s answered leader epoch %d, partition epoch %d of %s before, and now %v %s",
			d.name, was.leader, was.partition, d.w.checker.name(id), r.GetState(), r.GetMessage())
	}
}
