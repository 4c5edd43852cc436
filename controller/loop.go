package controller

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/epoch"
	"github.com/controllerd/controllerd/internal/unfenced"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/statemachine"
	"github.com/controllerd/controllerd/store"
)

// storePause is how long nothing is written after the store refused to.
const storePause = 500 * time.Millisecond

// checkAfter is how long after the begin of a term the agenda is checked: what
// brokers wait for comes first.
const checkAfter = time.Second

// LoopConfig describes one daemon to its Loop.
type LoopConfig struct {
	Keys     cluster.Keys
	Election election.Config
	Rand     *rand.Rand // topic ids, the first replica of new topics
	Limits   Limits
	// Removals is how many deleted topics are remembered, to tell brokers that
	// have not heard of it yet; 0: rpc.DefaultRemovals.
	Removals int
	// Unreachable is for how long a live broker must have answered on no stream
	// of commands to be marked as unreachable; 0 means rpc.UnreachableAfter.
	Unreachable time.Duration
	// Slice is how many partitions one Step takes in, and how many it decides
	// about; 0 means as many as take some 10 ms.
	Slice int
	// Strict panics over a bug that is otherwise counted. For tests.
	Strict bool
	// TakenOut removes safety parts. Tests of this module use it to show that
	// they would notice.
	TakenOut TakenOut
}

// TakenOut says which safety parts are removed; see package unfenced.
type TakenOut struct {
	ClaimGuard unfenced.Switch // transactions carry no guard
	BlockGuard unfenced.Switch // blocks are written whatever they hold
	Settled    unfenced.Switch // the next plan does not wait for the image
	RecordLast unfenced.Switch // the record of a topic does not wait for its blocks
	// MemberEpoch: an ISR gets members that have restarted since their leader saw
	// them.
	MemberEpoch unfenced.Switch
	Push        rpc.PushTakenOut
}

// Loop is the pure part of one daemon: events in, actions out. It is not safe
// for concurrent use.
type Loop struct {
	cfg       LoopConfig
	im        *cluster.Image
	candidate *election.Candidate
	machine   *statemachine.Machine
	pusher    *rpc.Pusher
	feed      *rpc.Feed

	now    time.Duration
	wallMs int64

	intake intake

	claim    epoch.Claim
	active   bool  // the claim may be acted on
	stopping bool  // its work is being stopped
	resigner int64 // the request that asked for it, 0 if none
	resigned any   // what it will be answered

	requests []asked
	asked    bool // the last plan decided requests
	plan     *plan
	winding  bool // stopping on purpose: what is on its way may still be answered
	urgent   bool // the last Step put off the push
	chunks   int64
	answered time.Duration // when the store last answered a write
	// unanswered is when the first write was sent that got no answer since
	// then; 0 if there is none, or nothing is to be written any more.
	unanswered time.Duration
	pause      time.Duration       // nothing is planned before
	refused    error               // why the store takes no writes
	stuck      string              // the last write that no rule may make
	sweep      bool                // the agenda of this term has yet to be checked
	sweepAt    time.Duration       // not before
	held       *Listed             // a list that the image has yet to reach
	comparing  *cluster.Comparison // with a list; nil: none is under way
	missed     []string            // keys that the last comparison has found, and that are yet to be read
	fetched    []Fetched           // reads that the image has yet to reach
	healing    map[string]bool     // the keys that are being read
	// aside are topics that could not be completed; they are tried again then.
	aside      map[cluster.TopicID]struct{}
	asideUntil time.Duration
	vouched    store.Rev // of the last list that the image agreed with, at first of the claim
	sweeping   store.Rev // hidden blocks up to it are to be deleted; 0: none
	reach      reach
	takeover   takeover
	balance    balance
	queue      queue
	dueSince   time.Duration // since when some rule would change something; 0: none would

	Stats Stats
}

// Stats count since the process began.
type Stats struct {
	Terms       int64 // won
	Committed   int64 // transactions of won terms
	GuardFailed int64 // transactions whose guard, or whose block guard, failed
	Healed      int64 // keys that the watch had missed
	Hidden      int64 // blocks that nothing counted, found to be deleted
	Illegal     int64 // writes that no rule may make, not written
	Swept       int64 // partitions that the agenda had wrong at the begin of a term: bugs
	Disbelieved int64 // times that a broker claimed a higher epoch than etcd holds
	Unreachable int64 // times that a broker was marked as unreachable
	Balances    int64 // times that leaders were out of balance and were moved
	Balanced    int64 // partitions whose leadership was to go back to the first replica
	CutOff      int64 // terms given up because most brokers did not answer
	Measured
}

