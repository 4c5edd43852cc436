package controller

import (
	"fmt"
	"maps"
	"slices"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/statemachine"
)

// maxNamed bounds how many things of one kind Problems names.
const maxNamed = 20

// View is what the services may look at.
func (l *Loop) View() rpc.View {
	push := l.pusher.Stats
	v := rpc.View{
		Image:       l.im,
		Feed:        l.feed,
		Self:        l.cfg.Election.Self.GetId(),
		Nonce:       l.cfg.Election.Self.GetNonce(),
		ClusterUUID: l.candidate.ClusterUUID(),
		Active:      l.active,
		Healthy:     len(l.unfit()) == 0,
		Current:     l.im.Rev > 0 && l.candidate.Blind(l.now) == 0,
		Version:     l.cfg.Election.Version,
		Session:     l.candidate.Standing(l.now, l.im).State,
		Problems:    l.problems,
		Moving:      l.machine.Moving,
		WaitsFor:    l.machine.WaitsFor,
		Counters: map[string]int64{
			"terms_won": l.Stats.Terms, "transactions_committed": l.Stats.Committed, "guards_failed": l.Stats.GuardFailed,
			"keys_healed": l.Stats.Healed, "hidden_blocks_deleted": l.Stats.Hidden, "illegal_writes": l.Stats.Illegal, "agenda_corrected": l.Stats.Swept,
			"brokers_disbelieved":     l.Stats.Disbelieved,
			"controllers_proven_dead": l.candidate.Proofs.Proven, "controller_deaths_damped": l.candidate.Proofs.Damped,
			"brokers_proven_dead": push.DeathsProven, "broker_deaths_damped": push.DeathsDamped,
			"brokers_unreachable": l.Stats.Unreachable, "terms_cut_off": l.Stats.CutOff, "states_sent": push.Sent, "states_applied": push.Applied,
			"states_already": push.Already, "states_failed": push.Failed, "commands_refused": push.Refused,
			"full_syncs": push.FullSyncs, "streams_resumed": push.Resumed, "digests_mismatched": push.Mismatched,
			"isr_shrinks": l.Stats.IsrShrinks, "isr_expands": l.Stats.IsrExpands, "leader_elections": l.Stats.LeaderElections,
			"leader_balances": l.Stats.Balances, "leaders_balanced": l.Stats.Balanced,
			"replicas_went_offline": push.WentOffline, "replicas_found_stray": push.Strays,
		},
	}
	if m, held := l.candidate.Margin(l.now); held {
		v.Lease = &rpc.Lease{TTL: m.TTL, Margin: m.Least, Usual: m.Usual}
	}
	if l.active {
		v.Claim, v.Pending, v.Pusher = l.claim, l.pusher.Pending(), l.pusher
		v.Contacts = func() map[cluster.BrokerID]rpc.Contact { return l.pusher.Contacts(l.im) }
	}
	return v
}

// unfit says why the daemon cannot do its work, each in a sentence.
func (l *Loop) unfit() []string {
	var out []string
	if p := l.candidate.Problem(); p != "" {
		out = append(out, "not campaigning: "+p)
	}
	if blind := l.candidate.Blind(l.now); blind > 0 {
		out = append(out, "etcd or its watch does not answer: what is shown here may be old")
	}
	if l.refused != nil {
		out = append(out, "etcd takes no writes: "+rpc.Words(l.refused))
	}
	if n, e := l.pusher.Outdated(l.now); l.active && 2*n > len(l.im.Brokers) {
		out = append(out, fmt.Sprintf("%d of %d live brokers know of controller epoch %d, etcd holds %d: it was restored to an older state; stop all daemons, run controllerd recover, start them again",
			n, len(l.im.Brokers), e, l.claim.Epoch))
	}
	return out
}

// problems says what is wrong, each in a sentence, what matters most first.
func (l *Loop) problems() []string {
	out := l.unfit()
	if l.stuck != "" {
		out = append(out, "not written: "+l.stuck)
	}
	for _, id := range slices.Sorted(maps.Keys(l.im.Candidates)) {
		c := l.im.Candidates[id].Record
		if c.GetId() == l.cfg.Election.Self.GetId() && c.GetNonce() != l.cfg.Election.Self.GetNonce() {
			out = append(out, fmt.Sprintf("another daemon at %s has the same id %s", c.GetEndpoint(), c.GetId()))
		}
	}
	out = append(out, some(l.unreachable(), "such brokers")...)
	if l.active {
		blocked := l.pusher.Problems()
		var brokers []string
		for _, id := range slices.Sorted(maps.Keys(blocked)) {
			brokers = append(brokers, fmt.Sprintf("broker %d gets no commands: %s", id, blocked[id]))
		}
		out = append(out, some(brokers, "such brokers")...)
		stuck, more := l.pusher.Stuck(l.im, maxNamed)
		if out = append(out, stuck...); more > 0 {
			out = append(out, fmt.Sprintf("and %d more such partitions", more))
		}
	}
	out = append(out, some(l.incomplete(), "such topics")...)
	var keys []string
	for _, f := range l.im.SortedFaults() {
		keys = append(keys, fmt.Sprintf("key %s is skipped: %s", f.Key, f.Reason))
	}
	return append(out, some(keys, "such keys")...)
}

// incomplete names topics that lack partitions.
func (l *Loop) incomplete() []string {
	if l.im.HealthOfAll().Unknown == 0 && l.machine.TopicsDue() == 0 {
		return nil // without a look at each topic
	}
	var out []string
	for _, t := range l.im.SortedTopics() {
		if n := l.im.MissingBlocks(t); n > 0 {
			out = append(out, fmt.Sprintf("topic %s: %d blocks of partition records are missing", t.Name, n))
		}
		if t.Made() >= t.Wanted() || t.Deleting() || !l.active {
			continue
		}
		if len(out) >= maxNamed { // not worth to find out why
			out = append(out, "")
			continue
		}
		if _, _, rej := statemachine.Complete(l.im, statemachine.Term{}, t, 1, 0); rej != nil {
			out = append(out, fmt.Sprintf("topic %s has %d of %d partitions: %s", t.Name, t.Made(), t.Wanted(), rej.Message))
		}
	}
	return out
}

// some cuts a list that is too long for people.
func some(list []string, what string) []string {
	if n := len(list) - maxNamed; n > 0 {
		return append(list[:maxNamed], fmt.Sprintf("and %d more %s", n, what))
	}
	return list
}
