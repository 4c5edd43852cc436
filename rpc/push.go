package rpc

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/epoch"
	"github.com/controllerd/controllerd/internal/unfenced"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// Timings of the push.
const (
	PingInterval = 5 * time.Second
	PingTimeout  = 10 * time.Second
	MinRetry     = 100 * time.Millisecond // of a partition or a stream, doubling
	MaxRetry     = 30 * time.Second       // of a partition, or of a broker that contradicts etcd
	maxRedial    = 2 * time.Second        // of a broker that can not be reached
	window       = 16                     // commands that the gate of a broker has yet to answer
)

// StreamID names one stream of commands to one incarnation of a broker.
type StreamID struct {
	Broker cluster.BrokerID
	Epoch  cluster.BrokerEpoch
	Number int64 // unique in the process
}

// PushAction is something that the Pusher wants done.
type PushAction interface{ pushAction() }

// Dial opens a stream; answered by Opened or Closed.
type Dial struct {
	Stream  StreamID
	Address string
	Probe   bool // to be told whether the connection broke
}

// Send sends on an open stream. It is not answered.
type Send struct {
	Stream  StreamID
	Request *pb.CommandsRequest
	// Metadata is the encoding of the command's UpdateMetadata, if it is the
	// same for many brokers; else nil. It must not be changed.
	Metadata []byte
}

// Hangup closes a stream; answered by Closed.
type Hangup struct{ Stream StreamID }

// Doubt says that a broker knows a higher controller epoch than ours: read the
// seat from etcd, and step down if etcd agrees.
type Doubt struct {
	Broker cluster.BrokerID
	Epoch  cluster.Epoch
}

// Reread says that something else than the broker answers at its address: read
// its registration from etcd, in case the watch has missed a change.
type Reread struct{ Broker cluster.BrokerID }

func (Dial) pushAction()   {}
func (Send) pushAction()   {}
func (Hangup) pushAction() {}
func (Doubt) pushAction()  {}
func (Reread) pushAction() {}

// PushEvent is what a stream reports.
type PushEvent interface{ pushEvent() }

// Opened brings the first word of the broker.
type Opened struct {
	Stream StreamID
	Hello  *pb.Hello
}

// Received brings any later one.
type Received struct {
	Stream   StreamID
	Response *pb.CommandsResponse
}

// Closed is the end of a stream.
type Closed struct {
	Stream StreamID
	Err    error
	// Broken is the IP address and port at the other end, if the connection
	// broke, which Dial wanted to know, and not by this side.
	Broken string
}

func (Opened) pushEvent()   {}
func (Received) pushEvent() {}
func (Closed) pushEvent()   {}

// Pusher brings the committed state of the image to the brokers, as long as a
// claim holds. It is not safe for concurrent use.
type Pusher struct {
	self     string // the daemon's id
	changes  *changeList
	removals removals
	leavers  leavers
	// forgotten is the revision of the newest removal that is not remembered:
	// nobody can go on from before it.
	forgotten store.Rev
	digests   digests
	brokers   int64 // rises with each change of the set of live brokers, or of the settings
	structure int64 // rises with each change of which topics and records there are
	synced    struct {
		at     int64 // the structure that chunks are of
		chunks [][][]byte
	}
	offline        int // replicas, of all targets
	offlineChanged []cluster.PartitionID

	now      time.Duration // of the last Step
	claim    epoch.Claim   // zero: not active
	followed int64         // the set of live brokers that targets follows; -1: none
	targets  map[cluster.BrokerID]*target
	order    []*target // targets in order of id
	turn     int       // whose turn it is
	more     bool      // the last slice left something
	built    chunks
	live     *broadcast // the live brokers, as liveOf counts them
	liveOf   int64
	closing  map[StreamID]bool // hung up, not yet closed
	deaths   deaths
	streams  int64
	mark     int64 // the number of the last Mark
	markAt   int64 // where the change list ended then
	Stats    PushStats
	// MaxRemovals is how many deleted topics are remembered; 0: DefaultRemovals.
	MaxRemovals int
	// DeathProbe: brokers that allow it count as dead when they refuse
	// connections.
	DeathProbe bool
	TakenOut   PushTakenOut
}

