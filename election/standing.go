package election

import (
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/store"
)

var states = [done + 1]string{
	noLease: "no_lease", granting: "granting", standby: "standby", claiming: "claiming",
	active: "active", stopping: "stopping", releasing: "releasing", done: "done",
}

// States are all that Standing.State may be.
var States = states[:]

// Standing is how a candidate stands with the store, for people and metrics.
// Times are of the candidate's clock.
type Standing struct {
	// State is one of States: how far it is between having no lease and holding
	// the seat, and back.
	State string
	// Deadline is when the store may let its lease go; 0: it has none.
	Deadline time.Duration
	// Proven is when the last read was sent whose revision the image has
	// reached; 0: none was.
	Proven time.Duration
	// Behind is how many revisions the image lacks of the newest that a read
	// was answered at. What others write beside the cluster counts too, until
	// the watch tells that it has passed.
	Behind store.Rev
	// Vacated is when the image showed last that the seat had fallen empty; 0:
	// never.
	Vacated time.Duration
	// Lost is when, before that, the connection to the holder of the seat broke
	// and was not made again; 0: it did not, as far as is known.
	Lost time.Duration
	// Margin is how the lease does, nil without one.
	Margin *Margin
	Proofs Proofs
}

// Standing says how the candidate stands.
func (c *Candidate) Standing(now time.Duration, im *cluster.Image) Standing {
	s := Standing{State: states[c.phase], Proven: c.proven, Vacated: c.vacated, Lost: c.brokeAt, Proofs: c.Proofs}
	if m, known := c.Margin(now); known {
		s.Margin = &m
	}
	if k := c.keeper; k != nil {
		s.Deadline = k.Deadline()
		for _, p := range k.probes {
			s.Behind = max(s.Behind, p.read.Rev-im.Rev)
		}
	}
	return s
}
