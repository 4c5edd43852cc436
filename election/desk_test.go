package election_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/epoch"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/memstore"
)

const ttl = 5 * time.Second

// desk is one candidate with a store, an image and a clock. Nothing happens by
// itself: the test says when the store answers, what the image shows and how
// late it is.
type desk struct {
	t     *testing.T
	m     *memstore.Model
	im    *cluster.Image
	c     *election.Candidate
	now   time.Duration
	blind bool          // while time passes, the watch brings nothing
	deaf  bool          // while time passes, the store answers nothing
	write time.Duration // how long the oldest write has been unanswered

	attends []election.Peer // one after the other
	waiting []election.Action
	turn    *election.AwaitTurn // waits in the queue
	turnEnd time.Duration
	said    []string // since the last wants, without probes and renewals
	claim   epoch.Claim
	cause   error
	end     epoch.End
}

func newDesk(t *testing.T, id string) *desk { return newDeskOf(t, id, ttl, memstore.NewModel()) }

func newDeskOf(t *testing.T, id string, ttl time.Duration, m *memstore.Model) *desk {
	return newDeskWith(t, id, ttl, m, election.Race)
}

func newDeskWith(t *testing.T, id string, ttl time.Duration, m *memstore.Model, strategy election.Strategy, opts ...func(*election.Config)) *desk {
	cfg := election.Config{
		Self: &pb.ControllerRecord{Id: id, Nonce: id + "-nonce", Endpoint: id + ":1", StartedMs: 7}, Version: "v1", TTL: ttl,
		ClusterUUID: "uuid-of-" + id, Rand: rand.New(rand.NewPCG(1, 1)), Strategy: strategy,
	}
	for _, o := range opts {
		o(&cfg)
	}
	return &desk{t: t, m: m, im: cluster.NewImage(keys), now: time.Hour, c: election.NewCandidate(cfg)}
}

// activeDesk is a candidate that has begun the first term of a new cluster.
func activeDesk(t *testing.T, id string) *desk {
	t.Helper()
	d := newDesk(t, id)
	d.settle()
	d.wants("grant", "found", "enlist", "claim", "begin 1")
	return d
}

// nameOf is what a test calls an action.
func nameOf(a election.Action) string {
	switch a := a.(type) {
	case election.Grant:
		return "grant"
	case election.Renew:
		return "renew"
	case election.Probe:
		return "probe"
	case election.Commit:
		return map[election.Purpose]string{
			election.Found: "found", election.Enlist: "enlist", election.Claim: "claim", election.Release: "release", election.Bury: "bury",
		}[a.Purpose]
	case election.AwaitTurn:
		return "queue"
	case election.Revoke:
		return "revoke"
	case election.Begin:
		return fmt.Sprint("begin ", a.Claim.Epoch)
	case election.Stop:
		return "stop"
	}
	return fmt.Sprintf("%T", a)
}

// step gives the candidate one event. It must never ask to be woken in the
// past: that would be a busy loop.
func (d *desk) step(ev election.Event) {
	d.t.Helper()
	for _, a := range d.c.Step(election.Now{Mono: d.now, WallMs: 1000}, d.im, d.now-d.write, ev) {
		if a, ok := a.(election.Attend); ok {
			d.attends = append(d.attends, a.Peer)
			continue
		}
		name := nameOf(a)
		if name != "probe" && name != "renew" && name != "queue" {
			d.said = append(d.said, name)
		}
		switch a := a.(type) {
		case election.Begin:
			d.claim = a.Claim
		case election.Stop:
			d.cause, d.end = a.Cause, a.End
		case election.AwaitTurn:
			if d.turn != nil && d.turn.Lease == a.Lease {
				d.t.Fatal("it queues while it is queueing")
			}
			d.turn, d.turnEnd = &a, d.now+a.Timeout
		default:
			d.waiting = append(d.waiting, a)
		}
	}
	if !d.c.Done() && d.c.Wake() <= d.now {
		d.t.Fatalf("wakes at %v, it is %v", d.c.Wake(), d.now)
	}
}

// see lets the image show all that the store holds.
func (d *desk) see() {
	d.t.Helper()
	b, err := d.m.ChangesSince(keys.Prefix(), d.im.Rev)
	if err != nil {
		d.t.Fatal(err)
	}
	if b.Rev > 0 {
		b.Rev = d.m.Rev() // and a progress notification
		d.im.Apply(b)
	}
	d.step(nil)
	d.comeTurn()
}

// comeTurn ends the wait in the queue, if it is over.
func (d *desk) comeTurn() {
	d.t.Helper()
	if d.turn == nil || d.deaf {
		return
	}
	a := *d.turn
	switch rev, older, err := d.m.Enqueue(a.Prefix, a.Lease, a.Value); {
	case err != nil || older == "":
		d.turn = nil
		d.step(election.TurnCame{Lease: a.Lease, Rev: rev, Err: err})
	case d.now >= d.turnEnd:
		d.turn = nil
		d.step(election.TurnCame{Lease: a.Lease, Err: context.DeadlineExceeded})
	}
}

// next takes the oldest action of that name that waits for its answer.
func (d *desk) next(name string) election.Action {
	d.t.Helper()
	i := slices.IndexFunc(d.waiting, func(a election.Action) bool { return nameOf(a) == name })
	if i < 0 {
		d.t.Fatalf("no %s is waiting", name)
	}
	a := d.waiting[i]
	d.waiting = slices.Delete(d.waiting, i, i+1)
	return a
}

func (d *desk) waits(name string) bool {
	return slices.ContainsFunc(d.waiting, func(a election.Action) bool { return nameOf(a) == name })
}

