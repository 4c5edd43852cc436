package cluster

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// Tombstone is what is left of a deleted topic until all brokers that may hold
// replicas of it have confirmed that they do not any more.
type Tombstone struct {
	ID     TopicID
	ModRev store.Rev
	Record *pb.TombstoneRecord
}

// maxTombstoneBytes bounds the record of a tombstone in bytes: what is longer
// names the brokers only.
const maxTombstoneBytes = 256 << 10

// NewTombstone is the record for a topic of which each broker may hold the
// given partitions, nil for any of them.
func NewTombstone(t *Topic, held map[BrokerID][]int32) *pb.TombstoneRecord {
	r := &pb.TombstoneRecord{Topic: t.Name, Partitions: t.Made()}
	for _, id := range slices.Sorted(maps.Keys(held)) {
		h := &pb.TombstoneHolder{BrokerId: int32(id)}
		last := int32(-1)
		for _, i := range slices.Sorted(slices.Values(held[id])) {
			h.PartitionSteps = append(h.PartitionSteps, i-last)
			last = i
		}
		r.Holders = append(r.Holders, h)
	}
	if proto.Size(r) > maxTombstoneBytes {
		for _, h := range r.GetHolders() {
			h.PartitionSteps = nil
		}
	}
	return r
}

// LeaderEpoch is above that of each of the topic's partitions.
func (t *Tombstone) LeaderEpoch() LeaderEpoch { return LeaderEpoch(t.Record.GetLeaderEpoch()) }

// Holds reports whether the broker may hold replicas.
func (t *Tombstone) Holds(id BrokerID) bool { return t.holder(id) != nil }

func (t *Tombstone) holder(id BrokerID) *pb.TombstoneHolder {
	for _, h := range t.Record.GetHolders() {
		if BrokerID(h.GetBrokerId()) == id {
			return h
		}
	}
	return nil
}

// Partitions are those that the broker may hold, in order.
func (t *Tombstone) Partitions(id BrokerID) []int32 {
	h := t.holder(id)
	if h == nil {
		return nil
	}
	var out []int32
	if len(h.GetPartitionSteps()) == 0 {
		for i := range t.Record.GetPartitions() {
			out = append(out, i)
		}
		return out
	}
	at := int32(-1)
	for _, step := range h.GetPartitionSteps() {
		at += step
		out = append(out, at)
	}
	return out
}

// Without is the record when the given brokers hold nothing any more, nil if
// nobody does.
func (t *Tombstone) Without(confirmed func(BrokerID) bool) *pb.TombstoneRecord {
	r := proto.Clone(t.Record).(*pb.TombstoneRecord)
	r.Holders = slices.DeleteFunc(r.Holders, func(h *pb.TombstoneHolder) bool { return confirmed(BrokerID(h.GetBrokerId())) })
	if len(r.GetHolders()) == 0 {
		return nil
	}
	return r
}

func decodeTombstone(id TopicID, kv store.KV) (*Tombstone, error) {
	r := &pb.TombstoneRecord{}
	if err := proto.Unmarshal(kv.Value, r); err != nil {
		return nil, fmt.Errorf("decode tombstone: %w", err)
	}
	switch n := r.GetPartitions(); {
	case n < 0 || n > MaxPartitions:
		return nil, fmt.Errorf("decode tombstone: %d partitions", n)
	case r.GetLeaderEpoch() < 1:
		return nil, fmt.Errorf("decode tombstone: leader epoch %d", r.GetLeaderEpoch())
	case len(r.GetHolders()) == 0:
		return nil, fmt.Errorf("decode tombstone: no brokers")
	}
	t := &Tombstone{ID: id, ModRev: kv.ModRev, Record: r}
	for _, h := range r.GetHolders() {
		at := int64(-1)
		for _, step := range h.GetPartitionSteps() {
			at += int64(step)
			if step < 1 || at >= int64(r.GetPartitions()) {
				return nil, fmt.Errorf("decode tombstone: broker %d: partition %d of %d", h.GetBrokerId(), at, r.GetPartitions())
			}
		}
	}
	return t, nil
}

func (im *Image) applyTombstone(id TopicID, c store.Change, events []Event) ([]Event, error) {
	old := im.Tombstones[id]
	var t *Tombstone
	var err error
	if !c.Deleted {
		t, err = decodeTombstone(id, c.KV)
	}
	switch {
	case t == nil && old == nil:
		return events, err
	case t == nil:
		delete(im.Tombstones, id)
		return append(events, TombstoneGone{old}), err
	}
	im.Tombstones[id] = t
	if old == nil {
		return append(events, TombstoneAdded{t, im.applying}), nil
	}
	return append(events, TombstoneChanged{old, t}), nil
}
