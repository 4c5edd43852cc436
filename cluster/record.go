package cluster

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// Controller is the key of the active daemon.
type Controller struct {
	Record *pb.ControllerRecord
	ModRev store.Rev
	Lease  store.LeaseID // the lease that the key is really attached to
}

// Candidate is a daemon that would take the seat.
type Candidate struct {
	Record    *pb.CandidateRecord
	Lease     store.LeaseID
	CreateRev store.Rev
}

// Broker is a live broker.
type Broker struct {
	ID     BrokerID
	Epoch  BrokerEpoch
	ModRev store.Rev
	Lease  store.LeaseID
	Record *pb.BrokerRecord
}

// Draining reports whether the broker is not electable and not fit for an ISR,
// though it is live: it is in controlled shutdown, or unreachable.
func (b *Broker) Draining() bool { return b.ShuttingDown() || b.Unreachable() }

// ShuttingDown reports whether the broker is in controlled shutdown.
func (b *Broker) ShuttingDown() bool {
	return b.Record.GetState() == pb.BrokerState_BROKER_STATE_DRAINING
}

// Unreachable reports whether some active controller found that the broker,
// though it has a session, answers on no stream of commands.
func (b *Broker) Unreachable() bool { return b.Record.GetUnreachable() }

var errNoNode = errors.New("decode node: no node uuid")

// Node is the owner of a broker id.
type Node struct {
	ID     BrokerID
	ModRev store.Rev
	Record *pb.NodeRecord
}

// Topic is a topic whose record is readable.
type Topic struct {
	Name   string
	ID     TopicID
	ModRev store.Rev
	Record *pb.TopicRecord
}

// Made is the number of partitions that exist.
func (t *Topic) Made() int32 { return t.Record.GetPartitionsMade() }

// Wanted is the number of partitions that there shall be.
func (t *Topic) Wanted() int32 { return t.Record.GetPartitionsWanted() }

// Deleting reports whether the topic is to be deleted.
func (t *Topic) Deleting() bool { return t.Record.GetDeleting() }

// BlockSize is how many partition records share a key.
func (t *Topic) BlockSize() int32 { return t.Record.GetBlockSize() }

// Term is one entry of the history of controllers.
type Term struct {
	Record *pb.TermRecord
	ModRev store.Rev
}

// Fault is a key that could not be read. It counts as missing; nothing is
// deleted because of it.
type Fault struct {
	Key    string
	ModRev store.Rev
	Reason string
}

// MaxPartitions is the most partitions that a topic can have.
const MaxPartitions = 1_000_000

func decodeTopic(name string, kv store.KV) (*Topic, error) {
	r := &pb.TopicRecord{}
	if err := proto.Unmarshal(kv.Value, r); err != nil {
		return nil, fmt.Errorf("decode topic: %w", err)
	}
	id, err := TopicIDFrom(r.GetTopicId())
	switch {
	case err != nil:
		return nil, err
	case r.GetBlockSize() < 1:
		return nil, fmt.Errorf("decode topic: block size %d", r.GetBlockSize())
	case r.GetPartitionsMade() < 0 || r.GetPartitionsMade() > MaxPartitions:
		return nil, fmt.Errorf("decode topic: %d partitions", r.GetPartitionsMade())
	case r.GetPartitionsWanted() > MaxPartitions:
		return nil, fmt.Errorf("decode topic: %d partitions wanted", r.GetPartitionsWanted())
	}
	return &Topic{Name: name, ID: id, ModRev: kv.ModRev, Record: r}, nil
}

func decodeBroker(id BrokerID, kv store.KV) (*Broker, error) {
	r := &pb.BrokerRecord{}
	if err := proto.Unmarshal(kv.Value, r); err != nil {
		return nil, fmt.Errorf("decode broker: %w", err)
	}
	if r.GetNodeUuid() == "" || r.GetNonce() == "" {
		return nil, fmt.Errorf("decode broker: no node uuid or nonce")
	}
	return &Broker{ID: id, Epoch: BrokerEpoch(kv.CreateRev), ModRev: kv.ModRev, Lease: kv.Lease, Record: r}, nil
}

func decodeEpoch(kv store.KV) (Epoch, error) {
	r := &pb.EpochRecord{}
	if err := proto.Unmarshal(kv.Value, r); err != nil {
		return 0, fmt.Errorf("decode controller epoch: %w", err)
	}
	if r.GetEpoch() < 1 || Epoch(r.GetEpoch()) >= MaxEpoch {
		return 0, fmt.Errorf("decode controller epoch: %d", r.GetEpoch())
	}
	return Epoch(r.GetEpoch()), nil
}
