package recovery

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/epoch"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// DefaultStep is by how much leader and partition epochs are raised above the
// highest that is known: far more than a partition changes in the age of a
// snapshot, and 2,000 times less than there is room for.
const DefaultStep = 1_000_000

// Options are what the operator decides.
type Options struct {
	// EpochAbove is a controller epoch above which no broker knows any, also
	// none that was not asked. 0: all have to be asked.
	EpochAbove cluster.Epoch
	// Step is by how much leader and partition epochs are raised above the
	// highest that etcd or any broker knows; 1 or more.
	Step int32
	// Reason is kept in the history.
	Reason string
}

// Plan is what is to be written to a cluster, as one image shows it.
type Plan struct {
	im     *cluster.Image
	memory *Memory
	opts   Options

	// Epoch is what the controller epoch is raised to; the next term is above it.
	Epoch cluster.Epoch
	// Needed: some broker knows more than etcd holds, or a recovery is not
	// finished.
	Needed bool
	// Resumed: a recovery that has begun is gone on with.
	Resumed bool
	// Begun: the key of the recovery stands, or may stand.
	Begun bool

	Partitions int // that etcd holds
	Done       int // of them, raised before
	Ahead      int // of which some broker knows a newer state
	Adopted    int // of them, whose leader or ISR the newer state changes
	// Lost is by how much the leader epoch of a partition has fallen, the most.
	Lost cluster.LeaderEpoch

	Reassigned []string // partitions to which brokers know other replicas: etcd's stay
	Strangers  []string // topics that brokers know and etcd does not hold
	Unreadable []string // keys that are not raised, because they cannot be read
}

// Make decides what is to be done. The error says all that stands against it:
// then nothing may be written.
func Make(im *cluster.Image, m *Memory, opts Options) (*Plan, error) {
	p := &Plan{im: im, memory: m, opts: opts, Strangers: m.strangers(im)}
	heard, held := max(m.Epoch(), opts.EpochAbove), im.MaxEpoch()
	p.Epoch = max(heard, held) + 1
	if r := im.Recovery; r != nil {
		p.Resumed, p.Begun = true, true
		if e := cluster.Epoch(r.GetEpoch()); e > heard && e >= held {
			p.Epoch = e
		}
	}
	faults := p.obstacles()
	for _, f := range im.SortedFaults() {
		if strings.HasPrefix(f.Key, im.Keys.Topic("")) || strings.HasPrefix(f.Key, im.Keys.Prefix()+"partitions/") {
			p.Unreadable = append(p.Unreadable, f.Key)
		}
	}
	p.blocks(func(b *cluster.Block) bool {
		faults = append(faults, p.survey(b))
		return true
	})
	for _, t := range buried(im) {
		if top := p.highest(t); !p.room(int64(top)) {
			faults = append(faults, fmt.Errorf("leader epoch %d of the deleted topic %s leaves no room for a step of %d", top, t.Record.GetTopic(), opts.Step))
		}
	}
	p.Needed = p.Resumed || heard > held || p.Ahead > 0
	return p, errors.Join(faults...)
}

// obstacles are those that concern the whole cluster.
func (p *Plan) obstacles() (faults []error) {
	im, m := p.im, p.memory
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if im.Cluster == nil {
		fault("key %s is missing or unreadable: this is no cluster, or its name is wrong", im.Keys.Cluster())
	}
	if c := im.Controller; c != nil && !epoch.Vacant(im) {
		fault("daemon %s at %s holds the seat: stop all daemons first", c.Record.GetId(), c.Record.GetEndpoint())
	}
	if p.Epoch+1 >= cluster.MaxEpoch {
		fault("there is no controller epoch above %d", p.Epoch-1)
	}
	if heard := m.Rev(); heard > im.Rev {
		fault("etcd is at revision %d, brokers have heard of %d: revisions would mean two things; restore once more, with --mark-compacted and a --bump-revision well above %d", im.Rev, heard, heard-im.Rev)
	}
	answered := map[cluster.BrokerID]bool{}
	for _, r := range m.Reports {
		answered[r.Broker] = answered[r.Broker] || r.Err == nil
		if r.Err == nil && r.ClusterUUID != "" && im.Cluster != nil && r.ClusterUUID != im.Cluster.GetUuid() {
			fault("broker %d at %s belongs to cluster %s, this is %s", r.Broker, r.Address, r.ClusterUUID, im.Cluster.GetUuid())
		}
	}
	for _, id := range im.KnownBrokers() {
		if n := im.Nodes[id]; !answered[id] && p.opts.EpochAbove == 0 && !(n != nil && n.Record.GetDecommissioned()) {
			fault("broker %d has not answered: name its control address with --brokers, or say with --epoch-above which controller epoch no broker knows more than", id)
		}
	}
	return faults
}