// PushTakenOut says which safety parts are removed; see package unfenced.
type PushTakenOut struct {
	Horizon     unfenced.Switch // a stream goes on from before what was forgotten
	History     unfenced.Switch // a stream goes on from a point of another history
	ResumePoint unfenced.Switch // brokers are told that they know everything
	Digest      unfenced.Switch // what brokers hold is not compared
}

// NewPusher is a pusher that follows an image from its beginning.
func NewPusher(self string) *Pusher {
	return &Pusher{
		self:     self,
		changes:  newChangeList(),
		removals: newRemovals(),
		leavers:  newLeavers(),
		digests:  digests{hosted: map[cluster.BrokerID]*cluster.Digest{}},
		targets:  map[cluster.BrokerID]*target{},
		closing:  map[StreamID]bool{},
	}
}

// Observe takes in what changed in the image. Standbys do so too, so that a
// new term begins with a change list that is complete.
func (p *Pusher) Observe(events []cluster.Event) {
	for _, ev := range events {
		switch ev := ev.(type) {
		case cluster.TopicAdded:
			p.structure++
			if len(ev.Topic.Record.GetConfig()) > 0 {
				p.changes.touch(configOf(ev.Topic), ev.Rev)
			}
		case cluster.TopicChanged:
			p.structure++
			if !maps.Equal(ev.Old.Record.GetConfig(), ev.New.Record.GetConfig()) {
				p.changes.touch(configOf(ev.New), ev.Rev)
			}
		case cluster.TopicGone:
			p.structure++
			p.changes.remove(configOf(ev.Topic))
		case cluster.SettingsChanged:
			p.brokers++
		case cluster.PartitionChanged:
			if ev.Old == nil || ev.New == nil {
				p.structure++
			}
			p.digests.change(ev)
			p.forgive(ev)
			p.leave(ev)
			if ev.New != nil {
				p.changes.touch(ev.ID, ev.Rev)
				continue
			}
			p.changes.remove(ev.ID)
			if p.removals.topics[ev.ID.Topic] == nil {
				p.forgotten = max(p.forgotten, ev.Rev)
			}
		case cluster.BrokerUp, cluster.BrokerDown, cluster.BrokerRestarted:
			p.brokers++
		case cluster.BrokerChanged:
			if readdressed(ev.Old.Record, ev.New.Record) {
				p.brokers++
			}
		case cluster.TombstoneAdded:
			p.buried(ev.Tombstone, ev.Rev)
		case cluster.TombstoneChanged:
			p.entombed(ev.Old, ev.New, ev.New.ModRev)
		case cluster.TombstoneGone:
			p.entombed(ev.Tombstone, nil, 0)
		}
	}
}

// Begin starts to push under a claim.
func (p *Pusher) Begin(now time.Duration, claim epoch.Claim) {
	p.deaths = beginDeaths(now)
	p.claim, p.followed = claim, -1
	clear(p.removals.confirmed)
	p.removals.done = newChangeList()
	p.leavers.begin()
}

// End stops to push. The streams are closed once Open is 0.
func (p *Pusher) End() []PushAction {
	p.claim = epoch.Claim{}
	var out []PushAction
	for _, t := range p.order {
		out = p.drop(t, out)
	}
	p.order, p.built, p.live = nil, chunks{}, nil
	return out
}

// Open is how many streams are open, being opened or being closed.
func (p *Pusher) Open() int {
	n := len(p.closing)
	for _, t := range p.targets {
		if t.phase != idle {
			n++
		}
	}
	return n
}

// Connected is how many live brokers have an open stream.
func (p *Pusher) Connected() int {
	n := 0
	for _, t := range p.targets {
		if t.phase == open {
			n++
		}
	}
	return n
}

// drop forgets a broker and closes its stream.
func (p *Pusher) drop(t *target, out []PushAction) []PushAction {
	delete(p.targets, t.id)
	for id := range t.offline {
		p.cameBack(t, id)
	}
	if t.phase != idle {
		p.closing[t.stream] = true
		out = append(out, Hangup{t.stream})
	}
	return p.stopRedial(t, out)
}

