package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/controllerd/controllerd/store"
)

var queueCases = []Case{
	newCase("queue/in order", queueInOrder),
	newCase("queue/the middle one dies", queueMiddleDies),
	newCase("queue/key that is there", queueKeyThere),
	newCase("queue/lease is gone", queueLeaseGone),
	newCase("queue/given up", queueGivenUp),
	newCase("queue/renews nothing", queueRenewsNothing),
}

// turn is a wait in the queue.
type turn struct {
	lease store.LeaseID
	came  chan store.Rev
	err   chan error
}

// queue begins to wait and returns when the key is there.
func (e env) queue(ctx context.Context, name string) turn {
	e.Helper()
	t := turn{lease: e.grant(time.Hour).ID, came: make(chan store.Rev, 1), err: make(chan error, 1)}
	watch := e.watch(store.Watch{Prefix: fmt.Sprintf("q/%x", t.lease), After: e.rev()})
	go func() {
		rev, err := e.Store.AwaitTurn(ctx, "q/", t.lease, []byte(name))
		if err != nil {
			t.err <- err
			return
		}
		t.came <- rev
	}()
	e.wants("queued", showBatch(watch.next()), []string{fmt.Sprintf("+q/%x=%s", t.lease, name)})
	return t
}

func (e env) comes(t turn) {
	e.Helper()
	key := fmt.Sprintf("q/%x", t.lease)
	select {
	case rev := <-t.came:
		e.wants("create revision", rev, e.one(key).CreateRev)
	case err := <-t.err:
		e.Fatal(err)
	case <-e.ctx.Done():
		e.Fatalf("the turn of %s never came", key)
	}
}

// waits fails if the turn has come by now, or comes within a moment.
func (e env) waits(t turn) {
	e.Helper()
	select {
	case <-t.came:
		e.Fatal("a turn came too early")
	case err := <-t.err:
		e.Fatal(err)
	case <-time.After(50 * time.Millisecond):
	}
}

func queueInOrder(e env) {
	first := e.queue(e.ctx, "first")
	e.comes(first)
	second, third := e.queue(e.ctx, "second"), e.queue(e.ctx, "third")
	e.do(store.Put("q", nil), store.Put("r/1", nil)) // not of the queue
	e.waits(second)
	e.revoke(first.lease)
	e.comes(second)
	e.waits(third)
	e.do(store.Delete(fmt.Sprintf("q/%x", second.lease)))
	e.comes(third)
}

// Whoever waits for one that dies in the middle waits for the one before it.
func queueMiddleDies(e env) {
	first := e.queue(e.ctx, "first")
	second, third := e.queue(e.ctx, "second"), e.queue(e.ctx, "third")
	e.revoke(second.lease)
	e.waits(third)
	e.revoke(first.lease)
	e.comes(third)
}

func queueKeyThere(e env) {
	lease := e.grant(time.Hour)
	key := fmt.Sprintf("q/%x", lease.ID)
	put := e.do(store.PutLeased(key, []byte("me"), lease.ID))
	rev, err := e.Store.AwaitTurn(e.ctx, "q/", lease.ID, []byte("me"))
	if err != nil || rev != put {
		e.Fatalf("turn at %d, %v", rev, err)
	}
	e.wants("revision", e.rev(), put)
}

func queueLeaseGone(e env) {
	lease := e.grant(time.Hour)
	e.revoke(lease.ID)
	before := e.rev()
	if _, err := e.Store.AwaitTurn(e.ctx, "q/", lease.ID, nil); !errors.Is(err, store.ErrLeaseNotFound) {
		e.Errorf("queued under a lease that is gone: %v", err)
	}
	e.wants("revision", e.rev(), before)
}

// A wait that is given up leaves the place in the queue.
func queueGivenUp(e env) {
	first := e.queue(e.ctx, "first")
	e.comes(first)
	ctx, cancel := context.WithCancel(e.ctx)
	second, third := e.queue(ctx, "second"), e.queue(e.ctx, "third")
	cancel()
	if err := <-second.err; !errors.Is(err, context.Canceled) {
		e.Errorf("given up: %v", err)
	}
	e.revoke(first.lease)
	e.waits(third)
	if rev, err := e.Store.AwaitTurn(e.ctx, "q/", second.lease, []byte("second")); err != nil || rev == 0 {
		e.Errorf("the place was lost: %d, %v", rev, err)
	}
	e.revoke(second.lease)
	e.comes(third)
}

// Waiting does not keep the lease alive: a hung owner must lose it.
func queueRenewsNothing(e env) {
	first := e.queue(e.ctx, "first")
	e.comes(first)
	lease := e.grant(e.MinTTL)
	watch := e.watch(store.Watch{Prefix: fmt.Sprintf("q/%x", lease.ID), After: e.rev()})
	ctx, cancel := context.WithCancel(e.ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := e.Store.AwaitTurn(ctx, "q/", lease.ID, nil)
		ended <- err
	}()
	watch.next()
	e.wants("expired", showBatch(watch.next()), []string{fmt.Sprintf("-q/%x", lease.ID)})
	cancel()
	<-ended
}
