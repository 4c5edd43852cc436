package election

import (
	"fmt"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/epoch"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// Damping of proofs of death: somebody who takes the living for dead, a
// firewall say, must not turn the seat into a merry-go-round.
const (
	// provableAfter is how old a term must be, as the witness has seen it.
	provableAfter = 5 * time.Second
	// provableAgainAfter is that if the term before was ended by a proof too.
	provableAgainAfter = time.Minute
)

// Peer is a process that holds the seat, and where it says that it is reached.
type Peer struct{ Endpoint, Nonce string }

// Attend asks to hold a connection to a process, on which it has said its
// nonce, instead of the one to any other; the zero Peer: to nobody. It is not
// answered, but Refused may come, again and again.
type Attend struct{ Peer Peer }

// Refused says that the connection to a peer broke, on which it had proved who
// it is, and that every dial since then to that very IP address and port was
// refused, for long enough: nobody listens there. A dial that ends otherwise,
// by a timeout say, is no proof, nor is any after it.
type Refused struct {
	Peer    Peer
	Address string        // IP address and port
	Since   time.Duration // that the connection broke
}

func (Attend) action() {}
func (Refused) event() {}

// verdict is what a witness makes of Refused.
type verdict uint8

const (
	beside verdict = iota // the peer does not hold the seat, as far as is seen
	damped                // too early
	proven
)

// witness watches over the one who holds the seat. A nonce is drawn by a
// process and dies with it, so its death holds for every claim of it.
type witness struct {
	peer  Peer          // that is attended
	seat  store.Rev     // mod revision of the seat that was seen last
	since time.Duration // when it was seen first
}

// observe follows the seat as the image shows it. It reports whether somebody
// else is to be attended now: who acts in the seat, unless it is self.
func (w *witness) observe(now time.Duration, im *cluster.Image, self string) bool {
	var peer Peer
	var seat store.Rev
	if !epoch.Vacant(im) {
		seat = im.Controller.ModRev
		if r := im.Controller.Record; r.GetNonce() != self && r.GetNonce() != "" && r.GetEndpoint() != "" {
			peer = Peer{Endpoint: r.GetEndpoint(), Nonce: r.GetNonce()}
		}
	}
	if seat != w.seat {
		w.seat, w.since = seat, now
	}
	changed := peer != w.peer
	w.peer = peer
	return changed
}

// judge says whether a refusal proves the death of who holds the seat, and
// under which claim. The age of a term counts from when this witness saw it,
// by its own clock.
func (w *witness) judge(now time.Duration, im *cluster.Image, ev Refused) (epoch.Claim, verdict) {
	c := im.Controller
	if epoch.Vacant(im) || c.ModRev != w.seat || ev.Peer != w.peer || w.peer == (Peer{}) {
		return epoch.Claim{}, beside
	}
	claim, won := epoch.Won(im, ev.Peer.Nonce, c.Lease)
	if !won { // written by hand
		return epoch.Claim{}, beside
	}
	least := provableAfter
	if endedByProof(im, claim.Epoch) {
		least = provableAgainAfter
	}
	if now-w.since < least {
		return claim, damped
	}
	return claim, proven
}

// endedByProof reports whether the last term before e ended by a proof of death.
func endedByProof(im *cluster.Image, e cluster.Epoch) bool {
	last := cluster.Epoch(0)
	for before := range im.Terms {
		if before < e {
			last = max(last, before)
		}
	}
	t := im.Terms[last]
	return t != nil && t.Record.GetEndCause() == pb.EndCause_END_CAUSE_PROVEN_DEAD
}

// Proofs count proofs of the death of active controllers.
type Proofs struct {
	Proven int64 // upon which this daemon has tried to free the seat
	Damped int64 // refusals that came too early in a term
}

// loss is when the connection to who holds a seat broke.
type loss struct {
	seat store.Rev // its mod revision
	at   time.Duration
}

// refused frees the seat of a controller whose death is proved: whoever is
// fastest then contends as always. Only a daemon that could follow does so.
func (c *Candidate) refused(now Now, im *cluster.Image, ev Refused) []Action {
	if !c.cfg.DeathProbe || c.phase != standby || !c.mayFollow(now.Mono) {
		return nil
	}
	claim, v := c.witness.judge(now.Mono, im, ev)
	if v != beside {
		c.loss = loss{claim.Rev, now.Mono - ev.Since}
	}
	switch v {
	case damped:
		c.Proofs.Damped++
	case proven:
		c.Proofs.Proven++
		end := epoch.End{
			Cause:  pb.EndCause_END_CAUSE_PROVEN_DEAD,
			Reason: fmt.Sprintf("the connection from %s broke, and %s refused every new one", c.cfg.Self.GetId(), ev.Address),
		}
		return []Action{Commit{Purpose: Bury, Txn: epoch.Release(im, claim, im.Controller.Lease, end, now.WallMs), Sent: now.Mono}}
	}
	return nil
}

// attend has a connection held to who holds the seat.
func (c *Candidate) attend(now time.Duration, im *cluster.Image, out []Action) []Action {
	if !c.cfg.DeathProbe || !c.witness.observe(now, im, c.cfg.Self.GetNonce()) {
		return out
	}
	return append(out, Attend{c.witness.peer})
}