// Step sends a slice of what is due; More says whether there is another. The
// image must show that the claim holds.
func (p *Pusher) Step(now time.Duration, im *cluster.Image) []PushAction {
	p.now = now
	out := p.follow(now, im, nil)
	p.more = false
	for built, idle := 0, 0; idle < len(p.order); p.turn++ {
		if built >= maxSlice {
			p.more = true
			break
		}
		var n int
		out, n = p.stepTarget(now, im, p.order[p.turn%len(p.order)], out)
		built += n
		if idle++; n > 0 {
			idle = 0
		}
	}
	if !p.more && p.told() {
		p.built.after = nil // nobody waits for them, and they are large
	}
	return out
}

// told reports whether every broker with a stream has been told everything.
func (p *Pusher) told() bool {
	return !slices.ContainsFunc(p.order, func(t *target) bool { return t.phase == open && t.cursor != p.changes.last })
}

// More reports whether the last Step left something that could be sent.
func (p *Pusher) More() bool { return p.more }

// follow keeps one target per live incarnation. A changed address is followed
// too.
func (p *Pusher) follow(now time.Duration, im *cluster.Image, out []PushAction) []PushAction {
	if p.followed == p.brokers {
		return out
	}
	p.followed = p.brokers
	moved := map[cluster.BrokerID]*target{}
	kept := map[cluster.BrokerID]replicas{}
	for _, t := range p.order {
		b := im.Brokers[t.id]
		if b == nil || b.Epoch != t.epoch || b.Record.GetControlAddress() != t.address {
			if b != nil && b.Epoch == t.epoch {
				moved[t.id] = t
				kept[t.id], t.replicas = t.replicas, replicas{}
			}
			out = p.drop(t, out)
		}
	}
	for _, b := range im.SortedBrokers() {
		if p.targets[b.ID] != nil || b.Record.GetControlAddress() == "" {
			continue
		}
		t := &target{
			id: b.ID, epoch: b.Epoch, address: b.Record.GetControlAddress(), scope: b.Record.GetMetadataScope(),
			replicas: kept[b.ID], silentSince: now, probe: p.DeathProbe && b.Record.GetDeathProbe(),
		}
		if was := moved[b.ID]; was != nil && !was.answers {
			t.silentSince = was.silentSince
		}
		p.targets[b.ID] = t
	}
	p.order = slices.SortedFunc(maps.Values(p.targets), func(a, b *target) int { return cmp.Compare(a.id, b.id) })
	return out
}

// Take applies one event of a stream. Those of streams that were given up are
// dropped.
func (p *Pusher) Take(now time.Duration, ev PushEvent) []PushAction {
	switch ev := ev.(type) {
	case Opened:
		if t := p.of(ev.Stream); t != nil {
			if id := cluster.BrokerID(ev.Hello.GetBrokerId()); id != t.id {
				return p.stranger(now, t, fmt.Sprintf("at %s answers broker %d", t.address, id), nil)
			}
			t.opened(now, ev.Hello)
			p.deaths.forget(t.id)
			p.introduce(now, t, ev.Hello)
			return p.heard(now, t, cluster.Epoch(ev.Hello.GetControllerEpoch()), nil)
		}
	case Received:
		if t := p.of(ev.Stream); t != nil && t.phase == open {
			return p.received(now, t, ev.Response)
		}
	case Closed:
		delete(p.closing, ev.Stream)
		if t := p.of(ev.Stream); t != nil {
			t.closed(now)
			if ev.Err != nil {
				t.problem = Words(ev.Err)
			}
			return p.broke(t, ev, nil)
		}
		if t := p.targets[ev.Stream.Broker]; t != nil && t.redialed == ev.Stream {
			t.redialed = StreamID{}
			p.deaths.forget(t.id)
		}
	case Refused:
		return p.refused(now, ev)
	}
	return nil
}

func (p *Pusher) of(s StreamID) *target {
	if t := p.targets[s.Broker]; t != nil && t.phase != idle && t.stream == s {
		return t
	}
	return nil
}

