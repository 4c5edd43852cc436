package statemachine

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// world is an image with a store behind it that does what it is told, and a
// machine that watches.
type world struct {
	t    testing.TB
	im   *cluster.Image
	m    *Machine
	term Term
	rev  store.Rev
	kvs  map[string]store.KV

	slice int // that is reviewed after each batch; 0: all
}

func newWorld(t testing.TB) *world {
	im := cluster.NewImage(cluster.KeysOf("test"))
	return &world{t: t, im: im, m: NewMachine(im, nil), term: Term{Epoch: 1}, rev: 100, kvs: map[string]store.KV{}}
}

// put and del change the store at a revision of their own; the machine sees it
// when the change is shown.
func (w *world) put(key string, value []byte) store.Change {
	w.rev++
	kv := store.KV{Key: key, Value: value, CreateRev: w.rev, ModRev: w.rev}
	if old, ok := w.kvs[key]; ok {
		kv.CreateRev = old.CreateRev
	}
	w.kvs[key] = kv
	return store.Change{KV: kv}
}

func (w *world) del(key string) store.Change {
	w.rev++
	delete(w.kvs, key)
	return store.Change{KV: store.KV{Key: key, ModRev: w.rev}, Deleted: true}
}

// show lets the machine see changes in one batch.
func (w *world) show(changes ...store.Change) {
	w.observe(w.im.Apply(store.Batch{Rev: w.rev, Changes: changes}))
}

func (w *world) observe(events []cluster.Event) {
	w.m.Observe(events)
	if w.slice > 0 {
		w.m.Continue(w.slice)
		return
	}
	for w.m.Reviewing() {
		w.m.Continue(1000)
	}
}

// relist lets the machine see the whole store as a list.
func (w *world) relist() {
	b := store.Batch{Rev: w.rev, Reset: true}
	for _, key := range slices.Sorted(maps.Keys(w.kvs)) {
		b.Changes = append(b.Changes, store.Change{KV: w.kvs[key]})
	}
	w.observe(w.im.Apply(b))
}

func (w *world) broker(id cluster.BrokerID, rack string, state pb.BrokerState) store.Change {
	record := &pb.BrokerRecord{NodeUuid: fmt.Sprint("node-", id), Nonce: "n", Rack: rack, State: state}
	return w.put(w.im.Keys.Broker(id), cluster.Encode(record))
}

// mark notes in the key of a live broker whether it is unreachable.
func (w *world) mark(id cluster.BrokerID, unreachable bool) store.Change {
	record := proto.Clone(w.im.Brokers[id].Record).(*pb.BrokerRecord)
	record.Unreachable = unreachable
	return w.put(w.im.Keys.Broker(id), cluster.Encode(record))
}

func (w *world) up(ids ...cluster.BrokerID) {
	w.show(w.each(ids, func(id cluster.BrokerID) store.Change {
		return w.broker(id, "", pb.BrokerState_BROKER_STATE_RUNNING)
	})...)
}

func (w *world) down(ids ...cluster.BrokerID) {
	w.show(w.each(ids, func(id cluster.BrokerID) store.Change { return w.del(w.im.Keys.Broker(id)) })...)
}

func (w *world) drain(ids ...cluster.BrokerID) {
	w.show(w.each(ids, func(id cluster.BrokerID) store.Change {
		return w.broker(id, "", pb.BrokerState_BROKER_STATE_DRAINING)
	})...)
}

// restart takes brokers down and up again, all in one batch.
func (w *world) restart(ids ...cluster.BrokerID) {
	changes := w.each(ids, func(id cluster.BrokerID) store.Change { return w.del(w.im.Keys.Broker(id)) })
	changes = append(changes, w.each(ids, func(id cluster.BrokerID) store.Change {
		return w.broker(id, "", pb.BrokerState_BROKER_STATE_RUNNING)
	})...)
	w.show(changes...)
}

func (w *world) each(ids []cluster.BrokerID, change func(cluster.BrokerID) store.Change) []store.Change {
	var out []store.Change
	for _, id := range ids {
		out = append(out, change(id))
	}
	return out
}

// topic stores a topic with the given partitions, two in a block.
func (w *world) topic(name string, parts ...cluster.Partition) cluster.TopicID {
	id := topicID(name)
	n := int32(len(parts))
	writes := make([]Write, n)
	for i, p := range parts {
		writes[i] = Write{ID: cluster.PartitionID{Topic: id, Index: int32(i)}, New: p}
	}
	w.made(name, &pb.TopicRecord{TopicId: id[:], PartitionsWanted: n, PartitionsMade: n, BlockSize: 2}, writes)
	return id
}

// made stores a new topic, its record last.
func (w *world) made(name string, record *pb.TopicRecord, writes []Write) {
	changes := w.blocks(writes, record.GetBlockSize())
	w.show(append(changes, w.put(w.im.Keys.Topic(name), cluster.Encode(record)))...)
}

