package dev

import (
	"fmt"
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Why a term ended, as reports name it.
const (
	causeKilled  = "killed"  // known to this process only
	causeLost    = "lost"    // nobody wrote why: the lease expired
	causeCurrent = "current" // it has not ended
)

// causes are those that the history of terms can hold: name and words.
var causes = map[pb.EndCause][2]string{
	pb.EndCause_END_CAUSE_RESIGNED:    {"resigned", "resigned"},
	pb.EndCause_END_CAUSE_SHUTDOWN:    {"shutdown", "was stopped"},
	pb.EndCause_END_CAUSE_SELF_FENCED: {"self_fenced", "fenced itself"},
	pb.EndCause_END_CAUSE_PROVEN_DEAD: {"proven_dead", "was found dead"},
	pb.EndCause_END_CAUSE_TRANSFERRED: {"transferred", "handed over"},
}

// term is one controller's time in the seat.
type term struct {
	epoch      cluster.Epoch
	controller string
	nonce      string
	seen       time.Time // when the watch brought it
	cause      string    // empty: it has not ended
	words      string    // the cause in words, if it is not its own
	ended      time.Time // when it was killed or resigned, or else seen to be gone
	told       bool
}

func (t *term) inWords() string {
	if t.words != "" {
		return t.words
	}
	return t.cause
}

// current is the last term of this run, nil if there was none.
func (a *account) current() *term {
	if len(a.terms) == 0 {
		return nil
	}
	return a.terms[len(a.terms)-1]
}

// activeID is who holds the seat and runs, empty if nobody.
func (a *account) activeID() string {
	if cur := a.current(); cur != nil && cur.cause == "" {
		return cur.controller
	}
	return ""
}

// seat looks who holds it after a batch.
func (a *account) seat(t time.Time) {
	holder, cur := a.im.Controller, a.current()
	if cur != nil && (holder == nil || holder.Record.GetNonce() != cur.nonce || a.im.Epoch != cur.epoch) {
		a.endTerm(cur, t)
	}
	if holder == nil || holder.ModRev != a.im.EpochRev || a.im.Epoch <= a.before || cur != nil && a.im.Epoch <= cur.epoch {
		return
	}
	if cur != nil {
		a.tellTerm(true)
	}
	a.terms = append(a.terms, &term{
		epoch: a.im.Epoch, controller: holder.Record.GetId(), nonce: holder.Record.GetNonce(), seen: t,
	})
	// The first has taken over from nobody; without brokers nobody will hear.
	a.tellTerm(cur == nil || a.cfg.Brokers == 0)
}

// endTerm notes why a term ended, if that is not known yet.
func (a *account) endTerm(cur *term, t time.Time) {
	if cur.cause != "" {
		return
	}
	a.check.Faulted(a.at(t))
	cur.cause, cur.words, cur.ended = causeLost, "lost the seat", t
	record := a.im.Terms[cur.epoch]
	if record == nil {
		return
	}
	if c, ok := causes[record.Record.GetEndCause()]; ok {
		cur.cause, cur.words = c[0], c[1]
		if ms := record.Record.GetEndedMs(); ms != 0 { // by the clock of this machine
			cur.ended = time.UnixMilli(ms)
		}
	}
}

// took is how long it took until a broker obeyed the i-th term, from the end of
// the one before.
func (a *account) took(i int) (time.Duration, bool) {
	at := a.accepted[a.terms[i].epoch]
	if i == 0 || at.IsZero() || a.terms[i-1].ended.IsZero() {
		return 0, false
	}
	return max(at.Sub(a.terms[i-1].ended), 0), true
}

// tellTerm announces the current term once a broker has obeyed it, or anyway.
func (a *account) tellTerm(anyway bool) {
	i := len(a.terms) - 1
	if i < 0 || a.terms[i].told {
		return
	}
	took, ok := a.took(i)
	if !ok && !anyway {
		return
	}
	cur := a.terms[i]
	cur.told = true
	line := fmt.Sprintf("controller %s active, epoch %d", cur.controller, cur.epoch)
	if i > 0 {
		line += fmt.Sprintf(" (%s %s)", a.terms[i-1].controller, a.terms[i-1].inWords())
	}
	at := cur.seen
	if ok {
		line += ", took over in " + inWords(took)
		at = a.accepted[cur.epoch]
	}
	a.announce(at, "%s", line)
}

func (a *account) termReport(i int) Term {
	t := a.terms[i]
	r := Term{Epoch: int64(t.epoch), Controller: t.controller, Cause: t.cause}
	if r.Cause == "" {
		r.Cause = causeCurrent
	}
	if took, ok := a.took(i); ok {
		ms := took.Milliseconds()
		r.TakeoverMs = &ms
	}
	return r
}

// inWords is a duration as people say it.
func inWords(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
