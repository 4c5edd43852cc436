package scenarios

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// judge looks at all that happened:
//
//   - the epoch rises by one with each term that is won;
//   - topics and partitions change only while a claim stands, and partitions
//     under its epoch; their epochs never fall, nothing is deleted but what is
//     of a topic that leaves a tombstone, and blocks that nothing counts;
//   - for each epoch brokers hear from one sender, the one who won it;
//   - a broker that accepted an epoch accepts nothing below it;
//   - a topic whose creation was answered is there.
//
// What the test wrote by hand is exempt.
func (w *world) judge() {
	w.t.Helper()
	for _, fault := range w.tape.judge(w.allowUnclean) {
		w.t.Errorf("etcd: %s", fault)
	}
	terms := map[cluster.Epoch]string{}
	for _, c := range w.tape.after(0, func(key string) bool { return strings.HasPrefix(key, w.keys.Prefix()+"terms/") }) {
		r := &pb.TermRecord{}
		if !c.Deleted && proto.Unmarshal(c.KV.Value, r) == nil {
			terms[cluster.Epoch(r.GetEpoch())] = r.GetController()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.brokers {
		highest := cluster.Epoch(0)
		for _, o := range b.observed() {
			if !accepted(o) || o.Sender == byHandSender {
				continue
			}
			if o.ControllerEpoch < highest {
				w.t.Errorf("broker %d accepted epoch %d after %d: %+v", b.id, o.ControllerEpoch, highest, o)
			}
			highest = max(highest, o.ControllerEpoch)
			if want := terms[o.ControllerEpoch]; o.Sender != want {
				w.t.Errorf("broker %d accepted epoch %d from %q, %q has won it", b.id, o.ControllerEpoch, o.Sender, want)
			}
		}
	}
	for name := range w.made {
		there := func() (ok bool) {
			w.tape.look(func(im *cluster.Image) { ok = im.ModRev(w.keys.Topic(name)) != 0 })
			return ok
		}
		if !poll(soon, there) { // the answer may be faster than our watch
			w.t.Errorf("topic %s was created, and is gone", name)
		}
	}
}

// judge replays the history.
func (p *tape) judge(unclean bool) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := replay{unclean: unclean, keys: p.keys, image: cluster.NewImage(p.keys), blocks: map[string]map[int32]*pb.PartitionRecord{}}
	for i := 0; i < len(p.changes); {
		rev := p.changes[i].KV.ModRev
		batch := store.Batch{Rev: rev}
		for ; i < len(p.changes) && p.changes[i].KV.ModRev == rev; i++ {
			batch.Changes = append(batch.Changes, p.changes[i].Change)
		}
		r.step(batch, p.hand[rev])
	}
	return r.faults
}

// replay is the history up to a revision.
type replay struct {
	keys    cluster.Keys
	image   *cluster.Image
	blocks  map[string]map[int32]*pb.PartitionRecord
	faults  []string
	unclean bool // elections may be
}

func (r *replay) step(b store.Batch, byHand bool) {
	epoch := r.image.MaxEpoch()
	// A claim that this very transaction gives up guarded it too.
	stood := r.claimStands()
	may := r.mayGo(b)
	r.image.Apply(b)
	stands := r.claimStands()
	for _, c := range b.Changes {
		kind, _, _ := strings.Cut(strings.TrimPrefix(c.KV.Key, r.keys.Prefix()), "/")
		if kind == "partitions" {
			r.block(c, byHand)
		}
		switch {
		case byHand:
		case kind == "controller_epoch" && (c.Deleted || r.image.Epoch != epoch+1):
			r.fault(c, "epoch %d follows %d", r.image.Epoch, epoch)
		case kind == "controller" && !c.Deleted && !stands:
			r.fault(c, "the seat is taken without the epoch")
		case kind == "terms" && !stood && !stands:
			r.fault(c, "the history is written while no claim stood")
		case c.Deleted && (kind == "topics" || kind == "partitions") && may[c.KV.Key] && stood && stands:
		case c.Deleted && (kind == "topics" || kind == "partitions" || kind == "nodes" || kind == "cluster"):
			r.fault(c, "deleted")
		case (kind == "topics" || kind == "partitions") && !(stood && stands):
			r.fault(c, "written while no claim stood")
		}
	}
}

// mayGo are the keys that the batch may delete: blocks that nothing counts, and
// what belongs to a topic of which it leaves a tombstone.
func (r *replay) mayGo(b store.Batch) map[string]bool {
	may := map[string]bool{}
	if !slices.ContainsFunc(b.Changes, func(c store.Change) bool { return c.Deleted }) {
		return may
	}
	for _, h := range r.image.HiddenBlocks() {
		may[r.keys.Block(h.ID)] = true
	}
	for _, t := range r.image.Topics {
		tombstone := r.keys.Tombstone(t.ID)
		if !slices.ContainsFunc(b.Changes, func(c store.Change) bool { return !c.Deleted && c.KV.Key == tombstone }) {
			continue
		}
		may[r.keys.Topic(t.Name)] = true
		for _, n := range r.image.BlocksOf(t.ID) {
			may[r.keys.Block(cluster.BlockID{Topic: t.ID, Index: n})] = true
		}
	}
	return may
}

func (r *replay) claimStands() bool {
	c := r.image.Controller
	return c != nil && c.ModRev == r.image.EpochRev
}

// block compares the records of a block with those before.
func (r *replay) block(c store.Change, byHand bool) {
	m := &pb.PartitionBlock{}
	if err := proto.Unmarshal(c.KV.Value, m); err != nil && !byHand {
		r.fault(c, "%v", err)
	}
	before := r.blocks[c.KV.Key]
	now := map[int32]*pb.PartitionRecord{}
	for _, p := range m.GetPartitions() {
		now[p.GetPartition()] = p
		old := before[p.GetPartition()]
		if byHand || proto.Equal(p, old) {
			continue
		}
		switch {
		case cluster.Epoch(p.GetControllerEpoch()) != r.image.Epoch:
			r.fault(c, "partition %d written under epoch %d while %d holds", p.GetPartition(), p.GetControllerEpoch(), r.image.Epoch)
		case old != nil && (p.GetPartitionEpoch() <= old.GetPartitionEpoch() || p.GetLeaderEpoch() < old.GetLeaderEpoch() ||
			p.GetControllerEpoch() < old.GetControllerEpoch()):
			r.fault(c, "epochs fell: %v after %v", p, old)
		case len(p.GetIsr()) == 0:
			r.fault(c, "partition %d has no ISR", p.GetPartition())
		case p.GetRecovery() == pb.RecoveryState_RECOVERY_STATE_RECOVERING && !r.unclean:
			r.fault(c, "partition %d had an unclean election", p.GetPartition())
		}
	}
	r.blocks[c.KV.Key] = now
}

func (r *replay) fault(c store.Change, format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf("revision %d, %s: %s", c.KV.ModRev, c.KV.Key, fmt.Sprintf(format, args...)))
}
