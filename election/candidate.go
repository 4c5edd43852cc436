package election

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/epoch"
	"github.com/controllerd/controllerd/internal/unfenced"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// Format is the newest format of a cluster that this code can serve.
const Format = 1

// Back-off between claims that were lost, and how long the seat is left to a
// named successor or to anybody but the one who gave it up.
const (
	minBackoff  = 10 * time.Millisecond
	maxBackoff  = 2 * time.Second
	courtesy    = time.Second
	grantPeriod = 500 * time.Millisecond // between attempts to get a lease
)

// Errors that end a term, beside epoch.ErrClaimLost.
var (
	// ErrLeaseLost: the lease is gone, or was not renewed in time.
	ErrLeaseLost = errors.New("election: lease lost")
	// ErrCluster: the cluster key is gone, or names another cluster.
	ErrCluster = errors.New("election: cluster key gone or changed")
	// ErrOutbid: an epoch above that of the term was seen in some key.
	ErrOutbid = errors.New("election: a higher epoch was seen")
	// ErrResigned: the term was given up on purpose.
	ErrResigned = errors.New("election: resigned")
)

// Now is one reading of the clocks.
type Now struct {
	Mono   time.Duration // never steps, does not stop in a suspend
	WallMs int64         // Unix milliseconds, stored for people, never compared
}

// Config describes a candidate.
type Config struct {
	Self *pb.ControllerRecord // without the lease
	// Version is shown to people.
	Version string
	TTL     time.Duration
	// ClusterUUID is the uuid that the cluster gets if this daemon is the first.
	ClusterUUID string
	Rand        *rand.Rand // jitter
	Strategy    Strategy
	// DeathProbe has the holder of the seat attended, and the seat freed when its
	// death is proved. It needs an owner that carries out Attend; Run does not.
	DeathProbe bool
	// Deadline takes out that the seat is given up before the lease can expire;
	// see package unfenced.
	Deadline unfenced.Switch
}

type phase uint8

const (
	noLease phase = iota
	granting
	standby
	claiming
	active
	stopping  // the term is over, its work is being stopped
	releasing // the seat and the lease are being given up
	done      // told to stop, nothing held any more
)

// Candidate is the pure part of one daemon's election. Step is its only input.
type Candidate struct {
	cfg    Config
	phase  phase
	keeper *Keeper
	claim  epoch.Claim
	end    epoch.End
	lost   bool // the claim is certainly gone: nothing to release

	uuid    string // of the cluster, once seen
	problem string // why it does not campaign

	retry      time.Duration // not before: the next grant or claim
	backoff    time.Duration
	emptySince time.Duration // when the image first showed an empty seat; -1: it is taken
	vacated    time.Duration // the last emptySince that was not -1
	held       store.Rev     // mod revision of the seat that was seen last
	loss       loss          // of the last holder whose connection broke
	brokeAt    time.Duration // when that of the holder broke before the seat was vacated; 0: it did not
	putting    bool          // a put of the cluster key or the candidate key is on its way
	putAgain   time.Duration // not before: the next such put
	putRev     store.Rev     // what the image must have reached before the next such put
	beaten     *claimAnswer  // what beat the last claim, until the image shows it
	leaving    bool          // told to stop for good
	place      place         // in the queue
	rewound    string        // what proves that the store has gone back, beside what the image knows
	asked      struct {      // the newest probe
		sent time.Duration
		rev  store.Rev // of the image then: the store is not behind it
	}
	doubtful bool // the last lease was given up in doubt, and no read was answered since
	wake     time.Duration
	proven   time.Duration // when the store and the watch last proved to be there
	margins  margins
	witness  witness

	Proofs Proofs
}

// claimAnswer is the answer to a claim that the image has yet to show.
type claimAnswer struct {
	won     bool // the store says so
	rev     store.Rev
	found   []store.KV
	missing []string
	sent    time.Duration // unknown outcome: a read sent later settles it
	unknown bool
}

// NewCandidate is a candidate without a lease.
func NewCandidate(cfg Config) *Candidate {
	return &Candidate{cfg: cfg, emptySince: -1}
}

// Active is the claim under which this daemon may act now, if it may.
func (c *Candidate) Active(now time.Duration) (epoch.Claim, bool) {
	return c.claim, c.phase == active && now < c.Quiet()
}

// Quiet is when the claim must not be acted on any more.
func (c *Candidate) Quiet() time.Duration {
	if c.keeper == nil {
		return 0
	}
	if c.cfg.Deadline.IsOpen() {
		return math.MaxInt64
	}
	return c.keeper.Quiet()
}

// Holding reports whether a term is running or being ended.
func (c *Candidate) Holding() bool {
	return c.phase == active || c.phase == stopping || c.phase == releasing
}

