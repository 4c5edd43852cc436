package dev

import "github.com/controllerd/controllerd/internal/sim"

// atRest reports whether all is well that should be in the end, and whether the
// invariants that take time were looked at since.
func (a *account) atRest(since sim.Looks) bool {
	return a.activeID() != "" && len(a.stuck()) == 0 && len(a.unseen(since)) == 0
}

// unseen names the invariants that were not looked at since.
func (a *account) unseen(since sim.Looks) []string {
	var out []string
	now := a.check.Looks()
	if now.Converged == since.Converged && a.cfg.Brokers > 0 {
		out = append(out, "I5")
	}
	if now.Elected == since.Elected {
		out = append(out, "I6")
	}
	return out
}

// lastReport is the report of a run that came to its end, with what should have
// come about by then. An invariant that was not looked at since the end began
// has not been shown to hold: that is a violation too.
func (a *account) lastReport(since sim.Looks) Report {
	r := a.report()
	r.stuck = a.stuck()
	for _, name := range a.unseen(since) {
		r.Violations = append(r.Violations, name+" was never looked at in the end")
	}
	return r
}
