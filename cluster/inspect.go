package cluster

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// RecordOf names what a key holds and gives an empty record of its kind. An
// error says that the layout has no such key.
func (k Keys) RecordOf(key string) (kind string, record proto.Message, err error) {
	p, err := k.parse(key)
	if err != nil {
		return "", nil, err
	}
	switch p.kind {
	case keyCluster:
		return "cluster", &pb.ClusterRecord{}, nil
	case keyController:
		return "controller", &pb.ControllerRecord{}, nil
	case keyEpoch:
		return "controller_epoch", &pb.EpochRecord{}, nil
	case keyRecovery:
		return "recovery", &pb.RecoveryRecord{}, nil
	case keySettings:
		return "settings", &pb.SettingsRecord{}, nil
	case keyCandidate:
		return "candidate", &pb.CandidateRecord{}, nil
	case keyTerm:
		return "term", &pb.TermRecord{}, nil
	case keyBroker:
		return "broker", &pb.BrokerRecord{}, nil
	case keyNode:
		return "node", &pb.NodeRecord{}, nil
	case keyTopic:
		return "topic", &pb.TopicRecord{}, nil
	case keyBlock:
		return "partitions", &pb.PartitionBlock{}, nil
	case keyTombstone:
		return "tombstone", &pb.TombstoneRecord{}, nil
	}
	return "", nil, errors.New("unknown key")
}

// Unreadable says why an image that holds other keys would count the value of
// a key as a fault; nil: it would not.
func (k Keys) Unreadable(kv store.KV, beside []store.KV) error {
	if f, bad := k.imageOf(kv, beside).Faults[kv.Key]; bad {
		return errors.New(strings.ReplaceAll(f.Reason, "\u00a0", " ")) // protobuf varies its blanks
	}
	return nil
}

// Useless says why a readable value would have no effect, or one that nobody
// can want: a key that lives as long as a lease without one, a topic that does
// not find its partitions any more, or of fewer than it has, partitions that are
// not those of the block, or blocks that no topic record counts.
func (k Keys) Useless(kv store.KV, beside []store.KV) error {
	p, err := k.parse(kv.Key)
	if err != nil {
		return err
	}
	im := k.imageOf(kv, beside)
	switch p.kind {
	case keyController, keyCandidate, keyBroker:
		if kv.Lease == 0 {
			return errors.New("without a lease the key would outlive whom it stands for")
		}
	case keyTerm:
		if t := im.Terms[p.epoch]; t != nil && Epoch(t.Record.GetEpoch()) != p.epoch {
			return fmt.Errorf("the key is that of epoch %d, the record names %d", p.epoch, t.Record.GetEpoch())
		}
	case keyTopic:
		return uselessTopic(im.Topics[p.name], k.imageOf(store.KV{}, beside).Topics[p.name])
	case keyBlock:
		return uselessBlock(im.Block(p.block), im.TopicByID(p.block.Topic))
	}
	return nil
}

// uselessTopic looks at the record of a topic and at the one that it replaces.
func uselessTopic(t, old *Topic) error {
	switch {
	case t == nil:
		return nil
	case t.Wanted() < t.Made():
		return fmt.Errorf("%d partitions wanted, %d made: none is ever taken away", t.Wanted(), t.Made())
	case old == nil:
		return nil
	case t.ID != old.ID:
		return fmt.Errorf("the id of the topic is %s, its partitions are stored under that", old.ID)
	case t.BlockSize() != old.BlockSize():
		return fmt.Errorf("the block size of the topic is %d, its partitions are stored in such blocks", old.BlockSize())
	case t.Made() != old.Made():
		return fmt.Errorf("%d partitions are made, the active alone counts them; more may be wanted", old.Made())
	}
	return nil
}

func uselessBlock(b *Block, t *Topic) error {
	switch {
	case b == nil:
		return nil
	case t == nil:
		return fmt.Errorf("no topic has the id %s", b.ID.Topic)
	}
	for i := range b.partitions {
		if n := b.partitions[i].index; n/t.BlockSize() != b.ID.Index {
			return fmt.Errorf("partition %d of topic %q belongs into block %d", n, t.Name, n/t.BlockSize())
		}
	}
	return nil
}

// imageOf is an image that holds a key beside others.
func (k Keys) imageOf(kv store.KV, beside []store.KV) *Image {
	im := NewImage(k)
	for _, other := range beside {
		if other.Key != kv.Key {
			im.Apply(store.Batch{Rev: other.ModRev, Changes: []store.Change{{KV: other}}})
		}
	}
	im.Apply(store.Batch{Rev: kv.ModRev, Changes: []store.Change{{KV: kv}}})
	return im
}
