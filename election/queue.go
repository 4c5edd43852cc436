package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/store"
)

// Strategy says which candidate takes an empty seat.
type Strategy uint8

// The strategies. All daemons of a cluster should have the same, though safety
// does not depend on it: a daemon that races does not wait for its turn.
const (
	// Race: whoever comes first, as Kafka's controllers do.
	Race Strategy = iota
	// Queue: whoever has waited longest. Each candidate waits for the one before
	// it only, so that the end of a term wakes one of them.
	Queue
)

// String is "race" or "queue".
func (s Strategy) String() string {
	if s == Queue {
		return "queue"
	}
	return "race"
}

// MarshalText writes what UnmarshalText reads.
func (s Strategy) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads "race" or "queue".
func (s *Strategy) UnmarshalText(text []byte) error {
	for _, known := range []Strategy{Race, Queue} {
		if known.String() == string(text) {
			*s = known
			return nil
		}
	}
	return fmt.Errorf("election strategy %q is neither race nor queue", text)
}

// patience is how long an empty seat is left to the head of the queue, which
// may hang. Then any candidate may claim it.
const patience = 2 * time.Second

// place is what a candidate knows of its place in the queue.
type place struct {
	waiting bool          // for its turn
	again   time.Duration // not before: the next wait
	head    store.Rev     // of the candidate key that has none before it, 0: not known
}

// ownPlace is the condition that the candidate key still stands: waiting for
// those before it does not look at it.
func (c *Candidate) ownPlace(im *cluster.Image) store.Cond {
	key := im.Keys.Candidate(c.keeper.Lease)
	return store.CreateRevIs(key, im.CreateRev(key))
}

// first reports whether the candidate is the head of the queue.
func (c *Candidate) first(im *cluster.Image) bool {
	return c.place.head != 0 && c.place.head == c.ownPlace(im).Rev
}

// queue waits for its turn, from when the image shows the candidate key. Once
// it has come it stays, as long as the key does.
func (c *Candidate) queue(now time.Duration, im *cluster.Image, out []Action) []Action {
	if c.place.waiting || c.ownPlace(im).Rev == 0 || c.first(im) || c.problem != "" {
		return out
	}
	if now < c.place.again {
		c.wakeAt(c.place.again)
		return out
	}
	c.place.waiting = true
	return append(out, AwaitTurn{Prefix: im.Keys.Candidates(), Lease: c.keeper.Lease, Value: c.enlisted(), Timeout: c.cfg.TTL})
}

// turnCame takes in the end of a wait. One that took too long is begun again:
// only so does it end when the lease is given up.
func (c *Candidate) turnCame(now time.Duration, ev TurnCame) []Action {
	if c.keeper == nil || ev.Lease != c.keeper.Lease {
		return nil
	}
	c.place.waiting = false
	switch {
	case ev.Err == nil:
		c.place.head = ev.Rev
	case errors.Is(ev.Err, store.ErrLeaseNotFound):
		return c.leaseGone()
	case errors.Is(ev.Err, context.DeadlineExceeded):
		c.place.again = now + minBackoff
	default:
		c.place.again = now + grantPeriod
	}
	return nil
}
