package election_test

import (
	"slices"
	"testing"
	"time"

	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/store"
)

func (d *desk) standing() election.Standing { return d.c.Standing(d.now, d.im) }

// wantsState checks the state, which must be one of all.
func (d *desk) wantsState(want string) {
	d.t.Helper()
	if got := d.standing().State; got != want || !slices.Contains(election.States, got) {
		d.t.Fatalf("state %q, want %q", got, want)
	}
}

func TestStandingStates(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range election.States {
		if s == "" || seen[s] {
			t.Errorf("states %q", election.States)
		}
		seen[s] = true
	}
	d := newDesk(t, "a")
	if s := d.standing(); s.State != "no_lease" || s.Deadline != 0 || s.Proven != 0 || s.Margin != nil {
		t.Errorf("at first %+v", s)
	}
	d.see()
	d.wantsState("granting")
	d.settle()
	d.wantsState("active")
	if s := d.standing(); s.Deadline <= d.now || s.Deadline > d.now+ttl || s.Proven == 0 || s.Margin == nil || s.Vacated == 0 {
		t.Errorf("active %+v", s)
	}
	d.step(election.Leave{})
	d.wantsState("stopping")
	d.stopped()
	d.wantsState("releasing")
	d.settle()
	d.wantsState("done")
}

// The image is behind by what a read has shown beyond it.
func TestStandingBehind(t *testing.T) {
	d := activeDesk(t, "a")
	if got := d.standing().Behind; got != 0 {
		t.Fatalf("behind by %d at first", got)
	}
	d.blind = true
	for range 3 {
		d.hand(store.Put(keys.Node(1), []byte("x")))
	}
	before := d.standing().Proven
	d.pass(time.Second) // a read comes back
	if s := d.standing(); s.Behind != 3 || s.Proven != before {
		t.Errorf("blind: behind by %d, proven %v and then %v", s.Behind, before, s.Proven)
	}
	d.see()
	if s := d.standing(); s.Behind != 0 || s.Proven <= before {
		t.Errorf("seen: behind by %d, proven %v and then %v", s.Behind, before, s.Proven)
	}
}

// A broken connection counts for the seat that its peer held, and no other.
func TestStandingLost(t *testing.T) {
	a, b := couple(t, election.Race)
	together(6*time.Second, a, b)
	b.step(election.Refused{Peer: peerA, Address: "10.0.0.1:7070", Since: 300 * time.Millisecond})
	broke := b.now - 300*time.Millisecond
	b.settle()
	if s := b.standing(); s.State != "active" || s.Lost != broke || s.Vacated < broke {
		t.Errorf("the connection broke at %v: %+v", broke, s)
	}
	b.hand(store.Delete(keys.Controller()))
	b.settle()
	b.stopped()
	b.settle()
	if s := b.standing(); s.State != "active" || s.Lost != 0 {
		t.Errorf("no connection broke: %+v", s)
	}
}
