package recovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/epoch"
	"github.com/controllerd/controllerd/store"
)

const (
	// seatPause is between looks at a seat that is to fall free.
	seatPause = 200 * time.Millisecond
	// callTimeout bounds one transaction.
	callTimeout = 10 * time.Second
	// attempts bounds how often the plan is made anew because somebody writes, or
	// because the outcome of a transaction is not known.
	attempts = 10
)

// ErrUnsettled says that a recovery has begun and is not finished: no daemon
// takes the seat until it is run again.
var ErrUnsettled = errors.New("recovery: not finished, run it again")

// Config says how Run goes about it.
type Config struct {
	Options
	Store store.Store
	Keys  cluster.Keys
	// Brokers are control addresses of brokers to ask, beside those that etcd
	// names.
	Brokers []string
	// DialOptions are for the connections to brokers; none means plain text.
	DialOptions []grpc.DialOption
	// SeatWait is how long a seat that is taken is waited for: the snapshot may
	// hold that of a daemon which is gone, until its lease expires.
	SeatWait time.Duration
	// Confirm is asked once, before anything is written; an error ends it there.
	Confirm func(*Plan) error
	// Progress hears how many partitions are raised. May be nil.
	Progress func(done, of int)
}

// Run asks the brokers and, if any knows more than etcd holds, raises all
// epochs. It returns the plan that was made last, nil if it did not come to
// that. An error that wraps ErrUnsettled leaves a recovery that has begun.
func Run(ctx context.Context, cfg Config) (*Plan, error) {
	if err := cfg.awaitSeat(ctx); err != nil {
		return nil, err
	}
	im, err := cfg.look(ctx)
	if err != nil {
		return nil, err
	}
	memory := ask(ctx, addresses(im, cfg.Brokers), cfg.DialOptions)
	plan, err := Make(im, memory, cfg.Options)
	if err != nil || !plan.Needed {
		return plan, err
	}
	if err := cfg.Confirm(plan); err != nil {
		return plan, err
	}
	plan, err = cfg.insist(ctx, plan)
	if err != nil && plan.Begun {
		err = fmt.Errorf("%w: %w", ErrUnsettled, err)
	}
	return plan, err
}

// insist carries a plan out, made anew as long as etcd turns out to hold
// something else than it was made from.
func (cfg *Config) insist(ctx context.Context, plan *Plan) (*Plan, error) {
	for n := 1; ; n++ {
		err := cfg.carryOut(ctx, plan)
		if err == nil || n == attempts || ctx.Err() != nil || !errors.Is(err, errAgain) {
			return plan, err
		}
		im, err := cfg.look(ctx)
		if err != nil {
			return plan, err
		}
		next, err := Make(im, plan.memory, cfg.Options)
		switch plan.Begun = im.Recovery != nil; {
		case err != nil || !next.Needed: // the last transaction was applied, though its answer was lost
			return plan, err
		}
		plan = next
	}
}

// errAgain: the plan has to be made anew from what etcd holds now.
var errAgain = errors.New("etcd holds something else than was read")

// carryOut writes the plan.
func (cfg *Config) carryOut(ctx context.Context, p *Plan) (err error) {
	txn, rev, needed := p.Begin(time.Now().UnixMilli())
	if needed {
		rev, err = cfg.commit(ctx, txn)
		p.Begun = p.Begun || !store.Refused(err)
		if err != nil {
			return err
		}
	}
	cfg.progress(p.Done, p.Partitions)
	for c := range p.Chunks(rev, time.Now().UnixMilli()) {
		if _, err := cfg.commit(ctx, c.Txn); err != nil {
			return err
		}
		cfg.progress(c.Partitions, p.Partitions)
	}
	if _, err = cfg.commit(ctx, p.Finish(rev, time.Now().UnixMilli())); err == nil {
		p.Begun = false
	}
	return err
}

// commit runs one transaction and returns its revision.
func (cfg *Config) commit(ctx context.Context, txn store.Txn) (store.Rev, error) {
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	result, err := cfg.Store.Commit(limited, txn)
	switch {
	case store.Refused(err):
		return 0, err
	case err != nil:
		return 0, fmt.Errorf("%w: %w", errAgain, err)
	case !result.Succeeded:
		return 0, fmt.Errorf("%w: a daemon has taken the seat, or another recovery runs", errAgain)
	}
	return result.Rev, nil
}

func (cfg *Config) progress(done, of int) {
	if cfg.Progress != nil {
		cfg.Progress(done, of)
	}
}

// look reads everything.
func (cfg *Config) look(ctx context.Context) (*cluster.Image, error) {
	list, err := cfg.Store.List(ctx, cfg.Keys.Prefix(), false)
	if err != nil {
		return nil, fmt.Errorf("read the cluster: %w", err)
	}
	im := cluster.NewImage(cfg.Keys)
	b := store.Batch{Rev: list.Rev, Reset: true, Changes: make([]store.Change, len(list.KVs))}
	for i, kv := range list.KVs {
		b.Changes[i] = store.Change{KV: kv}
	}
	im.Apply(b)
	return im, nil
}

// awaitSeat waits until nobody holds the seat, or the time for that is over.
func (cfg *Config) awaitSeat(ctx context.Context) error {
	tick := time.NewTicker(seatPause)
	defer tick.Stop()
	late := time.After(cfg.SeatWait)
	for {
		read, err := cfg.Store.Get(ctx, cfg.Keys.Controller())
		if err != nil {
			return fmt.Errorf("read the seat: %w", err)
		}
		im := cluster.NewImage(cfg.Keys)
		im.Apply(cluster.Heal([]string{cfg.Keys.Controller()}, read))
		if epoch.Vacant(im) {
			return nil
		}
		select {
		case <-tick.C:
		case <-late:
			return nil // Make says who holds it
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
