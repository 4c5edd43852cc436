package dev

import (
	"context"
	"sync"
	"time"
)

// tickInterval is how often the account looks what is due.
const tickInterval = 100 * time.Millisecond

// book hands facts to the goroutine that owns the account, in order. Putting
// one in never waits: brokers do it while they hold their gate.
type book struct {
	mu    sync.Mutex
	facts []func(*account)
	wake  chan struct{}
}

func newBook() *book { return &book{wake: make(chan struct{}, 1)} }

// put adds a fact.
func (b *book) put(fact func(*account)) {
	b.mu.Lock()
	b.facts = append(b.facts, fact)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *book) take() []func(*account) {
	b.mu.Lock()
	defer b.mu.Unlock()
	facts := b.facts
	b.facts = nil
	return facts
}

// keep owns the account until the context ends.
func (b *book) keep(ctx context.Context, a *account) {
	tick := time.NewTicker(tickInterval)
	defer tick.Stop()
	for {
		select {
		case <-b.wake:
		case <-tick.C:
			b.put(func(a *account) { a.tick(time.Now()) })
		case <-ctx.Done():
			return
		}
		for _, fact := range append(b.take(), a.waiting()...) {
			fact(a)
		}
	}
}

// until waits until something holds of the account. It returns the context's
// error if that ends first.
func (b *book) until(ctx context.Context, holds func(*account) bool) error {
	met := make(chan struct{})
	var look func(*account)
	look = func(a *account) {
		switch {
		case ctx.Err() != nil:
		case holds(a):
			close(met)
		default:
			a.waiters = append(a.waiters, look)
		}
	}
	b.put(look)
	select {
	case <-met:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ask reads something from the account. It must not be called after keep has
// returned.
func ask[T any](b *book, read func(*account) T) T {
	answer := make(chan T, 1)
	b.put(func(a *account) { answer <- read(a) })
	return <-answer
}
