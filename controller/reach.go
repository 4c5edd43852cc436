package controller

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/epoch"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

const (
	// reachInterval is how often the active looks which brokers it reaches.
	reachInterval = time.Second
	// cutOffPause is for how long, after a term has ended because its holder
	// reached too few brokers, no other ends for that.
	cutOffPause = 5 * time.Minute
)

// reach is what the active makes of the brokers that answer it, and of those
// that have a session but do not. The second are marked in their key, and
// treated as draining, until they answer again.
type reach struct {
	next  time.Duration             // the next look
	marks map[cluster.BrokerID]bool // how the last look wants them to be marked
	// cutOff is the last term that this daemon has seen end because its holder
	// was cut off from the brokers, cutOffSeen when.
	cutOff     cluster.Epoch
	cutOffSeen time.Duration
}

// lookAround looks which brokers answer. If more than half of them do not, the
// fault is probably the daemon's own: nobody is marked, and when it has lasted
// it resigns. If another has done so shortly before, or there is no other, the
// fault is not: they are marked.
func (l *Loop) lookAround(now election.Now, out []Action) []Action {
	if now.Mono < l.reach.next {
		return out
	}
	l.reach.next, l.reach.marks = now.Mono+reachInterval, map[cluster.BrokerID]bool{}
	r := l.pusher.Reach(now.Mono, l.cfg.Unreachable)
	most := 2*len(r.Overdue) > r.Brokers()
	if most && l.mayBeCutOff(now.Mono) {
		l.Stats.CutOff++
		end := epoch.End{
			Cause:  pb.EndCause_END_CAUSE_CUT_OFF,
			Reason: fmt.Sprintf("%d of %d live brokers have answered on no stream of commands for %v", len(r.Overdue), r.Brokers(), l.cfg.Unreachable),
		}
		return l.elect(l.candidate.Step(now, l.im, l.oldestWrite(now.Mono), election.Resign{End: end}), out)
	}
	for _, id := range r.Answering {
		l.reach.marks[id] = false
	}
	if most || 2*r.Silent <= r.Brokers() {
		for _, id := range r.Overdue {
			l.reach.marks[id] = true
		}
	}
	maps.DeleteFunc(l.reach.marks, func(id cluster.BrokerID, _ bool) bool { return !l.markDue(id) })
	return out
}

// mayBeCutOff reports whether to give up the seat may help: somebody else could
// take it, and nobody has given it up for that shortly before. When that was is
// told by this daemon's own clock, from when it saw it.
func (l *Loop) mayBeCutOff(now time.Duration) bool {
	if l.reach.cutOff != 0 && now-l.reach.cutOffSeen < cutOffPause {
		return false
	}
	for _, c := range l.im.Candidates {
		if c.Record.GetNonce() != l.cfg.Election.Self.GetNonce() {
			return true
		}
	}
	return false
}

// noteCutOff looks for a term that has ended because its holder was cut off.
func (l *Loop) noteCutOff(events []cluster.Event) {
	if !slices.ContainsFunc(events, func(e cluster.Event) bool { _, ok := e.(cluster.LeaderChanged); return ok }) {
		return
	}
	for e, t := range l.im.Terms {
		if t.Record.GetEndCause() == pb.EndCause_END_CAUSE_CUT_OFF && e > l.reach.cutOff {
			l.reach.cutOff, l.reach.cutOffSeen = e, l.now
		}
	}
}

// markDue reports whether a broker is not marked as it should be.
func (l *Loop) markDue(id cluster.BrokerID) bool {
	want, judged := l.reach.marks[id]
	b := l.im.Brokers[id]
	return judged && b != nil && b.Unreachable() != want && !l.pusher.CountsAsDead(id) // whose key is to be deleted
}

func (l *Loop) marksDue() bool {
	for id := range l.reach.marks {
		if l.markDue(id) {
			return true
		}
	}
	return false
}

// markBrokers writes who is unreachable, and who is not any more, into the keys
// of their incarnations, which stay on their leases.
func (d *draft) markBrokers() {
	l := d.l
	ids := slices.DeleteFunc(slices.Sorted(maps.Keys(l.reach.marks)), func(id cluster.BrokerID) bool { return !l.markDue(id) })
	for _, id := range ids[:min(len(ids), maxChores)] {
		b := l.im.Brokers[id]
		record := proto.Clone(b.Record).(*pb.BrokerRecord)
		record.Unreachable = l.reach.marks[id]
		if record.Unreachable {
			l.Stats.Unreachable++
		}
		key := l.im.Keys.Broker(id)
		d.keyed[id] = true
		d.chores = append(d.chores, &unit{
			conds: sameBroker(key, b),
			ops:   []store.Op{store.PutKeepLease(key, cluster.Encode(record))},
		})
	}
}

// buryBrokers deletes the keys of brokers whose death is proved, as long as they
// are those of the sessions that were seen.
func (d *draft) buryBrokers() {
	for _, b := range d.l.pusher.Dead(d.l.im) {
		key := d.l.im.Keys.Broker(b.ID)
		d.keyed[b.ID] = true
		d.chores = append(d.chores, &unit{conds: sameBroker(key, b), ops: []store.Op{store.Delete(key)}})
	}
}

// sameBroker is the condition that a broker's key is as it was seen.
func sameBroker(key string, b *cluster.Broker) []store.Cond {
	return []store.Cond{store.CreateRevIs(key, store.Rev(b.Epoch)), store.ModRevIs(key, b.ModRev)}
}

// unreachable names live brokers that are marked.
func (l *Loop) unreachable() []string {
	var out []string
	for _, b := range l.im.SortedBrokers() {
		if b.Unreachable() {
			out = append(out, fmt.Sprintf("broker %d is unreachable: it has a session, but answers on no stream of commands", b.ID))
		}
	}
	return out
}
