package sim

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

func (w *World) deleteSeat() {
	w.rewrite(w.keys.Controller(), func(kv store.KV) store.Op { return store.Delete(kv.Key) })
}

// overwriteSeat puts it without a lease, as etcdctl does.
func (w *World) overwriteSeat() {
	w.rewrite(w.keys.Controller(), func(kv store.KV) store.Op {
		return store.Put(kv.Key, cluster.Encode(&pb.ControllerRecord{Id: "operator"}))
	})
}

// editEpoch raises the epoch key, takes it to where no epoch is believed, or
// deletes it; not one that no term has had yet: brokers may have heard of it,
// and nobody could know then how high it was.
func (w *World) editEpoch() {
	e := pick(w, w.forged(), cluster.MaxEpoch, 0)
	if h := &w.checker.history; e == 0 && h.key > h.epoch {
		return
	}
	w.rewrite(w.keys.ControllerEpoch(), func(kv store.KV) store.Op {
		if e == 0 {
			return store.Delete(kv.Key)
		}
		return store.Put(kv.Key, cluster.Encode(&pb.EpochRecord{Epoch: int64(e)}))
	})
}

// forged is an epoch that no term has had yet.
func (w *World) forged() cluster.Epoch {
	return max(w.checker.history.epoch, w.checker.history.key) + 1 + cluster.Epoch(w.rng.IntN(3))
}

// forgeTerm writes the history of a term that nobody has won.
func (w *World) forgeTerm() {
	e := pick(w, w.forged(), cluster.MaxEpoch)
	r := &pb.TermRecord{Epoch: int64(e), Controller: "operator"}
	if _, err := w.etcd.byHand(store.Txn{Then: []store.Op{store.Put(w.keys.Term(e), cluster.Encode(r))}}); err != nil {
		w.tracef("by hand: %v", err)
	}
}

// rewrite changes a key by hand, if it exists, and returns the revision.
func (w *World) rewrite(key string, op func(store.KV) store.Op) store.Rev {
	read, err := w.etcd.model.Get(key)
	if err != nil || len(read.KVs) == 0 {
		return 0
	}
	kv := read.KVs[0]
	res, err := w.etcd.byHand(store.Txn{If: []store.Cond{store.ModRevIs(key, kv.ModRev)}, Then: []store.Op{op(kv)}})
	if err != nil {
		w.tracef("by hand: %v", err)
	}
	return res.Rev
}

// putBack is the put of another value that leaves the key on its lease.
func putBack(kv store.KV, value []byte) store.Op {
	if kv.Lease != 0 {
		return store.PutKeepLease(kv.Key, value)
	}
	return store.Put(kv.Key, value)
}

// spoiled is a key whose value somebody has replaced for a while.
type spoiled struct {
	kv  store.KV  // as it was
	rev store.Rev // of the other value; 0: it was not written
}

// unreadable is no record of any kind.
const unreadable = "{"

// headless reports whether the key that names the cluster is spoiled: then no
// daemon campaigns.
func (w *World) headless() bool {
	read, err := w.etcd.model.Get(w.keys.Cluster())
	return err == nil && len(read.KVs) == 1 && string(read.KVs[0].Value) == unreadable
}

// spoil destroys the value of any key, and repairs it after a while.
func (w *World) spoil() {
	kvs := w.etcd.model.List(w.keys.Prefix(), false).KVs
	if len(kvs) == 0 {
		return
	}
	kv := pick(w, kvs...)
	w.replace(kv, []byte(unreadable), w.p.ttl)
}

// drain makes a broker not fit to lead for a while.
func (w *World) drain() {
	id := cluster.BrokerID(w.rng.IntN(brokers))
	if w.chance(0.5) {
		w.setState(id, pb.BrokerState_BROKER_STATE_DRAINING)
	} else {
		w.drainBroker(id)
	}
	w.later(w.p.ttl, func() { w.undrain(id) })
}

// undrain ends it, as soon as etcd takes the write.
func (w *World) undrain(id cluster.BrokerID) {
	if !w.setState(id, pb.BrokerState_BROKER_STATE_RUNNING) {
		w.later(w.p.ttl, func() { w.undrain(id) })
	}
}

// setState writes the state of a broker by hand, beside what the active writes
// into the same key. It reports whether the key does not ask for it any more.
func (w *World) setState(id cluster.BrokerID, state pb.BrokerState) bool {
	b := w.truth().Brokers[id]
	if b == nil || b.Record.GetState() == state {
		return true
	}
	r := proto.Clone(b.Record).(*pb.BrokerRecord)
	r.State = state
	return w.rewrite(w.keys.Broker(id), func(kv store.KV) store.Op { return store.PutKeepLease(kv.Key, cluster.Encode(r)) }) != 0
}

// replace gives a key another value for a while, unless it has one already.
func (w *World) replace(kv store.KV, value []byte, d time.Duration) {
	if slices.ContainsFunc(w.spoiled, func(s spoiled) bool { return s.rev == kv.ModRev }) {
		return
	}
	s := spoiled{kv: kv, rev: w.rewrite(kv.Key, func(kv store.KV) store.Op { return putBack(kv, value) })}
	w.spoiled = append(w.spoiled, s)
	w.later(d, func() { w.repair(s) })
}

// repair puts the old value back, unless somebody has written another one.
func (w *World) repair(s spoiled) {
	read, err := w.etcd.model.Get(s.kv.Key)
	if err != nil || len(read.KVs) == 0 || read.KVs[0].ModRev != s.rev {
		return
	}
	rev := w.rewrite(s.kv.Key, func(kv store.KV) store.Op { return putBack(kv, s.kv.Value) })
	w.noteRepaired(s.kv, rev)
	if rev == 0 { // etcd has no space
		w.later(w.p.ttl, func() { w.repair(s) })
	}
}

// editBlock gives a partition another leader, or a smaller ISR, by hand.
func (w *World) editBlock() { w.changeBlock(func(*cluster.Partition) {}) }

// forgeBlock does so in the name of a term that nobody has won.
func (w *World) forgeBlock() {
	w.changeBlock(func(p *cluster.Partition) { p.ControllerEpoch = w.forged() })
}

func (w *World) changeBlock(change func(*cluster.Partition)) {
	im := w.truth()
	all := partitionsOf(im)
	if len(all) == 0 {
		return
	}
	id := pick(w, all...)
	p := im.Partition(id).Clone()
	p.Leader = pick(w, p.ISR...)
	if w.chance(0.5) {
		p.ISR = []cluster.BrokerID{p.Leader}
	}
	p.LeaderEpoch++
	p.PartitionEpoch++
	change(&p)
	block := cluster.BlockOf(id, im.TopicByID(id.Topic).BlockSize())
	value := im.Block(block).With(map[int32]*cluster.Partition{id.Index: &p}, nil).Encode()
	w.rewrite(w.keys.Block(block), func(kv store.KV) store.Op { return store.Put(kv.Key, value) })
}
