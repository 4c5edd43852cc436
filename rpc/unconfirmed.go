package rpc

import (
	"maps"
	"slices"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// UpToDate reports whether a broker was told the newest state of a partition
// and has applied it. Of one without an open stream that is not known: it
// counts as not confirmed.
func (p *Pusher) UpToDate(b *cluster.Broker, id cluster.PartitionID) bool {
	t := p.targets[b.ID]
	if t == nil || t.epoch != b.Epoch || t.phase != open || !t.began || p.changes.find(id.Topic).of(id.Index) > t.cursor {
		return false
	}
	_, sent := t.pending[id]
	return !sent && t.retries[id] == nil && t.offline[id] == nil
}

// Unconfirmed is how many partition states and replicas of deleted topics a
// broker was told of, or is to be told of, and has not confirmed. It is false
// without an open stream.
func (p *Pusher) Unconfirmed(b *cluster.Broker) (int64, bool) {
	t := p.targets[b.ID]
	if t == nil || t.epoch != b.Epoch || t.phase != open || !t.began {
		return 0, false
	}
	n := int64(len(t.pending) + len(t.retries) + len(t.offline) + t.left)
	n += p.changes.last - t.cursor // of any broker: an upper bound, and 0 at rest
	return n + p.removals.of(t.id).last - t.burials.cursor, true
}

// unconfirmed counts, by live broker, the replicas among partitions of a topic
// that the broker has yet to confirm.
func (v View) unconfirmed(topic cluster.TopicID, parts []*pb.PartitionRecord) []*pb.UnconfirmedReplicas {
	if v.Pusher == nil {
		return nil
	}
	counts := map[int32]int32{}
	for _, part := range parts {
		for _, r := range part.GetReplicas() {
			b := v.Image.Brokers[cluster.BrokerID(r)]
			if b != nil && !v.Pusher.UpToDate(b, cluster.PartitionID{Topic: topic, Index: part.GetPartition()}) {
				counts[r]++
			}
		}
	}
	var out []*pb.UnconfirmedReplicas
	for _, id := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, &pb.UnconfirmedReplicas{BrokerId: id, Replicas: counts[id]})
	}
	return out
}
