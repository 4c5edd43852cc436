package controller

import (
	"time"
)

// TakeoverPhase is one phase of a take-over; each begins where the one before
// ends.
type TakeoverPhase uint8

// The phases of a take-over.
const (
	// PhaseDetect: from the moment at which the connection to the former
	// controller broke until the seat was seen to be empty. A take-over after
	// one that was silent, or that gave up in order, has none.
	PhaseDetect TakeoverPhase = iota
	// PhaseElect: from the moment at which the seat was seen to be empty until
	// the own claim was seen.
	PhaseElect
	// PhaseDecide: until the first plan is made, or it is known that nothing is
	// to be decided.
	PhaseDecide
	// PhaseCommit: until the image shows that no rule would change anything.
	PhaseCommit
	// PhasePush: until every broker that answers has been sent all of that.
	PhasePush
	// PhaseAck: until they have confirmed it, or failed.
	PhaseAck
	takeoverPhases
)

// TakeoverPhases are the names of the phases, in order.
var TakeoverPhases = [takeoverPhases]string{
	PhaseDetect: "detect", PhaseElect: "elect", PhaseDecide: "decide", PhaseCommit: "commit", PhasePush: "push", PhaseAck: "ack",
}

// takeover follows the begin of a term through its phases.
type takeover struct {
	phase TakeoverPhase // takeoverPhases: it is over, or there is none
	since time.Duration // when the phase began
}

// phaseEnded reports whether the phase of the take-over has come to its end.
func (l *Loop) phaseEnded(due bool) bool {
	switch l.takeover.phase {
	case PhaseElect:
		return true
	case PhaseDecide:
		return l.plan != nil || !due
	case PhaseCommit:
		return !due
	case PhasePush:
		return l.pusher.Told()
	}
	return l.pusher.Acked()
}

func (l *Loop) endPhase(now time.Duration) {
	t := &l.takeover
	l.Stats.Takeover[t.phase].Observe(now - t.since)
	t.phase, t.since = t.phase+1, now
	if t.phase == PhasePush {
		l.pusher.Mark()
	}
}

// beginTakeover notes that a term has begun.
func (l *Loop) beginTakeover() {
	s := l.candidate.Standing(l.now, l.im)
	if s.Lost != 0 {
		l.Stats.Takeover[PhaseDetect].Observe(s.Vacated - s.Lost)
	}
	l.takeover = takeover{phase: PhaseElect, since: s.Vacated}
	l.endPhase(l.now)
}
