package election_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/memstore"
)

func probing(cfg *election.Config) { cfg.DeathProbe = true }

// couple is an active daemon a and a standby b that can prove its death.
func couple(t *testing.T, strategy election.Strategy) (a, b *desk) {
	t.Helper()
	m := memstore.NewModel()
	a = newDeskWith(t, "a", ttl, m, strategy)
	a.settle()
	a.wants("grant", "found", "enlist", "claim", "begin 1")
	b = newDeskWith(t, "b", ttl, m, strategy, probing)
	b.settle()
	b.wants("grant", "enlist")
	return a, b
}

var peerA = election.Peer{Endpoint: "a:1", Nonce: "a-nonce"}

// refuse lets the address of a peer refuse connections, and settles.
func (d *desk) refuse(p election.Peer) {
	d.t.Helper()
	d.step(election.Refused{Peer: p, Address: "10.0.0.1:7070"})
	d.settle()
}

// together lets candidates of one store live for a while.
func together(t time.Duration, all ...*desk) {
	for end := all[0].now + t; all[0].now < end; {
		for _, d := range all {
			d.pass(100 * time.Millisecond)
		}
	}
}

func TestProofOfDeath(t *testing.T) {
	for _, strategy := range []election.Strategy{election.Race, election.Queue} {
		t.Run(strategy.String(), func(t *testing.T) {
			a, b := couple(t, strategy)
			together(6*time.Second, a, b)
			b.refuse(peerA)
			b.wants("bury", "claim", "begin 2")
			im := b.image()
			if _, there := im.Candidates[a.c.Lease()]; there {
				t.Error("the dead one is still a candidate")
			}
			want := &pb.TermRecord{
				Epoch: 1, Controller: "a", Nonce: "a-nonce", Endpoint: "a:1", BeganMs: 1000, EndedMs: 1000,
				EndCause:  pb.EndCause_END_CAUSE_PROVEN_DEAD,
				EndReason: "the connection from b broke, and 10.0.0.1:7070 refused every new one",
			}
			if got := im.Terms[1].Record; !proto.Equal(got, want) {
				t.Errorf("term 1: %v\nwant    %v", got, want)
			}
			if b.c.Proofs != (election.Proofs{Proven: 1}) {
				t.Errorf("counted %+v", b.c.Proofs)
			}
			// It was alive after all: it stops, and contends again.
			a.settle()
			a.wants("stop")
			a.stopped()
			a.settle()
			a.wants("revoke", "grant", "enlist")
		})
	}
}

// The one who holds the seat is attended, whoever it is, unless it is the
// daemon itself.
func TestAttends(t *testing.T) {
	a, b := couple(t, election.Race)
	together(6*time.Second, a, b)
	b.refuse(peerA) // b is active
	b.hand(store.Delete(keys.Controller()))
	b.rivalWins("c") // without an endpoint
	b.settle()
	b.stopped()
	b.settle()
	b.hand(store.PutKeepLease(keys.Controller(), cluster.Encode(&pb.ControllerRecord{Id: "c", Nonce: "c-nonce", Endpoint: "c:2"})))
	b.settle()
	b.hand(store.Delete(keys.Controller()))
	b.hand(store.Put(keys.Controller(), []byte("by hand"))) // without a lease: nobody acts in it
	b.see()
	want := []election.Peer{peerA, {}, {Endpoint: "c:2", Nonce: "c-nonce"}, {}}
	if !slices.Equal(b.attends, want) {
		t.Errorf("attended %v, want %v", b.attends, want)
	}
	if a.attends != nil {
		t.Errorf("without probes it attended %v", a.attends)
	}
}

