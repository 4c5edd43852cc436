package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/rpc"
)

// LongestStep names, among the counters of DescribeController, how long the
// goroutine that owns the state was busy at a stretch at most since the process
// began, in microseconds by the clock: with a step of the pure code, or with what
// callers look at. More than 50,000 is a fault, or a machine that is too busy.
const LongestStep = "longest_step_us"

// maxLooks is how long the owner lets waiters look before it goes on with its
// own work; the rest look after the next step.
const maxLooks = 20 * time.Millisecond

// waiter is a call of Await. Its condition is not called any more once the
// call has returned: what it captures belongs to the caller again.
type waiter struct {
	met chan struct{}

	mu   sync.Mutex
	cond func(rpc.View) bool // nil: met, or given up
}

// look reports whether nobody waits any more.
func (w *waiter) look(v rpc.View) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cond != nil && w.cond(v) {
		w.cond = nil
		close(w.met)
	}
	return w.cond == nil
}

func (w *waiter) giveUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cond = nil
}

// notify tells those who wait for something in the image. It reports whether
// some have yet to look.
func (c *Controller) notify() (more bool) {
	if len(c.waiters) == 0 || !c.loop.Whole() {
		return false
	}
	begun := time.Now()
	defer func() { c.took(time.Since(begun)) }()
	view := c.loop.View()
	view.Counters[LongestStep] = c.owner.LongestStep.Microseconds()
	kept := c.waiters[:0]
	for n, w := range c.waiters {
		if n > 0 && time.Since(begun) > maxLooks {
			c.waiters = slices.Concat(c.waiters[n:], kept)
			return true
		}
		if !w.look(view) {
			kept = append(kept, w)
		}
	}
	clear(c.waiters[len(kept):])
	c.waiters = kept
	return false
}

// took notes how long the owner was busy at a stretch.
func (c *Controller) took(d time.Duration) { c.owner.LongestStep = max(c.owner.LongestStep, d) }

// Await waits until cond holds. cond is called in the goroutine of the loop,
// once soon and then whenever something happened; it must not keep the view.
func (c *Controller) Await(ctx context.Context, cond func(rpc.View) bool) error {
	w := &waiter{cond: cond, met: make(chan struct{})}
	defer w.giveUp()
	select {
	case c.queue <- item{waiter: w, posted: election.Clock()}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.ended:
		return ErrStopped
	}
	select {
	case <-w.met:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.ended:
		return ErrStopped
	}
}
