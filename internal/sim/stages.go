package sim

import (
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

// someTopic is one that nobody has asked to delete, nil if there is none.
func (w *World) someTopic() *cluster.Topic {
	var out []*cluster.Topic
	for _, t := range w.truth().SortedTopics() {
		if !w.isDoomed(string(t.ID[:])) {
			out = append(out, t)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return pick(w, out...)
}

// deleteWhileAway deletes a topic while a broker that has data of it is away
// for longer or less than its session.
func (w *World) deleteWhileAway() {
	t := w.someTopic()
	if t == nil || w.chance(0.5) { // topics should live a while
		return
	}
	p := w.truth().Partition(cluster.PartitionID{Topic: t.ID})
	if p == nil {
		return
	}
	id := int(pick(w, p.Replicas...))
	if b := w.brokers[id]; !b.dead {
		b.kill()
	}
	w.doom(t.Name, t.Record)
	w.later(pick(w, w.p.session/4, 3*w.p.session), func() { w.startBroker(id) })
}

// expandTopic has a topic get more partitions.
func (w *World) expandTopic() {
	t := w.someTopic()
	if t == nil || t.Wanted() > 100 {
		return
	}
	r := proto.Clone(t.Record).(*pb.TopicRecord)
	r.PartitionsWanted += 1 + w.rng.Int32N(8)
	w.rewrite(w.keys.Topic(t.Name), func(kv store.KV) store.Op { return store.Put(kv.Key, cluster.Encode(r)) })
}

// manyBlocks is a topic whose blocks do not fit into one transaction.
const manyBlocks = store.MaxOps + 4

// killBetween lets the active die between two transactions of one topic.
func (w *World) killBetween() {
	w.trapped = true
	switch w.rng.IntN(3) {
	case 0:
		if t := w.someTopic(); t != nil {
			w.doom(t.Name, t.Record)
		}
	case 1:
		if w.topics < 4 {
			w.topics++
			w.insist(rpc.CreateTopics{CreateTopicsRequest: &pb.CreateTopicsRequest{
				Topics: []*pb.NewTopic{{
					Name: topicName(w.topics), Partitions: manyBlocks, ReplicationFactor: replication, BlockSize: 1,
				}},
				RequestId: topicName(w.topics),
			}})
			return
		}
		w.expandTopic()
	default:
		w.expandTopic()
	}
}

// stage is what a daemon's transaction has begun and not ended; empty: nothing.
func (w *World) stage(changes []store.Change) string {
	h, out := &w.checker.history, ""
	for _, ch := range changes {
		rest, _ := strings.CutPrefix(ch.KV.Key, w.keys.Prefix())
		dir, name, _ := strings.Cut(rest, "/")
		switch {
		case h.edited[ch.KV.ModRev] || ch.Deleted:
		case dir == "topics":
			var r pb.TopicRecord
			if proto.Unmarshal(ch.KV.Value, &r) == nil && r.GetDeleting() {
				return "between the mark and the deletion of a topic"
			}
			return ""
		case dir == "partitions":
			hex, _, _ := strings.Cut(name, "/")
			id, _ := topicIDOf(hex)
			var b pb.PartitionBlock
			switch r := h.shapes[string(id[:])]; {
			case r == nil:
				out = "between the blocks and the record of a new topic"
			case proto.Unmarshal(ch.KV.Value, &b) == nil && len(b.GetPartitions()) > 0 &&
				b.GetPartitions()[len(b.GetPartitions())-1].GetPartition() >= r.GetPartitionsMade():
				out = "between the blocks and the record of a topic that grows"
			}
		}
	}
	return out
}

// spring kills the active if it has been trapped.
func (w *World) spring(changes []store.Change) {
	if !w.trapped || w.calm {
		return
	}
	stage := w.stage(changes)
	if stage == "" {
		return
	}
	w.trapped = false
	w.after(w.upTo(pick(w, 0, w.p.latency, 4*w.p.latency)), func() {
		d := w.activeDaemon()
		if d == nil || w.calm {
			return
		}
		w.seen["active killed "+stage]++
		w.disturbed()
		d.kill()
		w.later(pick(w, w.p.ttl/8, 2*w.p.ttl), func() { w.startDaemon(d.index) })
	})
}