// perform does what the action asks of the store.
func (d *desk) perform(a election.Action) election.Event {
	switch a := a.(type) {
	case election.Grant:
		l, err := d.m.Grant(d.now, a.TTL)
		return election.Granted{Sent: a.Sent, Lease: l, Err: err}
	case election.Renew:
		got, err := d.m.Renew(d.now, a.Lease)
		return election.Renewed{Lease: a.Lease, Sent: a.Sent, TTL: got, Err: err}
	case election.Probe:
		read, err := d.m.Get(a.Keys...)
		return election.Probed{Sent: a.Sent, Read: read, Err: err}
	case election.Commit:
		r, err := d.m.Txn(a.Txn)
		return election.Committed{Commit: a, Result: r, Err: err}
	case election.Revoke:
		d.m.Revoke(a.Lease)
		return election.Revoked{Lease: a.Lease}
	}
	return nil
}

// answer lets the store do and answer what waits under that name.
func (d *desk) answer(name string) {
	d.t.Helper()
	d.step(d.perform(d.next(name)))
}

// fail answers what waits under that name with an error; it is not done.
func (d *desk) fail(name string, err error) {
	d.t.Helper()
	switch a := d.next(name).(type) {
	case election.Grant:
		d.step(election.Granted{Sent: a.Sent, Err: err})
	case election.Renew:
		d.step(election.Renewed{Lease: a.Lease, Sent: a.Sent, Err: err})
	case election.Probe:
		d.step(election.Probed{Sent: a.Sent, Err: err})
	case election.Commit:
		d.step(election.Committed{Commit: a, Err: err})
	}
}

// settle answers everything and lets the image show it, until nothing is left
// to do at this moment.
func (d *desk) settle() {
	d.t.Helper()
	d.see()
	for range 100 {
		if len(d.waiting) == 0 {
			return
		}
		d.answer(nameOf(d.waiting[0]))
		d.see()
	}
	d.t.Fatalf("it never comes to rest, now with %s", nameOf(d.waiting[0]))
}

// pass lets time pass. Leases expire, what waits is answered and shown.
func (d *desk) pass(t time.Duration) {
	d.t.Helper()
	for end := d.now + t; d.now < end; {
		d.now = min(max(d.c.Wake(), d.now+1), end)
		d.m.Expire(d.now)
		d.step(nil)
		for n := 0; len(d.waiting) > 0 && !d.deaf; n++ {
			if n == 100 {
				d.t.Fatalf("it never comes to rest, now with %s", nameOf(d.waiting[0]))
			}
			d.answer(nameOf(d.waiting[0]))
		}
		if !d.blind {
			d.see()
		}
	}
}

// wants checks what the candidate has done since the last time.
func (d *desk) wants(names ...string) {
	d.t.Helper()
	if got, want := strings.Join(d.said, ", "), strings.Join(names, ", "); got != want {
		d.t.Fatalf("it did [%s], want [%s]; problem %q", got, want, d.c.Problem())
	}
	d.said = nil
}

// hand writes to the store by hand.
func (d *desk) hand(ops ...store.Op) {
	d.t.Helper()
	r, err := d.m.Txn(store.Txn{If: []store.Cond{store.Missing("never/written")}, Then: ops})
	if err != nil || !r.Succeeded {
		d.t.Fatalf("write by hand: %+v %v", r, err)
	}
}

// value is what the store holds under a key.
func (d *desk) value(key string) []byte {
	d.t.Helper()
	read, err := d.m.Get(key)
	if err != nil || len(read.KVs) != 1 {
		d.t.Fatalf("read %s: %v %v", key, read.KVs, err)
	}
	return read.KVs[0].Value
}

// image is what a watch that misses nothing shows.
func (d *desk) image() *cluster.Image {
	im := cluster.NewImage(keys)
	b := store.Batch{Rev: d.m.Rev(), Reset: true}
	for _, kv := range d.m.List(keys.Prefix(), false).KVs {
		b.Changes = append(b.Changes, store.Change{KV: kv})
	}
	im.Apply(b)
	return im
}

// rivalWins lets another daemon take the empty seat, for an hour.
func (d *desk) rivalWins(id string) (epoch.Claim, store.LeaseID) {
	d.t.Helper()
	l, err := d.m.Grant(d.now, time.Hour)
	if err != nil {
		d.t.Fatal(err)
	}
	who := &pb.ControllerRecord{Id: id, Nonce: id + "-nonce", Lease: int64(l.ID)}
	if r, err := d.m.Txn(epoch.Mint(d.image(), who, 1)); err != nil || !r.Succeeded {
		d.t.Fatalf("%s does not win: %+v %v", id, r, err)
	}
	c, _ := epoch.Won(d.image(), who.GetNonce(), l.ID)
	return c, l.ID
}

// rivalEnlists lets another daemon be a candidate, for an hour.
func (d *desk) rivalEnlists(id, nonce string) {
	d.t.Helper()
	l, err := d.m.Grant(d.now, time.Hour)
	if err != nil {
		d.t.Fatal(err)
	}
	d.hand(store.PutLeased(keys.Candidate(l.ID), cluster.Encode(&pb.CandidateRecord{Id: id, Nonce: nonce}), l.ID))
}

// stopped says that the work of the term has ended.
func (d *desk) stopped() { d.step(election.Stopped{}) }

func (d *desk) wantsCause(err error) {
	d.t.Helper()
	if !errors.Is(d.cause, err) {
		d.t.Fatalf("the term ended because of %v, want %v", d.cause, err)
	}
}