// Done reports whether the candidate was told to stop and holds nothing.
func (c *Candidate) Done() bool { return c.phase == done }

// Lease is the lease held, 0 if none.
func (c *Candidate) Lease() store.LeaseID {
	if c.keeper == nil {
		return 0
	}
	return c.keeper.Lease
}

// Blind is for how long nothing has proved that the image is what the store
// holds; 0 if it is less than a TTL.
func (c *Candidate) Blind(now time.Duration) time.Duration {
	if c.proven == 0 || now-c.proven < c.cfg.TTL {
		return 0
	}
	return now - c.proven
}

// Problem says why the daemon does not campaign; empty: it does.
func (c *Candidate) Problem() string { return c.problem }

// ClusterUUID is the uuid of the cluster that it serves, empty until seen.
func (c *Candidate) ClusterUUID() string { return c.uuid }

// Wake is when Step is to be called if nothing happens before.
func (c *Candidate) Wake() time.Duration { return c.wake }

// Step takes in one event (nil: time passed, or the image changed) and says
// what to do. oldestWrite is when the oldest unanswered write of the term was
// sent, now if there is none.
func (c *Candidate) Step(now Now, im *cluster.Image, oldestWrite time.Duration, ev Event) []Action {
	var out []Action
	c.noteMargin(now.Mono)
	if ev != nil {
		out = c.take(now, im, ev)
	}
	c.wake = now.Mono + time.Second
	c.observe(now.Mono, im)
	switch c.phase {
	case noLease:
		out = c.stepNoLease(now, im, out)
	case standby, claiming:
		out = c.stepStandby(now, im, oldestWrite, out)
	case active:
		out = c.stepActive(now, im, oldestWrite, out)
	}
	return c.attend(now.Mono, im, out)
}

// observe notes what the image shows, whatever the phase.
func (c *Candidate) observe(now time.Duration, im *cluster.Image) {
	if c.keeper != nil {
		c.keeper.Observe(im)
		if c.keeper.seen || c.proven == 0 { // a lease that was granted again says nothing about the watch
			c.proven = max(c.proven, c.keeper.proven)
		}
		c.doubtful = c.doubtful && (!c.keeper.seen || c.phase == stopping || c.phase == releasing)
	}
	switch {
	case !epoch.Vacant(im):
		c.emptySince, c.held = -1, im.Controller.ModRev
		c.backoff = 0
	case c.emptySince < 0:
		c.emptySince, c.vacated, c.brokeAt = now, now, 0
		if c.held == c.loss.seat {
			c.brokeAt = c.loss.at
		}
	}
	if im.Rev == 0 {
		c.problem = "nothing read from etcd yet"
		return
	}
	if c.uuid == "" && im.Cluster != nil {
		c.uuid = im.Cluster.GetUuid()
	}
	c.problem = c.clusterProblem(im)
}

func (c *Candidate) clusterProblem(im *cluster.Image) string {
	key := im.Keys.Cluster()
	switch {
	case im.Cluster == nil && c.uuid != "":
		return fmt.Sprintf("key %s is gone or unreadable, it named cluster %s: restore it", key, c.uuid)
	case im.Cluster == nil && (im.ModRev(key) != 0 || im.MaxEpoch() > 0 || len(im.Topics) > 0 || len(im.Nodes) > 0):
		return fmt.Sprintf("key %s is missing or unreadable under a prefix that is in use: restore it, no second cluster is made there", key)
	case im.Cluster == nil:
		return "" // the prefix is new
	case im.Cluster.GetUuid() != c.uuid:
		return fmt.Sprintf("key %s names cluster %s instead of %s", key, im.Cluster.GetUuid(), c.uuid)
	case im.Cluster.GetFormat() > Format:
		return fmt.Sprintf("the cluster has format %d, this daemon knows up to %d: use a newer one", im.Cluster.GetFormat(), Format)
	case im.Recovery != nil:
		return fmt.Sprintf("a recovery of epoch %d has begun and is not finished: run controllerd recover again", im.Recovery.GetEpoch())
	case im.Rewound != "" || c.rewound != "":
		return fmt.Sprintf("etcd was restored to an older state (%s): stop all daemons, run controllerd recover, start them again", cmp.Or(im.Rewound, c.rewound))
	case im.MaxEpoch()+1 >= cluster.MaxEpoch:
		return fmt.Sprintf("epoch %d was seen, there is none above it: delete the key that names it, and start the daemons anew", im.MaxEpoch())
	}
	return ""
}