// NewLoop is a daemon that has seen nothing yet.
func NewLoop(cfg LoopConfig) *Loop {
	if cfg.Unreachable == 0 {
		cfg.Unreachable = rpc.UnreachableAfter
	}
	im := cluster.NewImage(cfg.Keys)
	pusher := rpc.NewPusher(cfg.Election.Self.GetId())
	pusher.TakenOut, pusher.MaxRemovals, pusher.DeathProbe = cfg.TakenOut.Push, cfg.Removals, cfg.Election.DeathProbe
	if cfg.Slice == 0 {
		cfg.Slice = defaultSlice
	}
	return &Loop{
		cfg:       cfg,
		im:        im,
		candidate: election.NewCandidate(cfg.Election),
		machine:   statemachine.NewMachine(im, pusher.Offline),
		pusher:    pusher,
		feed:      rpc.NewFeed(),
		healing:   map[string]bool{},
		aside:     map[cluster.TopicID]struct{}{},
	}
}

// Image is what the daemon has seen of the cluster.
func (l *Loop) Image() *cluster.Image { return l.im }

// Active is the claim under which the daemon acts, if it is the active one.
func (l *Loop) Active() (epoch.Claim, bool) { return l.claim, l.active }

// Candidate is the daemon's election.
func (l *Loop) Candidate() *election.Candidate { return l.candidate }

// Pusher is the daemon's push to brokers.
func (l *Loop) Pusher() *rpc.Pusher { return l.pusher }

// Refused says why the store takes no writes; nil if it does, as far as is
// known.
func (l *Loop) Refused() error { return l.refused }

// Idle reports whether the active has nothing to decide, to write or to push.
func (l *Loop) Idle() bool {
	return l.active && !l.Backlog() && !l.machine.Reviewing() && l.comparing == nil && l.plan == nil && l.machine.Agenda() == 0 && len(l.requests) == 0 && l.pusher.Pending() == 0 && !l.choresDue()
}

// Sweep makes the agenda anew from the image, and returns by how many
// partitions it differs from the one that was kept: anything but 0 is a bug.
func (l *Loop) Sweep() int {
	for !l.Whole() {
		l.takeBatch(l.cfg.Slice)
	}
	return l.machine.Reset()
}

// Quiet is when the claim must not be acted on any more: what has not left the
// process by then must not leave it.
func (l *Loop) Quiet() time.Duration {
	if !l.active {
		return 0
	}
	return l.candidate.Quiet()
}

// Done reports whether the daemon was told to leave and holds nothing.
func (l *Loop) Done() bool { return l.candidate.Done() }

// Wake is when Step is to be called if nothing happens before.
func (l *Loop) Wake() time.Duration {
	if l.Unfinished() {
		return l.now
	}
	next := l.candidate.Wake()
	if !l.active {
		return next
	}
	next = min(next, l.pusher.Wake(l.now), l.reach.next)
	if l.balance.brokers == nil {
		next = min(next, l.balanceAt())
	}
	if l.sweep && l.sweepAt > l.now {
		next = min(next, l.sweepAt)
	}
	if l.pause > l.now {
		next = min(next, l.pause)
	}
	if len(l.aside) > 0 {
		next = min(next, l.asideUntil)
	}
	if l.plan != nil {
		for _, c := range l.plan.all {
			if c.phase == reading && c.again != 0 {
				next = min(next, c.again)
			}
		}
	}
	return next
}

// Step takes in what happened, in order (nothing: time passed), and says what
// to do.
func (l *Loop) Step(now election.Now, events ...Event) []Action {
	l.now, l.wallMs = now.Mono, now.WallMs
	out := l.takeIn(now, events, nil)
	if l.Backlog() {
		if l.active { // the lease does not wait
			out = l.elect(l.candidate.Step(now, l.im, l.oldestWrite(now.Mono), nil), out)
		}
		return out
	}
	l.machine.Continue(l.cfg.Slice)
	out = l.compare(out)
	out = l.elect(l.candidate.Step(now, l.im, l.oldestWrite(now.Mono), nil), out)
	if l.stopping {
		out = l.stop(now, out)
	}
	if l.resigner != 0 && !l.candidate.Holding() {
		out = append(out, Answer{l.resigner, rpc.Answer{Response: l.resigned}})
		l.resigner = 0
	}
	if l.active {
		out = l.lookAround(now, out)
	}
	if l.active {
		l.checkBalance()
		out = l.advance(now.Mono, out)
	}
	if l.active {
		out = l.pushSlice(out)
	}
	if l.active {
		out = l.check(out)
	}
	return out
}

