package statemachine

import (
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Complete makes the first records of partitions that a topic's record wants
// and that are not made yet, up to limit and to the end of a block, and the
// record that counts them, which must be stored after them. The placement goes
// on from that of the topic's first partition, as in Kafka; if there is none it
// is drawn from the seed.
//
// Records that are there already, hidden until they are counted, are left as
// they are. So are those above a count that somebody has lowered by hand: the
// record counts them again. Nothing is made next to a record that is missing or
// unreadable:
// KAFKA_STORAGE_ERROR. Other refusals are those of a new topic.
func Complete(im *cluster.Image, t Term, topic *cluster.Topic, limit int32, seed uint64) (record *pb.TopicRecord, parts []Write, rej *Rejection) {
	made, size, rf := topic.Made(), topic.BlockSize(), topic.Record.GetReplicationFactor()
	if rej := checkBlockSize(size, rf); rej != nil {
		return nil, nil, rej
	}
	until := im.Had(topic)
	if until > made+limit {
		until = max((made+limit)/size*size, min(made/size*size+size, until))
	}
	for n := made / size; n*size < until; n++ {
		key := im.Keys.Block(cluster.BlockID{Topic: topic.ID, Index: n})
		if im.Block(cluster.BlockID{Topic: topic.ID, Index: n}) == nil && (im.ModRev(key) != 0 || n*size < made) {
			return nil, nil, reject(cluster.KafkaStorageError, "the block of partition %d is missing or unreadable", n*size)
		}
	}
	record = proto.Clone(topic.Record).(*pb.TopicRecord)
	record.PartitionsMade, record.PartitionsWanted = until, max(topic.Wanted(), until)
	there := func(i int32) bool {
		return im.Block(cluster.BlockID{Topic: topic.ID, Index: i / size}).Partition(i) != nil
	}
	first := made
	for first < until && there(first) {
		first++
	}
	if first == until {
		return record, nil, nil
	}
	sites := sitesFor(im, int(rf))
	if len(sites) == 0 {
		return nil, nil, reject(cluster.InvalidReplicationFactor, "there is no live broker")
	}
	start, shift := placement(im, topic, sites, seed)
	placed, rej := AutoAssign(sites, until-made, rf, start, shift, made)
	if rej != nil {
		return nil, nil, rej
	}
	cause := pb.ChangeCause_CHANGE_CAUSE_CREATED
	if made > 0 {
		cause = pb.ChangeCause_CHANGE_CAUSE_EXPANDED
	}
	v := ViewOf(im)
	for i := made; i < until; i++ {
		id := cluster.PartitionID{Topic: topic.ID, Index: i}
		if there(i) {
			continue
		}
		w := Write{ID: id, New: newPartition(placed[i-made], v)}
		w.New.Cause = cause
		t.stamp(&w.New)
		parts = append(parts, w)
	}
	return record, parts, nil
}

// placement is where the placement of a topic has begun.
func placement(im *cluster.Image, topic *cluster.Topic, sites []Site, seed uint64) (start, shift int) {
	if first := im.Partition(cluster.PartitionID{Topic: topic.ID}); first != nil {
		start = max(0, slices.IndexFunc(sites, func(s Site) bool { return s.ID == first.Replicas[0] }))
		return start, start
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	return rng.IntN(len(sites)), rng.IntN(len(sites))
}

// checkBlockSize refuses blocks that are out of range: their records could not
// be stored.
func checkBlockSize(block, rf int32) *Rejection {
	switch {
	case block < 1 || block > MaxBlockSize:
		return reject(cluster.InvalidRequest, "block size %d, want 1 to %d", block, MaxBlockSize)
	case int(block)*int(rf) > MaxBlockReplicas:
		return reject(cluster.InvalidRequest, "block size %d times replication factor %d is more than %d", block, rf, MaxBlockReplicas)
	}
	return nil
}