func (p *Pusher) received(now time.Duration, t *target, r *pb.CommandsResponse) []PushAction {
	switch r := r.GetResponse().(type) {
	case *pb.CommandsResponse_Pong:
		t.pong, t.answers = now, true
		p.checkDigest(now, t, r.Pong)
	case *pb.CommandsResponse_Ack:
		return p.acked(now, t, r.Ack)
	case *pb.CommandsResponse_Results:
		for _, o := range r.Results.GetOutcomes() {
			p.result(now, t, o)
		}
	case *pb.CommandsResponse_Report:
		p.reported(now, t, r.Report)
	}
	return nil
}

func (p *Pusher) acked(now time.Duration, t *target, ack *pb.CommandAck) []PushAction {
	if ack.GetSequence() <= t.since {
		return nil
	}
	t.unacked--
	p.Stats.AckTime.Observe(now - *t.sentTimes.at(ack.GetSequence()))
	refusal := ack.GetRefusal()
	if refusal == pb.Refusal_REFUSAL_UNSPECIFIED {
		t.again, t.problem, t.answers, t.admitted, t.knows = 0, "", true, true, 0
		return nil
	}
	p.Stats.Refused++
	p.Stats.Refusals.add(refusal)
	var out []PushAction
	switch refusal {
	case pb.Refusal_REFUSAL_WRONG_BROKER, pb.Refusal_REFUSAL_INCONSISTENT_CLUSTER_ID:
		return p.stranger(now, t, refusalWords(refusal), out)
	case pb.Refusal_REFUSAL_STALE_BROKER_EPOCH:
		out = append(out, Reread{t.id})
	case pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH:
		// If etcd does not agree, this broker is wrong: it is left alone for
		// longer and longer.
		out = p.heard(now, t, cluster.Epoch(ack.GetControllerEpoch()), out)
	}
	t.problem, t.answers = refusalWords(refusal), true
	t.restart(now)
	return out
}

// result takes in what became of one partition. One that failed is tried
// again alone; a storage error takes the replica offline until it is applied.
func (p *Pusher) result(now time.Duration, t *target, o *pb.PartitionOutcome) {
	topic, err := cluster.TopicIDFrom(o.GetTopicId())
	if err != nil {
		return
	}
	id := cluster.PartitionID{Topic: topic, Index: o.GetPartition()}
	if o.GetStop() {
		p.stopped(now, t, id, o)
		return
	}
	switch o.GetResult() {
	case pb.PartitionResult_PARTITION_RESULT_APPLIED:
		p.Stats.Applied++
	case pb.PartitionResult_PARTITION_RESULT_ALREADY:
		p.Stats.Already++
	default:
		p.Stats.Failed++
		t.failures++
		p.failed(now, t, id, o)
		return
	}
	le := cluster.LeaderEpoch(o.GetLeaderEpoch())
	t.done(id, le)
	if r := t.offline[id]; r != nil && r.epoch <= le {
		p.cameBack(t, id)
	}
}

// Pending counts the partition states that brokers have yet to confirm, those
// of brokers without a stream not included.
func (p *Pusher) Pending() int {
	n := 0
	for _, t := range p.targets {
		n += len(t.pending) + len(t.retries)
		if t.phase == open && p.unstopped(t) {
			n += max(t.left, 1)
		}
		if t.phase == open && p.undeleted(t) {
			n += max(len(t.leaving.sent)+len(t.leaving.failed), 1)
		}
		if t.phase == open && t.cursor < p.changes.last {
			n++
		}
	}
	return n
}

// Problems are the brokers that can not be pushed to, with the reason.
func (p *Pusher) Problems() map[cluster.BrokerID]string {
	out := map[cluster.BrokerID]string{}
	for id, t := range p.targets {
		if t.problem != "" {
			out[id] = t.problem
		}
	}
	return out
}

// Wake is when Step is to be called if nothing happens before.
func (p *Pusher) Wake(now time.Duration) time.Duration {
	next := now + PingInterval
	for _, t := range p.targets {
		next = min(next, t.wake(now))
	}
	return next
}