// check looks over the whole agenda, once in a term and after what is more
// urgent. What it finds is a bug.
func (l *Loop) check(out []Action) []Action {
	if l.sweep && l.now >= l.sweepAt && l.plan == nil && !l.urgent && !l.pusher.More() && !l.machine.Reviewing() {
		l.sweep = false
		l.machine.BeginCheck()
		if len(l.im.HiddenBlocks()) > 0 {
			out = append(out, List{})
		}
	}
	l.Stats.Swept += int64(l.machine.Check(l.cfg.Slice))
	return out
}

// pushSlice pushes, unless something more urgent is to leave first: writes and
// answers do not wait for commands to be built.
func (l *Loop) pushSlice(out []Action) []Action {
	if l.urgent = len(out) > 0 && !l.urgent; l.urgent {
		return out
	}
	return l.push(l.pusher.Step(l.now, l.im), out)
}

// Unfinished reports whether the last Step left work for the next one, which
// should follow as soon as its actions are under way.
func (l *Loop) Unfinished() bool {
	return l.Backlog() || l.machine.Reviewing() || l.comparing != nil || l.active && (l.urgent || l.pusher.More() || l.machine.Checking() || l.topicsLeft() || l.balancing() || l.moving())
}

func (l *Loop) take(now election.Now, ev Event, out []Action) []Action {
	switch ev := ev.(type) {
	case Listed:
		l.held = &ev
	case Fetched:
		if ev.Err != nil {
			l.missed = nil // the next comparison finds them again
			return out
		}
		l.fetched = append(l.fetched, ev)
		return l.fetchMore(out)
	case Committed:
		return append(out, l.committed(now.Mono, ev)...)
	case ReadBack:
		return append(out, l.readBack(now.Mono, ev)...)
	case Elected:
		return l.elect(l.candidate.Step(now, l.im, l.oldestWrite(now.Mono), ev.Event), out)
	case Pushed:
		return l.push(l.pusher.Take(now.Mono, ev.Event), out)
	case Requested:
		return l.requested(ev, out)
	}
	return out
}

// elect acts on the begin and the end of terms, and passes the rest on.
func (l *Loop) elect(actions []election.Action, out []Action) []Action {
	for _, a := range actions {
		switch a := a.(type) {
		case election.Begin:
			l.claim, l.active = a.Claim, true
			l.Stats.Terms++
			l.pause, l.refused, l.sweep, l.sweepAt = 0, nil, true, l.now+checkAfter
			l.answered, l.unanswered = 0, 0
			l.pusher.Begin(l.now, a.Claim)
			l.vouched, l.sweeping = a.Claim.Rev, 0
			clear(l.aside)
			l.reach.next, l.reach.marks = 0, nil
			l.balance = balance{since: l.now}
			l.lookAtQueue()
			l.beginTakeover()
		case election.Stop:
			l.active, l.stopping = false, true
			l.Stats.Ended[endOf(a.Cause, a.End)]++
			l.winding = errors.Is(a.Cause, election.ErrResigned) && l.plan != nil
			out = l.drain(out)
			out = l.push(l.pusher.End(), out)
		}
		out = append(out, Elect{a})
	}
	return out
}

// drain answers everything that waits for a decision of this term.
func (l *Loop) drain(out []Action) []Action {
	waiting := l.requests
	if l.plan != nil && !l.winding {
		waiting = append(waiting, l.plan.asked...)
		l.plan.asked = nil
	}
	for _, a := range waiting {
		out = append(out, Answer{a.id, rpc.Answer{Err: rpc.Error(cluster.NotController, nil, "the term ended before the request was decided")}})
	}
	l.requests = nil
	return out
}

// stop waits until nothing of the term is under way, and says so.
func (l *Loop) stop(now election.Now, out []Action) []Action {
	if l.winding {
		if out = l.windUp(now.Mono, out); l.winding {
			return out
		}
	}
	if l.plan != nil {
		for _, c := range l.plan.all {
			if c.phase == committing || c.phase == reading && c.again == 0 {
				return out
			}
		}
	}
	if l.pusher.Open() > 0 {
		return out
	}
	l.plan, l.stopping = nil, false
	l.claim = epoch.Claim{}
	return l.elect(l.candidate.Step(now, l.im, now.Mono, election.Stopped{}), out)
}

// windUp lets what is on its way come to its end, and answers it, before the
// seat is given up: a caller whose write is committed hears so. Nothing is
// decided any more, so the image need not show it.
func (l *Loop) windUp(now time.Duration, out []Action) []Action {
	for _, c := range l.plan.all {
		switch {
		case c.phase == committing || c.phase == reading && c.again == 0:
			return out
		}
		c.phase = settled
	}
	out = l.finishPlan(now, out)
	l.winding = false
	return l.drain(out) // what would be decided again
}

