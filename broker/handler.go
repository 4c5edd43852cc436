package broker

import (
	"context"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
)

// PartitionState is what the controller said of one partition. Its slices must
// not be changed.
type PartitionState = fencing.PartitionState

// HeldReplica is a replica that the broker has on its disks.
type HeldReplica = fencing.HeldReplica

// UnknownLeaderEpoch is that of a replica of which nobody remembers it.
const UnknownLeaderEpoch = fencing.UnknownLeaderEpoch

// LiveBroker is a broker as metadata names it.
type LiveBroker = fencing.LiveBroker

// RemovedTopic is a topic that was deleted.
type RemovedTopic = fencing.RemovedTopic

// Endpoint is how a listener of a broker is reached.
type Endpoint = fencing.Endpoint

// Handler does what commands ask for. Its methods are called by several
// goroutines: those about one partition one after the other, UpdateMetadata one
// call after the other, everything else at the same time.
type Handler interface {
	// ApplyPartition makes the broker leader or follower of a partition as the
	// state says. It is called once for each leader epoch that is admitted,
	// unless a newer one takes its place first, and again after it failed.
	// The context ends when a newer leader epoch is admitted or the broker
	// stops; the call should then return soon, its error is of no interest.
	// An error that wraps ErrStorage takes the replica offline: the broker
	// neither leads nor is in the ISR, and the call is repeated every 30 s, or
	// after SetOnline, until it succeeds. After any other error the controller
	// tries again at once, then less and less often.
	// A replica that is not there must not be created unless s.MayCreate; the
	// error is ErrStorage then, for it may be on a disk that failed.
	ApplyPartition(ctx context.Context, s PartitionState) error
	// StopReplica ends what the broker does for a partition, and with
	// deleteData deletes what it has stored of it, which may be what an earlier
	// process has left: the broker may not have heard of the partition. Without
	// deleteData what is stored is kept, as of a stray: a replica that nobody
	// has assigned to this broker.
	// Context and errors are as for ApplyPartition.
	StopReplica(ctx context.Context, topic string, id cluster.PartitionID, deleteData bool) error
	// AdoptISR tells of a newer ISR within the leader epoch that was applied
	// last, whether a command or the answer to AlterPartition brought it. It
	// must not block.
	AdoptISR(s PartitionState)
	// UpdateMetadata tells what changed in the cluster. Updates that arrive
	// while a call runs are handed over as one. The Broker answers what it
	// knows besides.
	UpdateMetadata(u MetadataUpdate)
}

// MetadataUpdate is what became newer since the last one. It must not be
// changed.
type MetadataUpdate struct {
	// Live are all live brokers by id, nil if the broker was not told yet.
	Live []LiveBroker
	// Partitions are the newest states of those that changed, in order of
	// arrival.
	Partitions []PartitionState
	// Removed are topics that were deleted.
	Removed []RemovedTopic
	// Settings are those of the whole cluster by name, with Live; see
	// `controllerd settings`. What is not set has its default.
	Settings map[string]string
	// Configs are what topics have set of their own, where it has changed; it wins
	// over Settings.
	Configs []TopicConfig
}

// TopicConfig is what a topic has set of its own.
type TopicConfig = fencing.TopicConfig
