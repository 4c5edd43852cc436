package election_test

import (
	"errors"
	"testing"
	"time"

	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/epoch"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/memstore"
)

// row are candidates of one cluster in the order in which they queue; the first
// is active.
func row(t *testing.T, ids ...string) []*desk {
	t.Helper()
	m := memstore.NewModel()
	var out []*desk
	for _, id := range ids {
		d := newDeskWith(t, id, ttl, m, election.Queue)
		d.settle()
		out = append(out, d)
	}
	out[0].wants("grant", "found", "enlist", "claim", "begin 1")
	for _, d := range out[1:] {
		d.wants("grant", "enlist")
	}
	return out
}

func TestQueueIsServedInOrder(t *testing.T) {
	q := row(t, "a", "b", "c")
	a, b, c := q[0], q[1], q[2]
	a.m.Revoke(a.c.Lease())
	c.settle()
	b.settle()
	b.wants("claim", "begin 2")
	c.settle()
	c.wants() // it woke for nothing else
	a.settle()
	a.wants("stop")
	a.stopped()
	a.settle()
	a.wants("revoke", "grant", "enlist") // at the end of the queue
	b.m.Revoke(b.c.Lease())
	a.settle()
	c.settle()
	a.settle()
	c.wants("claim", "begin 3")
	a.wants()
}

// One that dies in the middle promotes nobody.
func TestQueueMiddleDies(t *testing.T) {
	q := row(t, "a", "b", "c")
	a, b, c := q[0], q[1], q[2]
	a.m.Revoke(b.c.Lease())
	for _, d := range []*desk{c, a} {
		d.settle()
		d.wants()
	}
	a.m.Revoke(a.c.Lease())
	c.settle()
	c.wants("claim", "begin 2")
}

// A head that hangs, with a lease that others keep alive, holds up nobody for
// longer than a moment.
func TestQueueHeadHangs(t *testing.T) {
	q := row(t, "a", "b", "c")
	a, c := q[0], q[2]
	c.hand(store.Delete(keys.Controller())) // a and b say nothing any more
	c.now = a.now
	c.settle()
	for range 19 {
		c.pass(100 * time.Millisecond)
	}
	c.wants()
	c.pass(100 * time.Millisecond)
	c.wants("claim", "begin 2")
}

// Who resigns goes to the end of the queue.
func TestQueueResignHandsOver(t *testing.T) {
	q := row(t, "a", "b", "c")
	a, b, c := q[0], q[1], q[2]
	a.step(election.Resign{End: epoch.End{Cause: pb.EndCause_END_CAUSE_RESIGNED}})
	a.wants("stop")
	a.stopped()
	a.answer("release")
	a.settle()
	c.settle()
	b.settle()
	b.wants("claim", "begin 2")
	c.settle()
	c.wants()
	a.wants("release", "revoke", "grant", "enlist")
}

// A named successor need not be the head.
func TestQueueSuccessorGoesFirst(t *testing.T) {
	q := row(t, "a", "b", "c")
	a, b, c := q[0], q[1], q[2]
	a.step(election.Resign{End: epoch.End{Cause: pb.EndCause_END_CAUSE_TRANSFERRED, Successor: "c"}})
	a.stopped()
	a.answer("release")
	b.now, c.now = a.now, a.now
	b.settle()
	b.wants()
	c.settle()
	c.wants("claim", "begin 2")
}

// A candidate key that is gone is no place in the queue: the claim compares it.
func TestQueueClaimComparesOwnKey(t *testing.T) {
	q := row(t, "a", "b")
	a, b := q[0], q[1]
	a.m.Revoke(a.c.Lease())
	b.see()
	claim := b.next("claim").(election.Commit)
	b.hand(store.Delete(keys.Candidate(b.c.Lease())))
	b.step(b.perform(claim))
	b.wants("claim")
	if im := b.image(); im.Controller != nil {
		t.Fatal("it won without a place in the queue")
	}
	b.settle()
	b.pass(100 * time.Millisecond)
	b.wants("enlist", "claim", "begin 2")
}

// A wait that took too long is begun again.
func TestQueueWaitsOn(t *testing.T) {
	q := row(t, "a", "b")
	a, b := q[0], q[1]
	for range 600 {
		a.pass(100 * time.Millisecond)
		b.pass(100 * time.Millisecond)
	}
	b.wants()
	if b.turn == nil {
		t.Fatal("it does not wait any more")
	}
	b.m.Revoke(a.c.Lease())
	b.settle()
	b.wants("claim", "begin 2")
}

func TestStrategyText(t *testing.T) {
	for _, s := range []election.Strategy{election.Race, election.Queue} {
		text, err := s.MarshalText()
		var got election.Strategy
		if err := errors.Join(err, got.UnmarshalText(text)); got != s || err != nil {
			t.Errorf("%v: read %v, %v", s, got, err)
		}
	}
	var s election.Strategy
	if err := s.UnmarshalText([]byte("Queue")); err == nil {
		t.Error("read something else")
	}
}
