package statemachine

import (
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// MarkDeleting is the record of a topic that is to be deleted: from then on
// nothing of it is elected or altered.
func MarkDeleting(t *cluster.Topic, reason string) *pb.TopicRecord {
	r := proto.Clone(t.Record).(*pb.TopicRecord)
	r.Deleting, r.DeleteReason = true, reason
	return r
}

// Bury makes the tombstone of a topic: who may hold which replicas, and a
// leader epoch above that of each. It is nil if nobody can hold any.
//
// Of a partition whose record is missing or unreadable every broker that is
// known may hold a replica, at any leader epoch.
func Bury(im *cluster.Image, t Term, topic *cluster.Topic) *pb.TombstoneRecord {
	held := map[cluster.BrokerID][]int32{}
	highest, unknown := cluster.LeaderEpoch(0), false
	im.Partitions(topic, func(id cluster.PartitionID, p *cluster.Partition) {
		if p == nil {
			unknown = true
			return
		}
		highest = max(highest, p.LeaderEpoch)
		for _, b := range slices.Concat(p.Replicas, p.Adding, p.Removing) {
			if n := len(held[b]); n == 0 || held[b][n-1] != id.Index {
				held[b] = append(held[b], id.Index)
			}
		}
	})
	highest++
	if unknown {
		highest = math.MaxInt32
		for b := range held {
			held[b] = nil
		}
		for _, b := range im.KnownBrokers() {
			held[b] = nil
		}
	}
	if len(held) == 0 {
		return nil
	}
	r := cluster.NewTombstone(topic, held)
	r.LeaderEpoch, r.Reason = int32(highest), topic.Record.GetDeleteReason()
	r.ControllerEpoch, r.DeletedMs = int64(t.Epoch), t.NowMs
	return r
}

// FindTopic is the topic that a request to delete means: by name
// (UNKNOWN_TOPIC_OR_PARTITION), by id (UNKNOWN_TOPIC_ID), or by both, which then
// must agree (INCONSISTENT_TOPIC_ID). While its record may be one that is
// unreadable, nothing is known of it (KAFKA_STORAGE_ERROR).
func FindTopic(im *cluster.Image, asked *pb.TopicToDelete) (*cluster.Topic, *Rejection) {
	if len(asked.GetTopicId()) == 0 {
		t := im.Topics[asked.GetName()]
		switch {
		case t != nil:
			return t, nil
		case unreadable(im, asked.GetName()):
			return nil, reject(cluster.KafkaStorageError, "the record of topic %q is unreadable", asked.GetName())
		}
		return nil, reject(cluster.UnknownTopicOrPartition, "topic %q does not exist", asked.GetName())
	}
	id, err := cluster.TopicIDFrom(asked.GetTopicId())
	if err != nil {
		return nil, reject(cluster.UnknownTopicID, "%v", err)
	}
	t := im.TopicByID(id)
	switch {
	case t == nil && unreadable(im, asked.GetName()):
		return nil, reject(cluster.KafkaStorageError, "no topic has id %s, but there are records that are unreadable", id)
	case t == nil:
		return nil, reject(cluster.UnknownTopicID, "no topic has id %s", id)
	case asked.GetName() != "" && asked.GetName() != t.Name:
		return nil, reject(cluster.InconsistentTopicID, "topic id %s belongs to topic %q, not to %q", id, t.Name, asked.GetName())
	}
	return t, nil
}

// unreadable reports whether the record of that topic, or with no name that of
// any topic, is there and cannot be read.
func unreadable(im *cluster.Image, name string) bool {
	if name != "" {
		return im.Topics[name] == nil && im.ModRev(im.Keys.Topic(name)) != 0
	}
	return im.UnreadableTopics()
}
