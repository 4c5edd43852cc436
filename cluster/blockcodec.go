package cluster

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// Blocks are most of what there is in a cluster, so they are read into records
// and written from them without a message in between. Fields are those of
// PartitionBlock and PartitionRecord.
const (
	fieldPartitions = 1

	fieldPartition       = 1
	fieldReplicas        = 2
	fieldAdding          = 3
	fieldRemoving        = 4
	fieldTarget          = 5
	fieldLeader          = 6
	fieldLeaderEpoch     = 7
	fieldPartitionEpoch  = 8
	fieldISR             = 9
	fieldRecovery        = 10
	fieldControllerEpoch = 11
	fieldCause           = 12
	fieldChangedMs       = 13
	fieldDecided         = 14
	fieldReason          = 15
)

var (
	errNoRecords   = errors.New("decode block: no records")
	errFieldNumber = errors.New("invalid field number")
	errNotUTF8     = errors.New("a reason that is not UTF-8")
)

// Encode is the block's value: what a deterministic Marshal of the message is.
func (b *Block) Encode() []byte {
	out := make([]byte, 0, 64*len(b.partitions)+len(b.unknown))
	var record []byte
	for i := range b.partitions {
		p := &b.partitions[i]
		record = p.appendTo(record[:0])
		if reason := b.reasons[p.index]; reason != "" {
			record = protowire.AppendString(protowire.AppendTag(record, fieldReason, protowire.BytesType), reason)
		}
		record = append(record, b.fields[p.index]...)
		out = protowire.AppendTag(out, fieldPartitions, protowire.BytesType)
		out = protowire.AppendBytes(out, record)
	}
	return append(out, b.unknown...)
}

func (p *Partition) appendTo(b []byte) []byte {
	b = appendInt(b, fieldPartition, int64(p.index))
	b = appendIDs(b, fieldReplicas, p.Replicas)
	b = appendIDs(b, fieldAdding, p.Adding)
	b = appendIDs(b, fieldRemoving, p.Removing)
	b = appendIDs(b, fieldTarget, p.Target)
	b = appendInt(b, fieldLeader, int64(p.Leader))
	b = appendInt(b, fieldLeaderEpoch, int64(p.LeaderEpoch))
	b = appendInt(b, fieldPartitionEpoch, int64(p.PartitionEpoch))
	b = appendIDs(b, fieldISR, p.ISR)
	b = appendInt(b, fieldRecovery, int64(p.Recovery))
	b = appendInt(b, fieldControllerEpoch, int64(p.ControllerEpoch))
	b = appendInt(b, fieldCause, int64(p.Cause))
	b = appendInt(b, fieldChangedMs, p.ChangedMs)
	return appendInt(b, fieldDecided, int64(p.Decided))
}

func appendInt(b []byte, field protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(v))
}

func appendIDs(b []byte, field protowire.Number, ids []BrokerID) []byte {
	if len(ids) == 0 {
		return b
	}
	n := 0
	for _, id := range ids {
		n += protowire.SizeVarint(uint64(id))
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(n))
	for _, id := range ids {
		b = protowire.AppendVarint(b, uint64(id))
	}
	return b
}

func decodeBlock(id BlockID, kv store.KV) (*Block, error) {
	n, err := countRecords(kv.Value)
	if err != nil {
		return nil, fmt.Errorf("decode block: %w", err)
	}
	if n == 0 {
		return nil, errNoRecords
	}
	b := &Block{ID: id, ModRev: kv.ModRev, partitions: make([]Partition, 0, n)}
	d := decoder{block: b, utf8: true}
	for value := kv.Value; len(value) > 0; {
		num, typ, size := protowire.ConsumeField(value)
		if num == fieldPartitions && typ == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(value)
			record, _ := protowire.ConsumeBytes(value[tag:])
			if err := d.record(record); err != nil {
				return nil, fmt.Errorf("decode block: %w", err)
			}
		} else {
			b.unknown = appendField(b.unknown, value[:size])
		}
		value = value[size:]
	}
	return b, nil
}

// countRecords is how many records a block holds. It fails if the value is not
// the encoding of a message.
func countRecords(value []byte) (n int, err error) {
	for len(value) > 0 {
		num, typ, size := protowire.ConsumeField(value)
		if size < 0 {
			return 0, protowire.ParseError(size)
		}
		if num > protowire.MaxValidNumber {
			return 0, errFieldNumber
		}
		if num == fieldPartitions && typ == protowire.BytesType {
			n++
		}
		value = value[size:]
	}
	return n, nil
}

// appendField keeps a field that we do not know, as package proto does: its tag
// in the shortest form, the rest as it is.
func appendField(b, field []byte) []byte {
	num, typ, tag := protowire.ConsumeTag(field)
	return append(protowire.AppendTag(b, num, typ), field[tag:]...)
}

// decoder reads the records of one block.
type decoder struct {
	block *Block
	ids   []BrokerID // what is left of an array that the records share
	lists [fieldISR + 1][]BrokerID
	extra []byte

	reason []byte
	utf8   bool // all reasons were
}

