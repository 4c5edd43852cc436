package dev

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/controllerd/controllerd/cluster"
)

// suffer kills daemons and brokers until the time of the run has passed, or
// the context ends; then it returns the context's error.
func (p *parts) suffer(ctx context.Context) error {
	began, random := time.Now(), rand.New(rand.NewPCG(p.cfg.Seed, 0))
	restarts, endRestarts := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer endRestarts()
	later := func(d time.Duration, what string, start func() error) {
		wg.Go(func() {
			select {
			case <-restarts.Done():
				return
			case <-time.After(d):
			}
			if err := start(); err != nil {
				now := time.Now()
				p.book.put(func(a *account) { a.announce(now, "%s does not start: %v", what, err) })
			}
		})
	}
	// allowed: the n-th kill falls into the time in which victims may die.
	allowed := func(every time.Duration) bool {
		return p.cfg.For == 0 || time.Since(began).Truncate(every) <= p.cfg.For-p.cfg.rest()
	}
	end := after(p.cfg.For)
	active, stopActive := ticks(p.cfg.KillActiveEvery)
	defer stopActive()
	broker, stopBroker := ticks(p.cfg.KillBrokerEvery)
	defer stopBroker()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-end:
			return nil
		case <-active:
			id := ask(p.book, (*account).activeID)
			if id != "" && allowed(p.cfg.KillActiveEvery) {
				p.killDaemon(id)
				later(p.cfg.RestartAfter, "controller "+id, func() error { return p.startDaemon(id, "") })
			}
		case <-broker:
			ids := p.runningBrokers()
			if len(ids) > 0 && allowed(p.cfg.KillBrokerEvery) {
				id := ids[random.IntN(len(ids))]
				p.killBroker(id)
				later(p.cfg.RestartAfter, brokers([]cluster.BrokerID{id}), func() error { return p.startBroker(id, true) })
			}
		}
	}
}

// ticks come at an interval, never for 0.
func ticks(every time.Duration) (<-chan time.Time, func()) {
	if every == 0 {
		return nil, func() {}
	}
	t := time.NewTicker(every)
	return t.C, t.Stop
}