func (c *Candidate) stepNoLease(now Now, im *cluster.Image, out []Action) []Action {
	if c.leaving {
		c.phase = done
		return out
	}
	if im.Rev == 0 { // to load everything may take longer than a lease lasts
		return out
	}
	if now.Mono < c.retry {
		c.wakeAt(c.retry)
		return out
	}
	c.phase = granting
	return append(out, Grant{TTL: c.cfg.TTL, Sent: now.Mono})
}

// tend keeps the lease. It reports false if the lease can not be relied on.
func (c *Candidate) tend(now Now, im *cluster.Image, oldestWrite time.Duration, out []Action) ([]Action, bool) {
	k := c.keeper
	if now.Mono >= c.Quiet() || k.Hung(now.Mono, oldestWrite) {
		c.doubtful = true // of the next lease
		return out, false
	}
	if k.ProbeDue(now.Mono) {
		k.ProbeSent(now.Mono)
		c.asked.sent, c.asked.rev = now.Mono, im.Rev
		out = append(out, Probe{Sent: now.Mono, Keys: []string{im.Keys.Controller(), im.Keys.ControllerEpoch()}})
	}
	if k.RenewDue(now.Mono, oldestWrite) {
		k.Sent(now.Mono)
		out = append(out, Renew{Lease: k.Lease, Sent: now.Mono, Timeout: k.Deadline() - now.Mono})
	}
	c.wakeAt(k.Wake(now.Mono))
	return out, true
}

func (c *Candidate) stepStandby(now Now, im *cluster.Image, oldestWrite time.Duration, out []Action) []Action {
	if c.leaving {
		return c.giveUpLease(out)
	}
	out, ok := c.tend(now, im, oldestWrite, out)
	if !ok {
		return c.giveUpLease(out)
	}
	switch claim, won := epoch.Won(im, c.cfg.Self.GetNonce(), c.keeper.Lease); {
	case won && c.problem == "":
		c.phase, c.claim, c.lost, c.end, c.beaten = active, claim, false, epoch.End{}, nil
		return append(out, Begin{Claim: claim})
	case im.Controller != nil && im.Controller.Lease == c.keeper.Lease:
		return c.giveUpLease(out) // it keeps a seat taken that nobody can act in
	}
	if c.phase == claiming {
		if c.beaten == nil || !c.settled(im) {
			return out
		}
		c.beaten, c.phase = nil, standby
	}
	out = c.enlist(now.Mono, im, out)
	if c.cfg.Strategy == Queue {
		out = c.queue(now.Mono, im, out)
	}
	return c.campaign(now, im, out)
}

// settled reports whether the image shows what became of the last claim.
func (c *Candidate) settled(im *cluster.Image) bool {
	switch {
	case c.beaten.unknown:
		return c.keeper.proven > c.beaten.sent
	case c.beaten.won: // and the image shows somebody else, or nobody
		return im.Rev >= c.beaten.rev
	}
	return im.Reached(c.beaten.rev, c.beaten.found, c.beaten.missing)
}

// enlist puts the candidate key, so that others can see who would follow.
func (c *Candidate) enlist(now time.Duration, im *cluster.Image, out []Action) []Action {
	key := im.Keys.Candidate(c.keeper.Lease)
	if im.Rev == 0 || im.ModRev(key) != 0 || c.problem != "" || im.Cluster == nil || !c.mayPut(now, im) {
		return out
	}
	return append(out, Commit{Purpose: Enlist, Txn: store.Txn{
		If:   []store.Cond{store.Missing(key)},
		Then: []store.Op{store.PutLeased(key, c.enlisted(), c.keeper.Lease)},
	}})
}

// enlisted is the value of the candidate key.
func (c *Candidate) enlisted() []byte {
	return cluster.Encode(&pb.CandidateRecord{
		Id: c.cfg.Self.GetId(), Nonce: c.cfg.Self.GetNonce(), Endpoint: c.cfg.Self.GetEndpoint(),
		Version: c.cfg.Version, StartedMs: c.cfg.Self.GetStartedMs(),
	})
}

func (c *Candidate) campaign(now Now, im *cluster.Image, out []Action) []Action {
	if !c.mayFollow(now.Mono) {
		return out
	}
	if im.Cluster == nil {
		return c.found(now.Mono, im, out)
	}
	if !epoch.Vacant(im) {
		return out
	}
	if at := max(c.retry, c.emptySince+c.leaveTo(im)); now.Mono < at {
		c.wakeAt(at)
		return out
	}
	txn := epoch.Mint(im, c.self(), now.WallMs)
	if c.cfg.Strategy == Queue {
		own := c.ownPlace(im)
		if own.Rev == 0 { // not in the queue
			return out
		}
		txn.If = append(txn.If, own)
	}
	c.phase, c.beaten = claiming, nil
	return append(out, Commit{Purpose: Claim, Txn: txn, Sent: now.Mono})
}