// blocks visits all readable blocks, those of visible topics in order of name,
// then the hidden ones.
func (p *Plan) blocks(visit func(*cluster.Block) bool) {
	for _, t := range p.im.SortedTopics() {
		for _, n := range p.im.BlocksOf(t.ID) {
			if !visit(p.im.Block(cluster.BlockID{Topic: t.ID, Index: n})) {
				return
			}
		}
	}
	for _, b := range p.im.HiddenBlocks() {
		if p.im.TopicByID(b.ID.Topic) == nil && !visit(b) {
			return
		}
	}
}

// survey counts what is to be done about a block, and says what cannot.
func (p *Plan) survey(b *cluster.Block) error {
	var faults []error
	for i, part := range b.Partitions() {
		id := cluster.PartitionID{Topic: b.ID.Topic, Index: i}
		if p.Partitions++; p.done(part) {
			p.Done++
			continue
		}
		k := p.memory.of(id)
		if k.leaderEpoch > part.LeaderEpoch || k.newer(part) {
			p.Ahead++
			p.Lost = max(p.Lost, k.leaderEpoch-part.LeaderEpoch)
		}
		if k.newer(part) && !sameSet(k.state.Replicas, part.Replicas) {
			p.Reassigned = append(p.Reassigned, fmt.Sprintf("%s/%d: %v, not %v", k.state.Topic, i, k.state.Replicas, part.Replicas))
		}
		if !p.room(int64(max(part.LeaderEpoch, k.leaderEpoch))) || !p.room(int64(max(part.PartitionEpoch, k.state.PartitionEpoch))) {
			faults = append(faults, fmt.Errorf("the epochs of %s leave no room for a step of %d", id, p.opts.Step))
			continue
		}
		next := p.raised(id, part)
		if next.Leader != part.Leader || !slices.Equal(next.ISR, part.ISR) {
			p.Adopted++
		}
	}
	return errors.Join(faults...)
}

// room reports whether an epoch can rise by the step.
func (p *Plan) room(e int64) bool { return e+int64(p.opts.Step) < math.MaxInt32 }

// highest is the highest leader epoch that is known of a deleted topic.
func (p *Plan) highest(t *cluster.Tombstone) cluster.LeaderEpoch {
	top := t.LeaderEpoch()
	for i := range t.Record.GetPartitions() {
		top = max(top, p.memory.of(cluster.PartitionID{Topic: t.ID, Index: i}).leaderEpoch)
	}
	return top
}

// done reports whether this recovery has raised the record.
func (p *Plan) done(part *cluster.Partition) bool {
	return part.ControllerEpoch == p.Epoch && part.Cause == pb.ChangeCause_CHANGE_CAUSE_RECOVERED
}

// newer reports whether the newest state that is known is newer than the record.
func (k *known) newer(part *cluster.Partition) bool {
	s := &k.state
	return len(s.ISR) > 0 && (s.LeaderEpoch > part.LeaderEpoch || s.LeaderEpoch == part.LeaderEpoch && s.PartitionEpoch > part.PartitionEpoch)
}

// raised is the record with its epochs above all that are known of it. Of a
// newer state it takes the ISR, as far as it is within the replicas, and who
// leads.
func (p *Plan) raised(id cluster.PartitionID, part *cluster.Partition) cluster.Partition {
	next, k := *part, p.memory.of(id)
	step := cluster.LeaderEpoch(p.opts.Step)
	next.LeaderEpoch = max(part.LeaderEpoch, k.leaderEpoch) + step
	next.PartitionEpoch = max(part.PartitionEpoch, k.state.PartitionEpoch) + cluster.PartitionEpoch(step)
	if k.newer(part) {
		isr := slices.DeleteFunc(slices.Clone(k.state.ISR), func(b cluster.BrokerID) bool { return !slices.Contains(part.Replicas, b) })
		if len(isr) > 0 {
			next.ISR, next.Leader, next.Recovery = isr, k.state.Leader, k.state.Recovery
		}
		if !slices.Contains(next.ISR, next.Leader) {
			next.Leader = cluster.NoLeader
		}
	}
	next.ControllerEpoch, next.Cause, next.Decided = p.Epoch, pb.ChangeCause_CHANGE_CAUSE_RECOVERED, p.im.Rev
	return next
}

func sameSet(a, b []cluster.BrokerID) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// buried are the tombstones in order of topic id.
func buried(im *cluster.Image) []*cluster.Tombstone {
	return slices.SortedFunc(maps.Values(im.Tombstones), func(a, b *cluster.Tombstone) int {
		return cluster.PartitionID{Topic: a.ID}.Compare(cluster.PartitionID{Topic: b.ID})
	})
}

// Memory is what the brokers remember.
func (p *Plan) Memory() *Memory { return p.memory }

// Held is the controller epoch that etcd holds, and its revision.
func (p *Plan) Held() (cluster.Epoch, store.Rev) { return p.im.Epoch, p.im.Rev }

// Step is by how much leader and partition epochs are raised.
func (p *Plan) Step() int32 { return p.opts.Step }