func topicID(name string) cluster.TopicID {
	var id cluster.TopicID
	copy(id[:], name)
	return id
}

// write stores writes and checks that each is legal.
func (w *world) write(writes []Write) {
	w.t.Helper()
	for _, x := range writes {
		if err := CheckEdge(x.Old, &x.New); err != nil {
			w.t.Fatalf("%v: %v", x.ID, err)
		}
		if x.Old != w.im.Partition(x.ID) {
			w.t.Fatalf("%v: the write replaces another record than the one in the image", x.ID)
		}
	}
	w.show(w.blocks(writes, 0)...)
}

// blocks puts the blocks that hold the writes, of the given size, or of that
// of the topics if it is 0.
func (w *world) blocks(writes []Write, size int32) []store.Change {
	byBlock := map[cluster.BlockID]map[int32]*cluster.Partition{}
	var order []cluster.BlockID
	for i := range writes {
		n := size
		if n == 0 {
			n = w.im.TopicByID(writes[i].ID.Topic).BlockSize()
		}
		id := cluster.BlockOf(writes[i].ID, n)
		if byBlock[id] == nil {
			byBlock[id] = map[int32]*cluster.Partition{}
			order = append(order, id)
		}
		byBlock[id][writes[i].ID.Index] = &writes[i].New
	}
	var out []store.Change
	for _, id := range order {
		out = append(out, w.put(w.im.Keys.Block(id), w.im.Block(id).With(byBlock[id], nil).Encode()))
	}
	return out
}

// settle steps until nothing is left to do, which one step must reach.
func (w *world) settle() []Write {
	w.t.Helper()
	writes := w.m.Step(w.term, 1<<30, 1<<30)
	w.write(writes)
	if again := w.m.Step(w.term, 1<<30, 1<<30); len(again) > 0 || w.m.Agenda() != 0 {
		w.t.Fatalf("after a step %d writes are left: %v", w.m.Agenda(), again)
	}
	w.checkAgenda()
	return writes
}

// checkAgenda holds the agenda that is kept by events against one that is made
// from the whole image.
func (w *world) checkAgenda() {
	w.t.Helper()
	got, want := w.m.due.first(1<<30), NewMachine(w.im, w.m.offline).due.first(1<<30)
	if !slices.Equal(got, want) || w.m.Agenda() != len(want) {
		w.t.Fatalf("the agenda is %v (%d), want %v", got, w.m.Agenda(), want)
	}
}

// partition is the state of partition 0 of the only topic.
func (w *world) partition(topic cluster.TopicID) *cluster.Partition {
	w.t.Helper()
	p := w.im.Partition(cluster.PartitionID{Topic: topic})
	if p == nil {
		w.t.Fatalf("no partition; faults: %v", w.im.SortedFaults())
	}
	return p
}

// state is a record in short.
func state(p *cluster.Partition) string {
	s := fmt.Sprintf("leader %d isr %v le %d pe %d", p.Leader, p.ISR, p.LeaderEpoch, p.PartitionEpoch)
	if recovering(p) {
		s += " recovering"
	}
	return s
}

// entry is an AlterPartition entry of a leader that knows all about p.
func (w *world) entry(p *cluster.Partition, isr ...cluster.BrokerID) *pb.AlterPartitionEntry {
	e := &pb.AlterPartitionEntry{
		LeaderEpoch:    int32(p.LeaderEpoch),
		PartitionEpoch: int32(p.PartitionEpoch),
		Recovery:       pb.RecoveryState_RECOVERY_STATE_RECOVERED,
	}
	for _, id := range isr {
		epoch := int64(-1)
		if b := w.im.Brokers[id]; b != nil {
			epoch = int64(b.Epoch)
		}
		e.NewIsr = append(e.NewIsr, &pb.IsrMember{BrokerId: int32(id), BrokerEpoch: epoch})
	}
	return e
}

// alter sends an entry of the topic's partition 0 and stores what comes of it.
func (w *world) alter(topic cluster.TopicID, sender cluster.BrokerID, e *pb.AlterPartitionEntry) *Rejection {
	w.t.Helper()
	var epoch cluster.BrokerEpoch
	if b := w.im.Brokers[sender]; b != nil {
		epoch = b.Epoch
	}
	x, rej := w.m.Alter(w.term, sender, epoch, cluster.PartitionID{Topic: topic, Index: e.GetPartition()}, e)
	if x != nil {
		w.write([]Write{*x})
	}
	return rej
}

// elect does what somebody asks for, and says what came of it.
func (w *world) elect(topic cluster.TopicID, index int32, e Election) string {
	w.t.Helper()
	x, rej := w.m.Elect(w.term, cluster.PartitionID{Topic: topic, Index: index}, e)
	if rej != nil {
		return string(rej.Reason)
	}
	w.write([]Write{*x})
	return fmt.Sprintf("leader %d", x.New.Leader)
}

func ids(list ...cluster.BrokerID) []cluster.BrokerID { return list }
