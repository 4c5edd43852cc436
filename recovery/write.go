package recovery

import (
	"iter"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/epoch"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// historyName stands for the controller in the history.
const historyName = "controllerd recover"

// Begin is the transaction with which nobody takes the seat any more, and false
// if it was done before: then the key `recovery` has the revision rev. It fails
// if somebody holds the seat, has won it since, or runs a recovery too.
func (p *Plan) Begin(nowMs int64) (txn store.Txn, rev store.Rev, needed bool) {
	im, k := p.im, p.im.Keys
	rev = im.ModRev(k.Recovery())
	if im.Recovery != nil && cluster.Epoch(im.Recovery.GetEpoch()) == p.Epoch {
		return store.Txn{}, rev, false
	}
	seat := store.Missing(k.Controller())
	if im.Controller != nil && epoch.Vacant(im) {
		seat = store.ModRevIs(k.Controller(), im.Controller.ModRev)
	}
	record := &pb.RecoveryRecord{Epoch: int64(p.Epoch), Reason: p.opts.Reason, BeganMs: nowMs}
	return store.Txn{
		If:   []store.Cond{seat, store.ModRevIs(k.ControllerEpoch(), im.EpochRev), store.ModRevIs(k.Recovery(), rev)},
		Then: []store.Op{store.Put(k.Recovery(), cluster.Encode(record))},
	}, rev, true
}

// Chunk is one transaction between Begin and Finish.
type Chunk struct {
	Txn store.Txn
	// Partitions are raised when it and those before it are committed.
	Partitions int
}

// Chunks are the transactions that raise the records, while the key `recovery`
// has the revision rev. Each names what it found: a chunk that fails means that
// somebody writes.
func (p *Plan) Chunks(rev store.Rev, nowMs int64) iter.Seq[Chunk] {
	guard := store.ModRevIs(p.im.Keys.Recovery(), rev)
	return func(yield func(Chunk) bool) {
		c, size, raised := Chunk{Txn: store.Txn{If: []store.Cond{guard}}}, 0, p.Done
		for w := range p.writes(nowMs) {
			cond := store.ModRevIs(w.op.Key, p.im.ModRev(w.op.Key))
			more := cond.Size() + w.op.Size()
			if n := len(c.Txn.Then); n > 0 && (n+1 > store.MaxConds-1 || size+more > store.MaxTxnBytes) {
				if !yield(c) {
					return
				}
				c, size = Chunk{Txn: store.Txn{If: []store.Cond{guard}}}, 0
			}
			if size == 0 {
				size = c.Txn.Size()
			}
			raised += w.partitions
			size += more
			c.Txn.If, c.Txn.Then, c.Partitions = append(c.Txn.If, cond), append(c.Txn.Then, w.op), raised
		}
		if len(c.Txn.Then) > 0 {
			yield(c)
		}
	}
}

// write is one key, with how many partitions it raises.
type write struct {
	op         store.Op
	partitions int
}

// writes are the keys that are not as they are to be: blocks, tombstones, nodes
// and the history beyond what is kept.
func (p *Plan) writes(nowMs int64) iter.Seq[write] {
	return func(yield func(write) bool) {
		k, going := p.im.Keys, true
		p.blocks(func(b *cluster.Block) bool {
			changes := map[int32]*cluster.Partition{}
			for i, part := range b.Partitions() {
				if !p.done(part) {
					next := p.raised(cluster.PartitionID{Topic: b.ID.Topic, Index: i}, part)
					next.ChangedMs = nowMs
					changes[i] = &next
				}
			}
			going = len(changes) == 0 || yield(write{store.Put(k.Block(b.ID), b.With(changes, nil).Encode()), len(changes)})
			return going
		})
		for _, op := range slices.Concat(p.tombstones(), p.nodes(), p.oldTerms()) {
			if going = going && yield(write{op: op}); !going {
				return
			}
		}
	}
}

// tombstones are raised as their partitions would be.
func (p *Plan) tombstones() (out []store.Op) {
	for _, t := range buried(p.im) {
		if cluster.Epoch(t.Record.GetControllerEpoch()) == p.Epoch {
			continue
		}
		r := proto.Clone(t.Record).(*pb.TombstoneRecord)
		r.LeaderEpoch, r.ControllerEpoch = int32(p.highest(t))+p.opts.Step, int64(p.Epoch)
		out = append(out, store.Put(p.im.Keys.Tombstone(t.ID), cluster.Encode(r)))
	}
	return out
}

// nodes forget which process registered last: that which did so since the
// snapshot would be told that it was replaced, by one that is gone.
func (p *Plan) nodes() (out []store.Op) {
	for _, id := range p.im.KnownBrokers() {
		if n := p.im.Nodes[id]; n != nil && n.Record.GetNonce() != "" {
			r := proto.Clone(n.Record).(*pb.NodeRecord)
			r.Nonce = ""
			out = append(out, store.Put(p.im.Keys.Node(id), cluster.Encode(r)))
		}
	}
	return out
}

// oldTerms are those that elections will not come to any more, because epochs
// were skipped.
func (p *Plan) oldTerms() (out []store.Op) {
	for _, t := range slices.Sorted(maps.Keys(p.im.Terms)) {
		if t <= p.Epoch-epoch.TermsKept {
			out = append(out, store.Delete(p.im.Keys.Term(t)))
		}
	}
	return out
}

// Finish is the last transaction: it raises the controller epoch, ends the
// sessions of the snapshot, so that every broker gets an epoch above all
// earlier ones, and lets daemons have the seat again.
func (p *Plan) Finish(rev store.Rev, nowMs int64) store.Txn {
	k, began, reason := p.im.Keys, nowMs, p.opts.Reason
	if r := p.im.Recovery; r != nil {
		began = r.GetBeganMs()
		if reason == "" {
			reason = r.GetReason()
		}
	}
	term := &pb.TermRecord{
		Epoch: int64(p.Epoch), Controller: historyName, BeganMs: began, EndedMs: nowMs,
		EndCause: pb.EndCause_END_CAUSE_RECOVERED, EndReason: reason,
	}
	return store.Txn{
		If: []store.Cond{store.ModRevIs(k.Recovery(), rev)},
		Then: []store.Op{
			store.Put(k.ControllerEpoch(), cluster.Encode(&pb.EpochRecord{Epoch: int64(p.Epoch)})),
			store.Put(k.Term(p.Epoch), cluster.Encode(term)),
			store.DeletePrefix(k.Brokers()),
			store.Delete(k.Recovery()),
		},
	}
}
