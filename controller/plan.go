package controller

import (
	"errors"
	"slices"
	"time"

	"github.com/controllerd/controllerd/epoch"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

// Limits of a plan.
const (
	// inFlight is how many transactions of a plan are on their way at once:
	// depth hides a slow disk.
	inFlight = 16
	// maxChunkBytes leaves room in store.MaxTxnBytes for the guard and framing.
	maxChunkBytes = 1 << 20
	// maxWrites bounds the partitions of one plan that nobody has asked for,
	// maxBlocks their blocks: what is made in one step, and flies at once.
	// Beside it there is room for half as many that were asked for.
	maxWrites = 1 << 14
	maxBlocks = inFlight * chunkBlocks
	// chunkBlocks bounds the blocks of one transaction, so that a plan has as many
	// as fly. It leaves room in store.MaxConds for the guard.
	chunkBlocks = 94
	// askedShare divides them as long as requests come: more plans are made, and
	// no request but the first waits for more than two small ones.
	askedShare = 4
	// maxRequests bounds the requests that one plan decides.
	maxRequests = 1024
)

// unit is what must be in one transaction.
type unit struct {
	conds  []store.Cond
	ops    []store.Op
	owners []int64 // the requests whose answers depend on it
}

func (u unit) size() int {
	n := 0
	for _, c := range u.conds {
		n += c.Size()
	}
	for _, op := range u.ops {
		n += op.Size()
	}
	return n
}

// plan is what was decided from one image. Its chunks fly together; the next
// plan is made when all of them are settled.
type plan struct {
	first   []*chunk
	then    []*chunk // after all of first, without those whose owners failed
	all     []*chunk
	answers map[int64]rpc.Answer
	asked   []asked // the requests that it decides, in order
	failed  map[int64]error
}

type chunkPhase uint8

const (
	waiting    chunkPhase = iota // to be sent
	committing                   // the answer of the store is awaited
	reading                      // the outcome is unknown, a read is awaited
	seen                         // answered; the image has yet to show it
	settled
)

// chunk is one transaction of a plan.
type chunk struct {
	id      int64
	txn     store.Txn
	owners  []int64
	phase   chunkPhase
	sent    time.Duration // when the unanswered call was sent first
	again   time.Duration // when to read next
	ok      bool          // committed, as far as is known
	refused error         // the store refused it for now
	rev     store.Rev     // what the image must reach
	found   []store.KV
	missing []string
}

// pack makes transactions of units, each under the guard, by operations and
// bytes.
func (l *Loop) pack(units []unit) []*chunk {
	var out []*chunk
	size := 0
	for _, u := range units {
		n := len(out)
		if n == 0 || len(out[n-1].txn.If)+len(u.conds) > chunkBlocks+2 ||
			len(out[n-1].txn.Then)+len(u.ops) > store.MaxOps || size+u.size() > maxChunkBytes {
			l.chunks++
			out = append(out, &chunk{id: l.chunks, txn: store.Txn{If: l.guard()}})
			n, size = n+1, 0
		}
		c := out[n-1]
		c.txn.If = append(c.txn.If, u.conds...)
		c.txn.Then = append(c.txn.Then, u.ops...)
		c.owners = append(c.owners, u.owners...)
		size += u.size()
	}
	return out
}

// guard is the claim's guard of a transaction.
func (l *Loop) guard() []store.Cond {
	if l.cfg.TakenOut.ClaimGuard.IsOpen() {
		return []store.Cond{store.CreateRevIs(l.im.Keys.Cluster(), l.im.CreateRev(l.im.Keys.Cluster()))}
	}
	return l.claim.Guard(l.im.Keys)
}

// advance moves the plan in flight on, and makes the next one.
func (l *Loop) advance(now time.Duration, out []Action) []Action {
	for l.plan != nil || l.makePlan(now) {
		var done bool
		if out, done = l.advancePlan(now, out); !done {
			return out
		}
		out = l.finishPlan(now, out)
	}
	return out
}

// advancePlan sends what may be sent. It reports whether all is settled.
func (l *Loop) advancePlan(now time.Duration, out []Action) ([]Action, bool) {
	p := l.plan
	out, done := l.advanceChunks(now, p.first, out)
	if !done || len(p.then) == 0 {
		return out, done
	}
	l.noteFailures(p.first)
	for _, c := range p.then {
		if c.phase == waiting && slices.ContainsFunc(c.owners, func(id int64) bool { return p.failed[id] != nil }) {
			c.phase = settled
		}
	}
	return l.advanceChunks(now, p.then, out)
}

func (l *Loop) advanceChunks(now time.Duration, chunks []*chunk, out []Action) ([]Action, bool) {
	flying, open := 0, 0
	for _, c := range chunks {
		if c.phase == seen && l.shown(c) {
			c.phase = settled
			out = l.fetchMissed(now, c, out)
		}
		if c.phase == committing || c.phase == reading {
			flying++
		}
		if c.phase != settled {
			open++
		}
	}
	for _, c := range chunks {
		switch {
		case c.phase == waiting && flying < inFlight:
			flying++
			c.phase, c.sent = committing, now
			out = append(out, Commit{Chunk: c.id, Claim: l.claim, Txn: c.txn})
		case c.phase == reading && c.again != 0 && now >= c.again:
			c.again = 0
			out = append(out, Read{Chunk: c.id, Keys: condKeys(c.txn)})
		}
	}
	return out, open == 0
}

// shown reports whether the image shows what became of the chunk. It never
// waits for events up to a header's revision: beside other users of the store
// they may never come.
func (l *Loop) shown(c *chunk) bool {
	if l.cfg.TakenOut.Settled.IsOpen() {
		return true
	}
	if c.ok && len(c.txn.Then) > 0 {
		return l.im.Rev >= c.rev
	}
	return l.im.Reached(c.rev, c.found, c.missing)
}

// fetchMissed reads what the watch has missed, as the failure of the chunk
// shows. To decide again before would fail again, as fast as the store answers.
func (l *Loop) fetchMissed(now time.Duration, c *chunk, out []Action) []Action {
	if c.ok {
		return out
	}
	keys := l.im.Missed(c.rev, c.found, c.missing)
	if len(keys) == 0 {
		return out
	}
	l.pause = now + storePause
	return l.fetch(keys, out)
}

func condKeys(t store.Txn) []string {
	var keys []string
	for _, c := range t.If {
		keys = append(keys, c.Key)
	}
	return keys
}

func (l *Loop) chunk(id int64) *chunk {
	if l.plan == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(l.plan.all, id, func(c *chunk, id int64) int { return int(c.id - id) })
	if !ok {
		return nil
	}
	return l.plan.all[i]
}

// committed takes in the store's answer to a chunk.
func (l *Loop) committed(now time.Duration, ev Committed) []Action {
	c := l.chunk(ev.Chunk)
	if c == nil || c.phase != committing {
		return nil
	}
	switch {
	case ev.Err == nil || store.Refused(ev.Err) || errors.Is(ev.Err, store.ErrNoSpace):
		l.answered, l.unanswered = now, 0
	case l.unanswered == 0:
		l.unanswered = c.sent
	}
	switch {
	case ev.Err != nil && store.Refused(ev.Err):
		c.phase, c.refused = settled, ev.Err
	case ev.Err != nil:
		if l.stopping {
			c.phase = settled
			return nil
		}
		c.phase = reading
		if errors.Is(ev.Err, store.ErrNoSpace) { // an answer, though it leaves the outcome open
			c.refused, c.sent = ev.Err, now
		}
		return []Action{Read{Chunk: c.id, Keys: condKeys(c.txn)}}
	case ev.Result.Succeeded:
		c.phase, c.ok, c.rev = seen, true, ev.Result.Rev
		l.Stats.Committed++
	default:
		l.Stats.GuardFailed++
		c.phase = seen
		return l.lookUp(now, c, store.Snapshot{Rev: ev.Result.Rev, KVs: ev.Result.Found})
	}
	return nil
}

// readBack takes in what a read found after an unknown outcome. Whether the
// transaction was applied does not matter: what it wanted is decided again.
func (l *Loop) readBack(now time.Duration, ev ReadBack) []Action {
	c := l.chunk(ev.Chunk)
	if c == nil || c.phase != reading {
		return nil
	}
	if ev.Err != nil {
		if l.stopping {
			c.phase = settled
		}
		c.again = now + 100*time.Millisecond
		return nil
	}
	c.phase = seen
	return l.lookUp(now, c, ev.Read)
}

// lookUp notes the state of a chunk's keys, and ends the term if the claim is
// gone.
func (l *Loop) lookUp(now time.Duration, c *chunk, read store.Snapshot) []Action {
	c.rev, c.found, c.missing = read.Rev, read.KVs, nil
	revs := map[string]store.Rev{}
	for _, kv := range read.KVs {
		revs[kv.Key] = kv.ModRev
	}
	for _, cond := range c.txn.If {
		if revs[cond.Key] == 0 && !slices.Contains(c.missing, cond.Key) {
			c.missing = append(c.missing, cond.Key)
		}
	}
	k := l.im.Keys
	if revs[k.Controller()] != l.claim.Rev || revs[k.ControllerEpoch()] != l.claim.Rev {
		if !l.cfg.TakenOut.ClaimGuard.IsOpen() {
			return l.deposed(now)
		}
	}
	return nil
}

// noteFailures remembers the owners of chunks that did not commit.
func (l *Loop) noteFailures(chunks []*chunk) {
	for _, c := range chunks {
		if c.ok || c.phase != settled {
			continue
		}
		for _, id := range c.owners {
			if l.plan.failed[id] == nil {
				l.plan.failed[id] = cmpErr(c.refused)
			}
		}
	}
}

func cmpErr(refused error) error {
	if refused != nil {
		return refused
	}
	return epoch.ErrClaimLost // only a mark: decided again
}

// finishPlan answers what was committed and puts the rest back: it is decided
// again from the image that shows why.
func (l *Loop) finishPlan(now time.Duration, out []Action) []Action {
	p := l.plan
	l.noteFailures(p.all)
	l.plan = nil
	if slices.ContainsFunc(p.all, func(c *chunk) bool { return !c.ok }) {
		l.lookAtQueue()
	}
	proven, refused := false, error(nil) // proven: some chunk committed under the claim
	for _, c := range p.all {
		proven = proven || c.ok
		if c.refused != nil {
			l.pause, refused = now+storePause, c.refused
		}
	}
	if wrote := slices.ContainsFunc(p.all, func(c *chunk) bool { return c.ok && len(c.txn.Then) > 0 }); refused != nil || wrote {
		l.refused = refused
	}
	var again []asked
	for _, a := range p.asked {
		failure := p.failed[a.id]
		switch {
		case failure != nil && !errors.Is(failure, epoch.ErrClaimLost):
			out = append(out, Answer{a.id, rpc.Answer{Err: refusedError(failure)}})
		case failure != nil || !proven:
			a.creation = nil // what it has made is known by the request id, or swept
			if a.elections != nil {
				a.elections = a.elections.before
			}
			if a.moves != nil {
				a.moves = a.moves.before
			}
			again = append(again, a)
		default:
			answer, decided := p.answers[a.id]
			if !decided {
				again = append(again, a)
				continue
			}
			shown := int64(max(l.im.Rev, p.rev()))
			switch r := answer.Response.(type) {
			case *pb.CreateTopicsResponse:
				r.Revision = shown
			case *pb.DeleteTopicsResponse:
				r.Revision = shown
			case *pb.ElectLeadersResponse:
				r.Revision = shown
			case *pb.AlterSettingsResponse:
				r.Revision = shown
			case *pb.AlterPartitionReassignmentsResponse:
				r.Revision = shown
			case *pb.DrainBrokerResponse:
				r.Revision = shown
			case *pb.AlterTopicsResponse:
				r.Revision = shown
			case *pb.CreatePartitionsResponse:
				r.Revision = shown
			}
			out = append(out, Answer{a.id, answer})
		}
	}
	l.requests = append(again, l.requests...)
	return out
}

// rev is the revision of the plan's last write.
func (p *plan) rev() (rev store.Rev) {
	for _, c := range p.all {
		if c.ok {
			rev = max(rev, c.rev)
		}
	}
	return rev
}

// oldestWrite is when the oldest write that is still unanswered was sent, or
// given up without an answer: a write that takes its place does not make the
// store younger. As long as answers to others arrive the store is slow, not
// away: of a whole plan of transactions the last may take long.
func (l *Loop) oldestWrite(now time.Duration) time.Duration {
	if l.plan == nil {
		return now
	}
	oldest := now
	for _, c := range l.plan.all {
		if c.phase != committing && c.phase != reading {
			continue
		}
		oldest = min(oldest, max(c.sent, l.answered))
		if l.unanswered != 0 {
			oldest = min(oldest, l.unanswered)
		}
	}
	return oldest
}