// deposed ends the term after a guarded transaction failed on the claim.
func (l *Loop) deposed(now time.Duration) []Action {
	return l.elect(l.candidate.Step(election.Now{Mono: now, WallMs: l.wallMs}, l.im, now, election.Deposed{Claim: l.claim}), nil)
}

// push passes the actions of the push on. A broker that knows a higher epoch
// than ours makes the candidate read the seat at once.
func (l *Loop) push(actions []rpc.PushAction, out []Action) []Action {
	l.machine.Review(l.pusher.OfflineChanged())
	for _, a := range actions {
		switch a := a.(type) {
		case rpc.Doubt:
			l.Stats.Disbelieved++
			k := l.im.Keys
			out = append(out, Elect{election.Probe{Keys: []string{k.Controller(), k.ControllerEpoch()}, Sent: l.now}})
		case rpc.Reread:
			out = l.fetch([]string{l.im.Keys.Broker(a.Broker)}, out)
		default:
			out = append(out, Push{a})
		}
	}
	return out
}

func (l *Loop) requested(ev Requested, out []Action) []Action {
	if !l.active {
		return append(out, Answer{ev.ID, rpc.Answer{Err: rpc.NotController(l.im, l.cfg.Election.Self.GetNonce())}})
	}
	switch r := ev.Request.(type) {
	case rpc.Resign:
		if err := l.epochFault(r.GetEpoch()); err != nil {
			l.requests = append(l.requests, asked{id: ev.ID, request: r, refusal: err})
			return out
		}
		l.resigned = &pb.ResignControllerResponse{Epoch: int64(l.claim.Epoch)}
		return l.resign(ev.ID, epoch.End{Cause: pb.EndCause_END_CAUSE_RESIGNED, Reason: r.GetReason()}, out)
	case rpc.Transfer:
		if err := cmp.Or(l.epochFault(r.GetEpoch()), l.successorFault(r.GetSuccessor())); err != nil {
			l.requests = append(l.requests, asked{id: ev.ID, request: r, refusal: err})
			return out
		}
		l.resigned = &pb.TransferControllerResponse{Epoch: int64(l.claim.Epoch)}
		return l.resign(ev.ID, epoch.End{Cause: pb.EndCause_END_CAUSE_TRANSFERRED, Reason: r.GetReason(), Successor: r.GetSuccessor()}, out)
	}
	l.requests = append(l.requests, asked{id: ev.ID, request: l.recognizable(ev.Request)})
	return out
}

// resign ends the term because a request has asked for it, which is answered
// with l.resigned when the seat is given up.
func (l *Loop) resign(request int64, end epoch.End, out []Action) []Action {
	l.resigner = request
	now := election.Now{Mono: l.now, WallMs: l.wallMs}
	return l.elect(l.candidate.Step(now, l.im, l.oldestWrite(l.now), election.Resign{End: end}), out)
}

// epochFault says that another term runs than the one that is to end; 0 is any.
func (l *Loop) epochFault(epoch int64) error {
	if epoch == 0 || epoch == int64(l.claim.Epoch) {
		return nil
	}
	return rpc.Error(cluster.StaleControllerEpoch, map[string]string{"epoch": strconv.FormatInt(int64(l.claim.Epoch), 10)},
		"the term of epoch %d does not run, that of epoch %d does", epoch, l.claim.Epoch)
}

// successorFault says why a daemon of that id could not follow.
func (l *Loop) successorFault(id string) error {
	var others []string
	for _, c := range l.im.Candidates {
		if c.Record.GetNonce() != l.cfg.Election.Self.GetNonce() {
			others = append(others, c.Record.GetId())
		}
	}
	slices.Sort(others)
	meta := map[string]string{"successor": id}
	switch {
	case slices.Contains(others, id):
		return nil
	case id == l.cfg.Election.Self.GetId():
		return rpc.Error(cluster.ElectionNotNeeded, meta, "%s is the active controller", id)
	case len(others) == 0:
		return rpc.Error(cluster.InvalidRequest, meta, "daemon %q does not stand by, nor does any other", id)
	}
	return rpc.Error(cluster.InvalidRequest, meta, "daemon %q does not stand by, these do: %s", id, strings.Join(others, ", "))
}

// recognizable gives a creation without a request id one, so that it is known
// as its own if it has to be decided twice.
func (l *Loop) recognizable(r rpc.Request) rpc.Request {
	c, ok := r.(rpc.CreateTopics)
	if !ok || c.GetRequestId() != "" {
		return r
	}
	id := fmt.Sprintf("%016x%016x", l.cfg.Rand.Uint64(), l.cfg.Rand.Uint64())
	return rpc.CreateTopics{CreateTopicsRequest: &pb.CreateTopicsRequest{Topics: c.GetTopics(), RequestId: id, ValidateOnly: c.GetValidateOnly()}}
}
