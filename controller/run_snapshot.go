package controller

import (
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
)

// snapshotInterval is how old the published snapshot is at most while the owner
// has much to do. Otherwise it is as old as the owner's last step, which is
// within a second.
const snapshotInterval = 200 * time.Millisecond

// Snapshot is the last one that the owner has published. It asks nothing of the
// owner, and must not be changed.
func (c *Controller) Snapshot() *Snapshot { return c.snapshot.Load() }

// Leading is the epoch under which the daemon may act at this very moment, if
// it may: its lease is looked at now, so that a process that was stopped and
// goes on says no at once.
func (c *Controller) Leading() (cluster.Epoch, bool) {
	e := c.claimed.Load()
	if e == 0 || !c.mayAct() || c.claimed.Load() != e {
		return 0, false
	}
	return cluster.Epoch(e), true
}

// Stepped is for how long the owner has not come to the end of a step: more
// than some seconds is a fault, or a machine that is too busy.
func (c *Controller) Stepped() time.Duration {
	return election.Clock() - time.Duration(c.stepped.Load())
}

// QueueLength is how many events wait for the owner.
func (c *Controller) QueueLength() int { return len(c.queue) }

// stand makes known until when the claim may be acted on. Between two terms
// there is a moment without one, so Leading mixes up no two of them.
func (c *Controller) stand() {
	claim, _ := c.loop.Active()
	c.claimed.Store(int64(claim.Epoch))
	c.quiet.Store(int64(c.loop.Quiet()))
}

// publish makes a snapshot of the daemon, if the last one is old or of another
// term.
func (c *Controller) publish(now time.Duration) {
	c.stepped.Store(int64(now))
	last := c.snapshot.Load()
	claim, active := c.loop.Active()
	same := active == (last.Claim != 0) && (!active || claim.Epoch == last.Claim)
	if !c.loop.Whole() || same && now-last.At < snapshotInterval && last.Revision != 0 {
		return
	}
	s := c.loop.Snapshot()
	s.At, s.Problems, s.Owner = now, len(c.problems), c.owner
	c.snapshot.Store(s)
}