// mayFollow reports whether nothing keeps a daemon that has a lease from taking
// an empty seat.
func (c *Candidate) mayFollow(now time.Duration) bool {
	return c.problem == "" && !c.doubtful && c.keeper.Proven(now)
}

func (c *Candidate) self() *pb.ControllerRecord {
	s := c.cfg.Self
	return &pb.ControllerRecord{
		Id: s.GetId(), Nonce: s.GetNonce(), Endpoint: s.GetEndpoint(), StartedMs: s.GetStartedMs(),
		Lease: int64(c.keeper.Lease),
	}
}

// found writes the cluster key of a new prefix.
func (c *Candidate) found(now time.Duration, im *cluster.Image, out []Action) []Action {
	if !c.mayPut(now, im) {
		return out
	}
	k := im.Keys
	return append(out, Commit{Purpose: Found, Txn: store.Txn{
		If:   []store.Cond{store.Missing(k.Cluster()), store.Missing(k.ControllerEpoch())},
		Then: []store.Op{store.Put(k.Cluster(), cluster.Encode(&pb.ClusterRecord{Uuid: c.cfg.ClusterUUID, Format: Format}))},
	}})
}

// mayPut claims the one put beside the seat that is on its way at a time. The
// next one is not sent before the image shows what became of it.
func (c *Candidate) mayPut(now time.Duration, im *cluster.Image) bool {
	if c.putting || now < c.putAgain || im.Rev < c.putRev {
		c.wakeAt(max(c.putAgain, now+grantPeriod))
		return false
	}
	c.putting = true
	return true
}

// leaveTo is how long an empty seat is left to others: to the successor that
// the last term named, to anybody else if this daemon resigned it, or to the
// head of the queue.
func (c *Candidate) leaveTo(im *cluster.Image) time.Duration {
	last := im.Terms[im.MaxEpoch()]
	if !c.hasRivals(im) {
		return 0
	}
	r := &pb.TermRecord{}
	if last != nil {
		r = last.Record
	}
	switch {
	case r.GetSuccessor() == c.cfg.Self.GetId() && r.GetSuccessor() != "":
		return 0
	case c.cfg.Strategy == Queue && !c.first(im):
		return patience
	case r.GetSuccessor() != "":
		return courtesy
	case r.GetNonce() == c.cfg.Self.GetNonce() && gaveWay(r.GetEndCause()):
		return courtesy
	}
	return 0
}

// gaveWay reports whether a term was ended for somebody else to follow.
func gaveWay(cause pb.EndCause) bool {
	return cause == pb.EndCause_END_CAUSE_RESIGNED || cause == pb.EndCause_END_CAUSE_CUT_OFF
}

func (c *Candidate) hasRivals(im *cluster.Image) bool {
	for _, other := range im.Candidates {
		if other.Record.GetNonce() != c.cfg.Self.GetNonce() {
			return true
		}
	}
	return false
}

func (c *Candidate) stepActive(now Now, im *cluster.Image, oldestWrite time.Duration, out []Action) []Action {
	switch {
	case c.problem != "":
		return c.endTerm(epoch.End{Cause: pb.EndCause_END_CAUSE_SELF_FENCED, Reason: c.problem}, ErrCluster, out)
	case !c.claim.Holds(im):
		c.lost = true
		return c.endTerm(epoch.End{}, epoch.ErrClaimLost, out)
	case im.MaxEpoch() > c.claim.Epoch: // in a key that somebody else wrote: the next term is above it
		reason := fmt.Sprintf("epoch %d was seen in a key of another", im.MaxEpoch())
		return c.endTerm(epoch.End{Cause: pb.EndCause_END_CAUSE_SELF_FENCED, Reason: reason}, ErrOutbid, out)
	}
	out, ok := c.tend(now, im, oldestWrite, out)
	if !ok {
		return c.endTerm(epoch.End{Cause: pb.EndCause_END_CAUSE_SELF_FENCED, Reason: c.doubt(now.Mono, oldestWrite)}, ErrLeaseLost, out)
	}
	return c.enlist(now.Mono, im, out) // it may have won before it came to that
}

// doubt says why the lease was not renewed.
func (c *Candidate) doubt(now, oldestWrite time.Duration) string {
	switch {
	case now-oldestWrite >= c.keeper.ttl/2:
		return "etcd did not answer a write in time"
	case !c.keeper.Proven(now):
		return "etcd or its watch did not answer in time"
	}
	return "the lease was not renewed in time"
}

func (c *Candidate) wakeAt(t time.Duration) { c.wake = min(c.wake, t) }