// record reads the next record.
func (d *decoder) record(value []byte) error {
	b := d.block
	b.partitions = b.partitions[:len(b.partitions)+1]
	p := &b.partitions[len(b.partitions)-1]
	for i := range d.lists {
		d.lists[i] = d.lists[i][:0]
	}
	d.extra, d.reason = nil, nil
	for len(value) > 0 {
		num, typ, tag := consumeTag(value)
		switch {
		case tag < 0:
			return protowire.ParseError(tag)
		case num > protowire.MaxValidNumber:
			return errFieldNumber
		}
		size, known := d.field(p, num, typ, value[tag:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		if !known {
			d.extra = appendField(d.extra, value[:tag+size])
		}
		value = value[tag+size:]
	}
	if !d.utf8 {
		return errNotUTF8
	}
	if n := len(b.partitions); p.index < 0 || n > 1 && b.partitions[n-2].index >= p.index {
		return fmt.Errorf("partition %d out of order", p.index)
	}
	if d.extra != nil {
		if b.fields == nil {
			b.fields = map[int32][]byte{}
		}
		b.fields[p.index] = d.extra
	}
	b.explain(p.index, string(d.reason))
	d.keepLists(p)
	if err := p.check(); err != nil {
		return fmt.Errorf("partition %d: %w", p.index, err)
	}
	return nil
}

// keepLists moves the lists that were read to where they stay.
func (d *decoder) keepLists(p *Partition) {
	p.Replicas = d.keep(d.lists[fieldReplicas])
	p.Adding = d.keep(d.lists[fieldAdding])
	p.Removing = d.keep(d.lists[fieldRemoving])
	p.Target = d.keep(d.lists[fieldTarget])
	if p.ISR = p.Replicas; !slices.Equal(d.lists[fieldISR], p.Replicas) {
		p.ISR = d.keep(d.lists[fieldISR])
	}
}

// keep copies a list into the array that the block's records share: one for
// all of them, if they are alike.
func (d *decoder) keep(ids []BrokerID) []BrokerID {
	if len(ids) == 0 {
		return nil
	}
	if len(d.ids) < len(ids) {
		d.ids = make([]BrokerID, len(ids)*(1+cap(d.block.partitions)-len(d.block.partitions)))
	}
	out := d.ids[:len(ids):len(ids)]
	d.ids = d.ids[len(ids):]
	copy(out, ids)
	return out
}

// field reads the value of a field of a record and returns how long it is, or
// below 0 an error of package protowire, and whether it is one that we know.
func (d *decoder) field(p *Partition, num protowire.Number, typ protowire.Type, value []byte) (size int, known bool) {
	list := num >= fieldReplicas && num <= fieldTarget || num == fieldISR
	switch {
	case list && typ == protowire.BytesType:
		packed, n := protowire.ConsumeBytes(value)
		for len(packed) > 0 {
			v, m := consumeVarint(packed)
			if m < 0 {
				return m, true
			}
			d.lists[num] = append(d.lists[num], BrokerID(v))
			packed = packed[m:]
		}
		return n, true
	case typ == protowire.BytesType && num == fieldReason:
		d.reason, size = protowire.ConsumeBytes(value)
		d.utf8 = d.utf8 && utf8.Valid(d.reason)
		return size, true
	case typ == protowire.VarintType && num <= fieldDecided:
		v, n := consumeVarint(value)
		if list {
			d.lists[num] = append(d.lists[num], BrokerID(v))
		} else {
			p.set(num, v)
		}
		return n, true
	}
	return protowire.ConsumeFieldValue(num, typ, value), false
}

// consumeTag and consumeVarint are those of protowire, with the short way for a
// single byte, which most are.
func consumeTag(b []byte) (protowire.Number, protowire.Type, int) {
	if b[0] < 0x80 && b[0] >= 8 {
		return protowire.Number(b[0] >> 3), protowire.Type(b[0] & 7), 1
	}
	return protowire.ConsumeTag(b)
}

func consumeVarint(b []byte) (uint64, int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return protowire.ConsumeVarint(b)
}

// set takes in a field that is a number.
func (p *Partition) set(field protowire.Number, v uint64) {
	switch field {
	case fieldPartition:
		p.index = int32(v)
	case fieldLeader:
		p.Leader = BrokerID(v)
	case fieldLeaderEpoch:
		p.LeaderEpoch = LeaderEpoch(v)
	case fieldPartitionEpoch:
		p.PartitionEpoch = PartitionEpoch(v)
	case fieldRecovery:
		p.Recovery = pb.RecoveryState(v)
	case fieldControllerEpoch:
		p.ControllerEpoch = Epoch(v)
	case fieldCause:
		p.Cause = pb.ChangeCause(v)
	case fieldChangedMs:
		p.ChangedMs = int64(v)
	case fieldDecided:
		p.Decided = store.Rev(v)
	}
}
