package election_test

import (
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/store"
)

// imageAt is an image that has reached a revision.
func imageAt(rev store.Rev) *cluster.Image {
	im := cluster.NewImage(keys)
	im.Apply(store.Batch{Rev: rev})
	return im
}

// A keeper of a lease of 8 s that was asked for at second 100.
func keeper() *election.Keeper {
	return election.NewKeeper(store.Lease{ID: 1, TTL: 8 * time.Second}, 100*time.Second)
}

func at(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// A renewal is due TTL/4 after the last, as long as the proof of the view and
// the oldest unanswered write are both younger than TTL/2.
func TestRenewDue(t *testing.T) {
	cases := []struct {
		name        string
		now         float64
		proven      float64 // when the read was sent that the image has reached
		oldestWrite float64
		due         bool
	}{
		{"too early", 101.9, 101.9, 101.9, false},
		{"in time", 102, 102, 102, true},
		{"proof almost stale", 104, 100.1, 104, true},
		{"proof stale", 104.1, 100.1, 104.1, false},
		{"write almost too old", 104, 104, 100.1, true},
		{"write too old", 104.1, 104.1, 100.1, false},
		{"late, all is well", 105.9, 105, 105.9, true},
	}
	for _, c := range cases {
		k := keeper()
		k.Probed(at(c.proven), store.Snapshot{Rev: 5})
		k.Observe(imageAt(5))
		if got := k.RenewDue(at(c.now), at(c.oldestWrite)); got != c.due {
			t.Errorf("%s: %v, want %v", c.name, got, c.due)
		}
	}
	k := keeper()
	k.Sent(at(102))
	if k.RenewDue(at(103.9), at(103.9)) {
		t.Error("the next renewal is due before TTL/4 has passed since the last")
	}
}

// A read proves the view only once the image has reached its revision, by an
// event or by a progress notification.
func TestProof(t *testing.T) {
	k := keeper()
	if !k.Proven(at(103.9)) || k.Proven(at(104)) {
		t.Error("a new lease is proof for TTL/2")
	}
	k.Probed(at(103), store.Snapshot{Rev: 10})
	k.Observe(imageAt(9))
	if k.Proven(at(104)) {
		t.Error("proven by a read that the image has not reached")
	}
	k.Observe(imageAt(10))
	if !k.Proven(at(106.9)) || k.Proven(at(107)) {
		t.Error("the proof counts from when the read was sent")
	}
	// Answers in any order: the youngest read counts.
	k.Probed(at(106), store.Snapshot{Rev: 11})
	k.Probed(at(105), store.Snapshot{Rev: 11})
	k.Observe(imageAt(11))
	if !k.Proven(at(109.9)) {
		t.Error("an older read has replaced a younger one")
	}
	// However far the image is behind, the newest reads are kept.
	for i := range 100 {
		k.Probed(at(110+float64(i)/100), store.Snapshot{Rev: store.Rev(20 + i)})
	}
	k.Observe(imageAt(119))
	if !k.Proven(at(114.9)) {
		t.Error("the newest read was forgotten")
	}
}

func TestProbesAndDeadline(t *testing.T) {
	k := keeper()
	if !k.ProbeDue(at(100)) {
		t.Error("no read at the beginning")
	}
	k.ProbeSent(at(100))
	if k.ProbeDue(at(100.9)) || !k.ProbeDue(at(101)) {
		t.Error("reads are sent every TTL/8")
	}
	if k.Deadline() != at(108) || k.Quiet() != at(106.4) {
		t.Errorf("deadline %v, quiet %v", k.Deadline(), k.Quiet())
	}
	k.Renewed(at(103), 10*time.Second)                   // the store may grant more
	if k.Deadline() != at(113) || k.Quiet() != at(110) { // nothing was proved since 100
		t.Errorf("deadline %v, quiet %v", k.Deadline(), k.Quiet())
	}
	k.Renewed(at(102), 8*time.Second)
	if k.Deadline() != at(113) {
		t.Errorf("deadline %v after an older answer", k.Deadline())
	}
}

// It wakes for the next read, renewal or end of its time, never in the past.
func TestKeeperWakes(t *testing.T) {
	k := keeper()
	k.ProbeSent(at(100))
	if got := k.Wake(at(100)); got != at(101) {
		t.Errorf("wakes at %v", got)
	}
	k.ProbeSent(at(101.5))
	if got := k.Wake(at(101.5)); got != at(102) {
		t.Errorf("wakes at %v", got)
	}
	k.ProbeSent(at(106))
	if got := k.Wake(at(106)); got != at(106.4) { // the renewal is overdue: another read has to come first
		t.Errorf("wakes at %v", got)
	}
}
