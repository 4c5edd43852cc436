package election

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/epoch"
	"github.com/controllerd/controllerd/store"
)

// RunConfig says how Run contends.
type RunConfig struct {
	Candidate Config
	Keys      cluster.Keys
	Logger    *slog.Logger // default: slog.Default()
	// Clock reads a clock that never steps; default: Clock of this package.
	Clock func() time.Duration

	// OnActive is the work of a term. The seat is given up only when it has
	// returned; its context ends when the term does. Returning earlier does
	// not end the term.
	OnActive func(ctx context.Context, claim epoch.Claim)
	// OnStandby, if set, hears why a term ended, after its work has stopped.
	OnStandby func(cause error)
}

// Run contends for the seat until the context ends, and then gives up in order
// what it holds. Whatever OnActive writes must carry the claim's guard.
func Run(ctx context.Context, s store.Store, cfg RunConfig) error {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Clock == nil {
		cfg.Clock = Clock
	}
	r := &runner{cfg: cfg, store: s, candidate: NewCandidate(cfg.Candidate), image: cluster.NewImage(cfg.Keys), queue: make(chan any, 64)}
	return r.run(ctx)
}

// runner drives one candidate; run's goroutine owns everything but the queue.
type runner struct {
	cfg       RunConfig
	store     store.Store
	candidate *Candidate
	image     *cluster.Image
	queue     chan any // store.Batch or Event
	wg        sync.WaitGroup
	endTerm   context.CancelFunc
	cause     error
}

func (r *runner) run(ctx context.Context) error {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer r.wg.Wait()
	defer cancel()
	r.wg.Go(func() {
		_ = Follow(inner, r.store, r.cfg.Keys.Prefix(), r.cfg.Candidate.TTL, r.cfg.Logger, func(b store.Batch) { r.post(inner, b) })
	})
	timer := time.NewTimer(0)
	defer timer.Stop()
	leave, late := ctx.Done(), (<-chan time.Time)(nil)
	for !r.candidate.Done() {
		var ev Event
		select {
		case <-leave:
			leave, late = nil, time.After(2*CallTimeout)
			ev = Leave{Reason: "told to stop"}
		case <-late:
			return context.Cause(ctx)
		case in := <-r.queue:
			if b, ok := in.(store.Batch); ok {
				r.image.Apply(b)
			} else {
				ev = in.(Event)
			}
		case <-timer.C:
		}
		now := Now{Mono: r.cfg.Clock(), WallMs: time.Now().UnixMilli()}
		for _, a := range r.candidate.Step(now, r.image, now.Mono, ev) {
			r.do(inner, a)
		}
		timer.Reset(max(r.candidate.Wake()-r.cfg.Clock(), time.Millisecond))
	}
	return nil
}

func (r *runner) post(ctx context.Context, in any) {
	select {
	case r.queue <- in:
	case <-ctx.Done():
	}
}

func (r *runner) do(ctx context.Context, a Action) {
	switch a := a.(type) {
	case Begin:
		term, end := context.WithCancel(ctx)
		r.endTerm = end
		r.wg.Go(func() {
			r.cfg.OnActive(term, a.Claim)
			<-term.Done()
			if r.cfg.OnStandby != nil {
				r.cfg.OnStandby(r.cause)
			}
			r.post(ctx, Stopped{})
		})
	case Stop:
		r.cause = a.Cause
		r.endTerm()
	default:
		Do(ctx, r.store, a, func(fn func()) { r.wg.Go(fn) }, func(ev Event) { r.post(ctx, ev) })
	}
}