func TestNoProofOfDeath(t *testing.T) {
	cases := []struct {
		name   string
		prober bool
		before func(a, b *desk)
		peer   election.Peer
		proofs election.Proofs
	}{
		{"another process holds the seat", true, nil, election.Peer{Endpoint: "a:1", Nonce: "older"}, election.Proofs{}},
		{"another address is refused", true, nil, election.Peer{Endpoint: "b:1", Nonce: "a-nonce"}, election.Proofs{}},
		{"nobody is attended", true, func(a, b *desk) { b.hand(store.Delete(keys.Controller())); b.see() }, election.Peer{}, election.Proofs{}},
		{"it has resigned already", true, func(a, b *desk) {
			a.step(election.Resign{})
			a.stopped()
			a.answer("release")
			b.see()
		}, peerA, election.Proofs{}},
		{"it has resigned, which is not seen yet", true, func(a, b *desk) {
			a.step(election.Resign{})
			a.stopped()
			a.answer("release")
		}, peerA, election.Proofs{Proven: 1}},
		{"the seat was written by hand", true, func(a, b *desk) {
			b.hand(store.PutKeepLease(keys.Controller(), a.value(keys.Controller())))
			b.see()
		}, peerA, election.Proofs{}},
		{"it has won anew, which is seen together with the refusal", true, func(a, b *desk) {
			b.hand(store.Delete(keys.Controller()))
			a.settle()
			a.stopped()
			a.settle()
			batch, err := b.m.ChangesSince(keys.Prefix(), b.im.Rev)
			if err != nil {
				b.t.Fatal(err)
			}
			b.im.Apply(batch)
		}, peerA, election.Proofs{}},
		{"the daemon could not follow", true, func(_, b *desk) {
			b.hand(store.Delete(keys.Cluster()))
			b.see()
		}, peerA, election.Proofs{}},
		{"the store has not answered for long", true, func(a, b *desk) {
			b.deaf = true
			b.pass(3 * time.Second)
			b.waiting = nil
		}, peerA, election.Proofs{}},
		{"probes are turned off", false, nil, peerA, election.Proofs{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a, b := couple(t, election.Race)
			if !c.prober {
				b = newDeskWith(t, "b2", ttl, a.m, election.Race)
				b.settle()
				b.wants("grant", "enlist")
			}
			together(6*time.Second, a, b)
			if c.before != nil {
				c.before(a, b)
			}
			epochs := len(b.image().Terms)
			b.said = nil
			b.step(election.Refused{Peer: c.peer, Address: "10.0.0.1:7070"})
			if b.waits("bury") {
				b.answer("bury")
			}
			if b.c.Proofs != c.proofs {
				t.Errorf("counted %+v, want %+v", b.c.Proofs, c.proofs)
			}
			for e, term := range b.image().Terms {
				if term.Record.GetEndCause() == pb.EndCause_END_CAUSE_PROVEN_DEAD {
					t.Errorf("term %d of %d ended: %v", e, epochs, term.Record)
				}
			}
		})
	}
}

// A term is left alone while it is young, for longer if the one before ended
// by a proof too.
func TestProofOfDeathIsDamped(t *testing.T) {
	a, b := couple(t, election.Race)
	together(4500*time.Millisecond, a, b)
	b.refuse(peerA)
	b.wants()
	together(600*time.Millisecond, a, b)
	b.refuse(peerA)
	b.wants("bury", "claim", "begin 2")

	a.settle()
	a.stopped()
	a.settle()
	b.step(election.Leave{}) // term 2 ends in order: the count begins anew
	b.stopped()
	b.settle()
	a.settle()
	a.wants("stop", "revoke", "grant", "enlist", "claim", "begin 3")
	c := newDeskWith(t, "c", ttl, a.m, election.Race, probing)
	c.now = a.now
	c.settle()
	c.wants("grant", "enlist")
	together(6*time.Second, a, c)
	c.refuse(peerA)
	c.wants("bury", "claim", "begin 4")

	// Term 3 ended by a proof, so term 4 has to live for a minute.
	d := newDeskWith(t, "d", ttl, a.m, election.Race, probing)
	d.now = c.now
	d.settle()
	d.wants("grant", "enlist")
	peerC := election.Peer{Endpoint: "c:1", Nonce: "c-nonce"}
	together(59*time.Second, c, d)
	d.refuse(peerC)
	d.wants()
	together(1100*time.Millisecond, c, d)
	d.refuse(peerC)
	d.wants("bury", "claim", "begin 5")
	if d.c.Proofs != (election.Proofs{Proven: 1, Damped: 1}) {
		t.Errorf("counted %+v", d.c.Proofs)
	}
}
