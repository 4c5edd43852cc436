package controller

import (
	"errors"
	"slices"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/epoch"
	"github.com/controllerd/controllerd/internal/durations"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Measured are the Stats that nobody but metrics looks at.
type Measured struct {
	// Ended counts the terms that ended, by cause: one for each of EndCauses.
	Ended [endCauses]int64
	// Changes that this daemon has decided as the active one and that were
	// seen to be committed: partitions that got another leader, partitions whose
	// ISR lost members, and those whose ISR got some.
	LeaderElections, IsrShrinks, IsrExpands int64
	// UncleanElections are those of LeaderElections whose leader was not in the
	// ISR.
	UncleanElections int64
	// ElectionTime is how long it took, each time that some rule would change
	// something, until none would: from the loss of a broker, say, until the
	// last partition has another leader in the image.
	ElectionTime durations.Histogram
	// Takeover is how long the phases of take-overs took, each term that came so
	// far.
	Takeover [takeoverPhases]durations.Histogram
}

// endCauses is how many causes of the end of a term are told apart.
const endCauses = 7

// EndCauses are why terms end, as this daemon sees it.
var EndCauses = [endCauses]string{"resigned", "claim_lost", "lease_lost", "outbid", "cluster_key", "cut_off", "other"}

// endOf is the place of the cause in EndCauses. That most brokers did not
// answer is a resignation to the candidate.
func endOf(cause error, end epoch.End) int {
	if end.Cause == pb.EndCause_END_CAUSE_CUT_OFF {
		return slices.Index(EndCauses[:], "cut_off")
	}
	for i, err := range []error{election.ErrResigned, epoch.ErrClaimLost, election.ErrLeaseLost, election.ErrOutbid, election.ErrCluster} {
		if errors.Is(cause, err) {
			return i
		}
	}
	return endCauses - 1
}

// countChanges counts what the image shows of the own decisions.
func (l *Loop) countChanges(events []cluster.Event) {
	if !l.active {
		return
	}
	for _, ev := range events {
		c, ok := ev.(cluster.PartitionChanged)
		if !ok || c.Old == nil || c.New == nil || c.New.ControllerEpoch != l.claim.Epoch {
			continue
		}
		if c.New.Leader != c.Old.Leader && c.New.Leader != cluster.NoLeader {
			l.Stats.LeaderElections++
			if !slices.Contains(c.Old.ISR, c.New.Leader) {
				l.Stats.UncleanElections++
			}
		}
		if lacks(c.New.ISR, c.Old.ISR) {
			l.Stats.IsrShrinks++
		}
		if lacks(c.Old.ISR, c.New.ISR) {
			l.Stats.IsrExpands++
		}
	}
}

// lacks reports whether some of the members are not in the ISR.
func lacks(isr, members []cluster.BrokerID) bool {
	return slices.ContainsFunc(members, func(id cluster.BrokerID) bool { return !slices.Contains(isr, id) })
}

// measure looks what has come to its end by now, after a Step: how long that
// took is part of it.
func (l *Loop) measure(now time.Duration) {
	if !l.active {
		l.takeover.phase, l.dueSince = takeoverPhases, 0
		return
	}
	due := l.machine.Agenda() > 0 || l.machine.Reviewing()
	switch {
	case due && l.dueSince == 0:
		l.dueSince = now
	case !due && l.dueSince != 0:
		l.Stats.ElectionTime.Observe(now - l.dueSince)
		l.dueSince = 0
	}
	for l.takeover.phase < takeoverPhases && l.phaseEnded(due) {
		l.endPhase(now)
	}
}
