package election

import (
	"errors"
	"fmt"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/epoch"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// Purpose says what a Commit of the candidate is for.
type Purpose uint8

// The purposes of a Commit.
const (
	Found   Purpose = iota // make the cluster key
	Enlist                 // put the candidate key
	Claim                  // win the seat
	Release                // give it up
	Bury                   // free the seat of one whose death is proved
)

// Action is something that the candidate wants done. Each but Begin, Stop and
// Attend is answered by exactly one Event.
type Action interface{ action() }

// Grant asks for a lease; answered by Granted.
type Grant struct {
	TTL  time.Duration
	Sent time.Duration
}

// Renew renews the lease; answered by Renewed.
type Renew struct {
	Lease   store.LeaseID
	Sent    time.Duration
	Timeout time.Duration
}

// Probe reads keys linearizably; answered by Probed.
type Probe struct {
	Keys []string
	Sent time.Duration
}

// Commit runs a transaction; answered by Committed.
type Commit struct {
	Purpose Purpose
	Txn     store.Txn
	Sent    time.Duration
}

// AwaitTurn queues among the candidates; answered by TurnCame.
type AwaitTurn struct {
	Prefix  string
	Lease   store.LeaseID
	Value   []byte // of the candidate key
	Timeout time.Duration
}

// Revoke ends a lease; answered by Revoked.
type Revoke struct{ Lease store.LeaseID }

// Begin says that a term has begun.
type Begin struct{ Claim epoch.Claim }

// Stop says that the term is over: the owner stops its work, waits until it
// has stopped, and answers with Stopped.
type Stop struct {
	Claim epoch.Claim
	Cause error
	End   epoch.End
}

func (Grant) action()     {}
func (Renew) action()     {}
func (Probe) action()     {}
func (Commit) action()    {}
func (AwaitTurn) action() {}
func (Revoke) action()    {}
func (Begin) action()     {}
func (Stop) action()      {}

// Event is an answer to an Action, or a wish of the owner.
type Event interface{ event() }

// Granted answers Grant.
type Granted struct {
	Sent  time.Duration
	Lease store.Lease
	Err   error
}

// Renewed answers Renew.
type Renewed struct {
	Lease store.LeaseID
	Sent  time.Duration
	TTL   time.Duration
	Err   error
}

// Probed answers Probe.
type Probed struct {
	Sent time.Duration
	Read store.Snapshot
	Err  error
}

// Committed answers Commit.
type Committed struct {
	Commit Commit
	Result store.Result
	Err    error
}

// TurnCame answers AwaitTurn.
type TurnCame struct {
	Lease store.LeaseID
	Rev   store.Rev // create revision of the candidate key
	Err   error
}

// Revoked answers Revoke.
type Revoked struct{ Lease store.LeaseID }

// Stopped answers Stop.
type Stopped struct{}

// Resign asks to give up the seat, if it is held.
type Resign struct{ End epoch.End }

// Leave asks to give up everything, for good.
type Leave struct{ Reason string }

// Deposed says that a guarded transaction of the term failed on its guard.
type Deposed struct{ Claim epoch.Claim }

func (Granted) event()   {}
func (Renewed) event()   {}
func (Probed) event()    {}
func (Committed) event() {}
func (TurnCame) event()  {}
func (Revoked) event()   {}
func (Stopped) event()   {}
func (Resign) event()    {}
func (Leave) event()     {}
func (Deposed) event()   {}

// take applies one event.
func (c *Candidate) take(now Now, im *cluster.Image, ev Event) []Action {
	switch ev := ev.(type) {
	case Granted:
		return c.granted(now, ev)
	case Renewed:
		if c.keeper == nil || ev.Lease != c.keeper.Lease {
			return nil
		}
		if errors.Is(ev.Err, store.ErrLeaseNotFound) {
			return c.leaseGone()
		}
		if ev.Err == nil {
			c.keeper.Renewed(ev.Sent, ev.TTL)
		}
	case Probed:
		return c.probed(ev)
	case Committed:
		return c.committed(now, ev)
	case TurnCame:
		return c.turnCame(now.Mono, ev)
	case Refused:
		return c.refused(now, im, ev)
	case Revoked:
		if c.phase == releasing && ev.Lease == c.keeper.Lease {
			return c.released(now)
		}
	case Stopped:
		if c.phase == stopping {
			return c.release(now, im)
		}
	case Resign:
		if c.phase == active {
			return c.endTerm(ev.End, ErrResigned, nil)
		}
	case Leave:
		c.leaving = true
		if c.phase == active {
			return c.endTerm(epoch.End{Cause: pb.EndCause_END_CAUSE_SHUTDOWN, Reason: ev.Reason}, ErrResigned, nil)
		}
	case Deposed:
		if c.phase == active && ev.Claim == c.claim {
			c.lost = true
			return c.endTerm(epoch.End{}, epoch.ErrClaimLost, nil)
		}
	}
	return nil
}

func (c *Candidate) granted(now Now, ev Granted) []Action {
	if c.phase != granting {
		return nil
	}
	if ev.Err != nil {
		c.phase, c.retry = noLease, now.Mono+grantPeriod
		return nil
	}
	c.phase, c.keeper = standby, NewKeeper(ev.Lease, ev.Sent)
	return nil
}

// probed takes in a read of the seat and the epoch key. A term whose keys are
// not the ones that it won is over, without waiting for the watch to say so.
func (c *Candidate) probed(ev Probed) []Action {
	if c.keeper == nil || ev.Err != nil {
		return nil
	}
	if ev.Sent == c.asked.sent && ev.Read.Rev < c.asked.rev {
		c.rewound = fmt.Sprintf("it is at revision %d, after %d", ev.Read.Rev, c.asked.rev)
		return nil
	}
	c.keeper.Probed(ev.Sent, ev.Read)
	if c.phase != active || ev.Read.Rev < c.claim.Rev {
		return nil
	}
	stands := 0
	for _, kv := range ev.Read.KVs {
		if kv.ModRev == c.claim.Rev {
			stands++
		}
	}
	if stands < 2 {
		c.lost = true
		return c.endTerm(epoch.End{}, epoch.ErrClaimLost, nil)
	}
	return nil
}

func (c *Candidate) committed(now Now, ev Committed) []Action {
	ours := c.keeper != nil && ev.Commit.Txn.Then[0].Lease == c.keeper.Lease // not of a lease given up since
	switch ev.Commit.Purpose {
	case Found, Enlist:
		c.putting = false
		if ev.Err != nil {
			c.putAgain = now.Mono + grantPeriod
		} else {
			c.putRev = ev.Result.Rev
		}
	case Release:
		return c.giveUpLease(nil)
	case Claim:
		if c.phase == claiming && ours {
			c.claimed(now, ev)
		}
	}
	if ours && errors.Is(ev.Err, store.ErrLeaseNotFound) {
		return c.leaseGone()
	}
	return nil
}

// claimed notes the answer to a claim. Whether it won is read from the image,
// not from the answer: the reply may be lost, and a lease may be gone by now.
func (c *Candidate) claimed(now Now, ev Committed) {
	c.backoff = min(max(2*c.backoff, minBackoff), maxBackoff)
	c.retry = now.Mono + c.backoff/2 + time.Duration(c.cfg.Rand.Int64N(int64(c.backoff/2)+1))
	switch {
	case ev.Err != nil && store.Refused(ev.Err):
		c.beaten = &claimAnswer{}
	case ev.Err != nil:
		c.beaten = &claimAnswer{unknown: true, sent: now.Mono}
	default:
		c.beaten = &claimAnswer{won: ev.Result.Succeeded, rev: ev.Result.Rev, found: ev.Result.Found}
		if !ev.Result.Succeeded {
			c.beaten.missing = missingKeys(ev.Commit.Txn.If, ev.Result.Found)
		}
	}
}

func missingKeys(conds []store.Cond, found []store.KV) []string {
	var out []string
	for _, cond := range conds {
		there := false
		for _, kv := range found {
			there = there || kv.Key == cond.Key
		}
		if !there {
			out = append(out, cond.Key)
		}
	}
	return out
}

// leaseGone reacts to the store saying that the lease does not exist: the key
// that was on it is gone too.
func (c *Candidate) leaseGone() []Action {
	switch c.phase {
	case active:
		c.lost = true
		return c.endTerm(epoch.End{}, ErrLeaseLost, nil)
	case standby, claiming:
		return c.giveUpLease(nil)
	}
	return nil
}

func (c *Candidate) endTerm(end epoch.End, cause error, out []Action) []Action {
	c.phase, c.end = stopping, end
	return append(out, Stop{Claim: c.claim, Cause: cause, End: end})
}

// release gives up the seat under the claim, and then the lease: deleting the
// key alone would leave the lease behind, and revoking the lease first would
// leave the end out of the history.
func (c *Candidate) release(now Now, im *cluster.Image) []Action {
	if c.lost {
		return c.giveUpLease(nil)
	}
	c.phase = releasing
	txn := epoch.Release(im, c.claim, c.keeper.Lease, c.end, now.WallMs)
	return []Action{Commit{Purpose: Release, Txn: txn, Sent: now.Mono}}
}

// giveUpLease drops a lease under which nothing is held.
func (c *Candidate) giveUpLease(out []Action) []Action {
	c.phase = releasing
	return append(out, Revoke{Lease: c.keeper.Lease})
}

func (c *Candidate) released(now Now) []Action {
	c.phase, c.keeper, c.claim, c.beaten, c.place = noLease, nil, epoch.Claim{}, nil, place{}
	c.retry = now.Mono
	return nil
}
