package statemachine

import (
	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Limits of a new topic. They keep its records well below the size that a
// transaction may have.
const (
	MaxBlockSize     = 1024      // partitions in a block
	MaxBlockReplicas = 32_768    // replicas in a block
	MaxConfigBytes   = 64 * 1024 // names and values of all overrides together
)

// ValidateNewTopic refuses a topic that cannot be made in the cluster as the
// image shows it: a name that is illegal or collides (INVALID_TOPIC_EXCEPTION)
// or is taken (TOPIC_ALREADY_EXISTS), INVALID_PARTITIONS,
// INVALID_REPLICATION_FACTOR, replicas that are given and do not do
// (INVALID_REPLICA_ASSIGNMENT), a block size that is out of range
// (INVALID_REQUEST), INVALID_CONFIG.
func ValidateNewTopic(im *cluster.Image, nt *pb.NewTopic) *Rejection {
	if err := validateName(im, nt.GetName()); err != nil {
		return err
	}
	if err := validateAssignments(im, nt); err != nil {
		return err
	}
	partitions, rf := Shape(nt)
	block := blockSize(nt)
	switch {
	case partitions < 1 || partitions > cluster.MaxPartitions:
		return reject(cluster.InvalidPartitions, "%d partitions, want 1 to %d", partitions, cluster.MaxPartitions)
	case rf < 1:
		return reject(cluster.InvalidReplicationFactor, "replication factor %d, want at least 1", rf)
	case int(rf) > len(im.Brokers):
		return reject(cluster.InvalidReplicationFactor, "replication factor %d is more than the %d live brokers", rf, len(im.Brokers))
	}
	if err := checkBlockSize(block, rf); err != nil {
		return err
	}
	return validateConfig(nt.GetConfig(), ofATopic)
}

// Shape is how many partitions a new topic has, and how many replicas each.
func Shape(nt *pb.NewTopic) (partitions, rf int32) {
	if a := nt.GetAssignments(); len(a) > 0 {
		return int32(len(a)), int32(len(a[0].GetReplicas()))
	}
	return nt.GetPartitions(), nt.GetReplicationFactor()
}

// validateAssignments refuses replicas that cannot be those of partitions, if
// the request names them.
func validateAssignments(im *cluster.Image, nt *pb.NewTopic) *Rejection {
	given := nt.GetAssignments()
	if len(given) == 0 {
		return nil
	}
	if n := len(given); n > cluster.MaxPartitions {
		return reject(cluster.InvalidPartitions, "%d partitions, want 1 to %d", n, cluster.MaxPartitions)
	}
	partitions, rf := Shape(nt)
	if p, r := nt.GetPartitions(), nt.GetReplicationFactor(); contradicts(p, partitions) || contradicts(r, rf) {
		return reject(cluster.InvalidRequest, "partitions %d and replication factor %d contradict the assignment, which has %d and %d", p, r, partitions, rf)
	}
	for i, a := range given {
		replicas := cluster.BrokerIDs(a.GetReplicas())
		if n := len(replicas); n > 0 && n != int(rf) {
			return reject(cluster.InvalidReplicaAssignment, "partition %d has %d replicas, partition 0 has %d", i, n, rf)
		}
		if rej := validateReplicas(im, int32(i), replicas); rej != nil {
			return rej
		}
	}
	return nil
}

// contradicts reports whether a number that may be left out, as 0 or by Kafka's
// convention as -1, is another than the assignment has.
func contradicts(number, has int32) bool { return number != 0 && number != -1 && number != has }

func validateName(im *cluster.Image, name string) *Rejection {
	if err := cluster.ValidateTopicName(name); err != nil {
		return reject(cluster.InvalidTopicException, "%v", err)
	}
	if im.Topics[name] != nil {
		return reject(cluster.TopicAlreadyExists, "topic %q exists", name)
	}
	if key := im.Keys.Topic(name); im.ModRev(key) != 0 {
		return reject(cluster.TopicAlreadyExists, "topic %q exists, but its record is unreadable: see key %s", name, key)
	}
	if other := im.TopicsLike(name); len(other) > 0 {
		return reject(cluster.InvalidTopicException, "topic %q collides with topic %q: they differ in '.' and '_' only", name, other[0])
	}
	return nil
}

// newPartition is the first record of a partition. If none of its replicas is
// online it has no leader yet, and all of them as ISR: there are no data that
// one of them could lack.
func newPartition(replicas []cluster.BrokerID, v View) cluster.Partition {
	p := cluster.Partition{
		Replicas: replicas,
		Leader:   cluster.NoLeader,
		ISR:      replicas,
		Recovery: pb.RecoveryState_RECOVERY_STATE_RECOVERED,
		Cause:    pb.ChangeCause_CHANGE_CAUSE_CREATED,
		Decided:  v.Rev,
	}
	if o, ok := ElectOffline(replicas, replicas, v.Online, false); ok {
		p.Leader, p.ISR = o.Leader, o.ISR
	}
	return p
}

// sitesFor are the brokers that are online, with the draining ones only if
// they are fewer than needed.
func sitesFor(im *cluster.Image, needed int) []Site {
	var online, draining []Site
	for _, b := range im.SortedBrokers() {
		s := Site{ID: b.ID, Rack: b.Record.GetRack()}
		if b.Draining() {
			draining = append(draining, s)
		} else {
			online = append(online, s)
		}
	}
	if len(online) < needed {
		return append(online, draining...)
	}
	return online
}

func blockSize(nt *pb.NewTopic) int32 {
	if nt.GetBlockSize() == 0 {
		return cluster.DefaultBlockSize
	}
	return nt.GetBlockSize()
}
