package metrics

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/controllerd/controllerd/controller"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/internal/prom"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// look is what one scrape sees.
type look struct {
	*controller.Snapshot
	now     time.Duration
	active  bool // it may act at this moment, and the snapshot is of its term
	queue   int
	version string
	etcd    *[operations]callStats
}

// whileActive is a gauge that is 0 on every daemon but the active one, as
// Kafka's are: a sum over all daemons is that of the cluster.
func whileActive(value func(*look) int) func(*look, prom.Emit) {
	return prom.One(func(l *look) float64 {
		if !l.active {
			return 0
		}
		return float64(value(l))
	})
}

// count is a counter of the process.
func count(value func(*look) int64) func(*look, prom.Emit) {
	return prom.One(func(l *look) float64 { return float64(value(l)) })
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// table are all metrics of a daemon.
var table = slices.Concat(seat, state, work, brokers, etcd, process)

// seat is about the election and the lease.
var seat = []prom.Metric[*look]{
	{Name: "controllerd_active", Kind: prom.Gauge, Help: "1 if the daemon is the active controller and may act at this moment; the sum over all daemons should be 1",
		Read: prom.One(func(l *look) float64 { return oneIf(l.active) })},
	{Name: "controllerd_epoch", Kind: prom.Gauge, Help: "controller epoch in etcd, as far as the daemon has seen",
		Read: prom.One(func(l *look) float64 { return float64(l.Epoch) })},
	{Name: "controllerd_session_state", Kind: prom.Gauge, Labels: []string{"state"}, Help: "1 for the state that the daemon's session with etcd is in, 0 for the others: " + strings.Join(election.States, ", "),
		Read: func(l *look, e prom.Emit) {
			for _, s := range election.States {
				e.Value(oneIf(s == l.Standing.State), s)
			}
		}},
	{Name: "controllerd_lease_remaining_seconds", Kind: prom.Gauge, Help: "time until etcd may let the daemon's lease go, 0 without a lease",
		Read: prom.One(func(l *look) float64 { return max(l.Standing.Deadline-l.now, 0).Seconds() })},
	{Name: "controllerd_lease_margin_seconds", Kind: prom.Gauge, Help: "least time that was left, in the last 10 minutes, until the daemon would have had to give its lease up; 0 without a lease",
		Read: prom.One(func(l *look) float64 {
			if l.Standing.Margin == nil {
				return 0
			}
			return l.Standing.Margin.Least.Seconds()
		})},
	{Name: "controllerd_death_proofs_total", Kind: prom.Counter, Labels: []string{"verdict"}, Help: "times that the connection to the active controller broke and its address refused new ones: proven (the daemon has tried to free the seat), damped (too early in a term)",
		Read: func(l *look, e prom.Emit) {
			e.Value(float64(l.Standing.Proofs.Proven), "proven")
			e.Value(float64(l.Standing.Proofs.Damped), "damped")
		}},
	{Name: "controllerd_terms_won_total", Kind: prom.Counter, Help: "terms that the daemon has won",
		Read: count(func(l *look) int64 { return l.Stats.Terms })},
	{Name: "controllerd_terms_ended_total", Kind: prom.Counter, Labels: []string{"cause"}, Help: "terms of the daemon that have ended, by cause: " + strings.Join(controller.EndCauses[:], ", "),
		Read: func(l *look, e prom.Emit) {
			for i, cause := range controller.EndCauses {
				e.Value(float64(l.Stats.Ended[i]), cause)
			}
		}},
	{Name: "controllerd_takeover_phase_seconds", Kind: prom.Histogram, Labels: []string{"phase"}, Help: "how long the phases of the daemon's take-overs took, one after the other: " + strings.Join(controller.TakeoverPhases[:], ", "),
		Read: func(l *look, e prom.Emit) {
			for i, phase := range controller.TakeoverPhases {
				e.Durations(&l.Stats.Takeover[i], phase)
			}
		}},
	{Name: "controllerd_candidates", Kind: prom.Gauge, Help: "daemons that could be active, this one included; 0 on a standby",
		Read: whileActive(func(l *look) int { return l.Candidates })},
}

// state is about the cluster.
var state = []prom.Metric[*look]{
	{Name: "controllerd_topics", Kind: prom.Gauge, Help: "topics; 0 on a standby",
		Read: whileActive(func(l *look) int { return l.Topics })},
	{Name: "controllerd_topics_due", Kind: prom.Gauge, Help: "topics that are to be deleted, or lack partitions that are wanted; 0 on a standby",
		Read: whileActive(func(l *look) int { return l.TopicsDue })},
	{Name: "controllerd_tombstones", Kind: prom.Gauge, Help: "deleted topics of which some broker may still hold replicas; 0 on a standby",
		Read: whileActive(func(l *look) int { return l.Tombstones })},
	{Name: "controllerd_partitions", Kind: prom.Gauge, Help: "partitions; 0 on a standby",
		Read: whileActive(func(l *look) int { return int(l.Partitions.Partitions) })},
	{Name: "controllerd_offline_partitions", Kind: prom.Gauge, Help: "partitions without a leader; 0 on a standby",
		Read: whileActive(func(l *look) int { return int(l.Partitions.Offline) })},
	{Name: "controllerd_under_replicated_partitions", Kind: prom.Gauge, Help: "partitions whose ISR lacks replicas; 0 on a standby",
		Read: whileActive(func(l *look) int { return int(l.Partitions.UnderReplicated) })},
	{Name: "controllerd_unknown_partitions", Kind: prom.Gauge, Help: "partitions whose record is missing or unreadable; 0 on a standby",
		Read: whileActive(func(l *look) int { return int(l.Partitions.Unknown) })},
	{Name: "controllerd_preferred_leader_imbalance", Kind: prom.Gauge, Help: "partitions whose leader is not their first replica, or that have none; 0 on a standby",
		Read: whileActive(func(l *look) int { return int(l.Partitions.NotPreferred) })},
	{Name: "controllerd_offline_replicas", Kind: prom.Gauge, Help: "replicas of live brokers whose storage has failed; 0 on a standby",
		Read: whileActive(func(l *look) int { return l.Offline })},
	{Name: "controllerd_brokers", Kind: prom.Gauge, Labels: []string{"state"}, Help: "live brokers by state: running, draining (on their way out), unreachable (with a session, but without an answer on a stream of commands); 0 on a standby",
		Read: func(l *look, e prom.Emit) {
			for _, of := range []struct {
				state string
				n     int
			}{{"running", l.Running}, {"draining", l.Draining}, {"unreachable", l.Unreachable}} {
				e.Value(float64(of.n)*oneIf(l.active), of.state)
			}
		}},
	{Name: "controllerd_frozen", Kind: prom.Gauge, Help: "1 if automation stands still: leaders are not balanced, queued moves do not begin",
		Read: prom.One(func(l *look) float64 { return oneIf(l.Frozen) })},
	{Name: "controllerd_skipped_keys", Kind: prom.Gauge, Help: "keys in etcd that cannot be read and count as missing",
		Read: prom.One(func(l *look) float64 { return float64(l.SkippedKeys) })},
	{Name: "controllerd_problems", Kind: prom.Gauge, Help: "problems that controllerd controller status names",
		Read: prom.One(func(l *look) float64 { return float64(l.Problems) })},
	{Name: "controllerd_etcd_writes_refused", Kind: prom.Gauge, Help: "1 if etcd has refused the last write of the active daemon, for want of space say",
		Read: prom.One(func(l *look) float64 { return oneIf(l.Refused && l.active) })},
	{Name: "controllerd_image_revision", Kind: prom.Gauge, Help: "revision of etcd that the daemon has seen, 0 before it has read anything",
		Read: prom.One(func(l *look) float64 { return float64(l.Revision) })},
	{Name: "controllerd_watch_lag_revisions", Kind: prom.Gauge, Help: "revisions by which a read of etcd was ahead of the watch at last; what others write there counts until the watch passes it",
		Read: prom.One(func(l *look) float64 { return float64(l.Standing.Behind) })},
	{Name: "controllerd_watch_lag_seconds", Kind: prom.Gauge, Help: "time since the newest state of etcd that the watch is known to have shown, 0 before the first",
		Read: prom.One(func(l *look) float64 {
			if l.Standing.Proven == 0 {
				return 0
			}
			return max(l.now-l.Standing.Proven, 0).Seconds()
		})},
}

// work is what the active daemon does.
var work = []prom.Metric[*look]{
	{Name: "controllerd_leader_elections_total", Kind: prom.Counter, Help: "partitions that got another leader by a decision of the daemon",
		Read: count(func(l *look) int64 { return l.Stats.LeaderElections })},
	{Name: "controllerd_unclean_leader_elections_total", Kind: prom.Counter, Help: "of them those whose leader was not in the ISR, so that committed messages may be lost",
		Read: count(func(l *look) int64 { return l.Stats.UncleanElections })},
	{Name: "controllerd_leader_balances_total", Kind: prom.Counter, Help: "times that leaders were out of balance and the daemon has moved some back to the first replicas by itself",
		Read: count(func(l *look) int64 { return l.Stats.Balances })},
	{Name: "controllerd_leader_election_seconds", Kind: prom.Histogram, Help: "how long it took, each time that a rule asked for a change of partitions, until all of them were committed",
		Read: func(l *look, e prom.Emit) { e.Durations(&l.Stats.ElectionTime) }},
	{Name: "controllerd_isr_shrinks_total", Kind: prom.Counter, Help: "partitions whose ISR has lost members by a decision of the daemon",
		Read: count(func(l *look) int64 { return l.Stats.IsrShrinks })},
	{Name: "controllerd_isr_expands_total", Kind: prom.Counter, Help: "partitions whose ISR has got members by a decision of the daemon",
		Read: count(func(l *look) int64 { return l.Stats.IsrExpands })},
	{Name: "controllerd_agenda_partitions", Kind: prom.Gauge, Help: "partitions for which a rule would do something now; 0 on a standby",
		Read: whileActive(func(l *look) int { return l.Agenda })},
	{Name: "controllerd_waiting_requests", Kind: prom.Gauge, Help: "requests that wait for a decision; 0 on a standby",
		Read: whileActive(func(l *look) int { return l.Requests })},
	{Name: "controllerd_transactions_committed_total", Kind: prom.Counter, Help: "transactions of the daemon's terms that were committed",
		Read: count(func(l *look) int64 { return l.Stats.Committed })},
	{Name: "controllerd_guards_failed_total", Kind: prom.Counter, Help: "transactions that were not committed because the claim was lost, or a record was written by somebody else",
		Read: count(func(l *look) int64 { return l.Stats.GuardFailed })},
	{Name: "controllerd_illegal_writes_total", Kind: prom.Counter, Help: "writes that no rule may make and that were not made: bugs, or records written by hand",
		Read: count(func(l *look) int64 { return l.Stats.Illegal })},
	{Name: "controllerd_agenda_corrections_total", Kind: prom.Counter, Help: "partitions that were wrong in what a standby had prepared: bugs",
		Read: count(func(l *look) int64 { return l.Stats.Swept })},
	{Name: "controllerd_keys_healed_total", Kind: prom.Counter, Help: "keys whose change the watch had missed",
		Read: count(func(l *look) int64 { return l.Stats.Healed })},
}

// refusals are the reasons for which brokers refuse commands.
var refusals = func() (names []string) {
	for i := 1; i < len(controller.Snapshot{}.Push.Refusals); i++ {
		names = append(names, strings.ToLower(strings.TrimPrefix(pb.Refusal(i).String(), "REFUSAL_")))
	}
	return names
}()

// brokers is what goes on between the active daemon and brokers.
var brokers = []prom.Metric[*look]{
	{Name: "controllerd_pending_states", Kind: prom.Gauge, Help: "partition states that brokers have yet to confirm; 0 on a standby",
		Read: whileActive(func(l *look) int { return l.Pending })},
	{Name: "controllerd_broker_pending_states", Kind: prom.Gauge, Labels: []string{"broker"}, Help: "of them those of one live broker; none on a standby",
		Read: perBroker(func(b rpc.Backlog) float64 { return float64(b.Pending) })},
	{Name: "controllerd_broker_connected", Kind: prom.Gauge, Labels: []string{"broker"}, Help: "1 if the stream of commands to a live broker is open; none on a standby",
		Read: perBroker(func(b rpc.Backlog) float64 { return oneIf(b.Connected) })},
	{Name: "controllerd_broker_death_proofs_total", Kind: prom.Counter, Labels: []string{"verdict"}, Help: "times that the connection to a broker broke and its address refused new ones: proven (the active daemon has taken it for dead), damped (another broker was suspected too, or one was taken for dead within 10 s)",
		Read: func(l *look, e prom.Emit) {
			e.Value(float64(l.Push.DeathsProven), "proven")
			e.Value(float64(l.Push.DeathsDamped), "damped")
		}},
	{Name: "controllerd_states_sent_total", Kind: prom.Counter, Help: "partition states sent to the brokers that host them",
		Read: count(func(l *look) int64 { return l.Push.Sent })},
	{Name: "controllerd_state_results_total", Kind: prom.Counter, Labels: []string{"result"}, Help: "results of partition states, as brokers report them: applied, already, failed",
		Read: func(l *look, e prom.Emit) {
			e.Value(float64(l.Push.Applied), "applied")
			e.Value(float64(l.Push.Already), "already")
			e.Value(float64(l.Push.Failed), "failed")
		}},
	{Name: "controllerd_command_ack_seconds", Kind: prom.Histogram, Help: "how long commands wait for a broker's gate to admit or refuse them",
		Read: func(l *look, e prom.Emit) { e.Durations(&l.Push.AckTime) }},
	{Name: "controllerd_commands_refused_total", Kind: prom.Counter, Labels: []string{"reason"}, Help: "commands of the daemon that brokers have refused: " + strings.Join(refusals, ", "),
		Read: func(l *look, e prom.Emit) {
			for i, reason := range refusals {
				e.Value(float64(l.Push.Refusals[i+1]), reason)
			}
		}},
	{Name: "controllerd_full_syncs_total", Kind: prom.Counter, Help: "streams of commands that began with everything",
		Read: count(func(l *look) int64 { return l.Push.FullSyncs })},
	{Name: "controllerd_streams_resumed_total", Kind: prom.Counter, Help: "streams of commands that went on where an earlier one had ended",
		Read: count(func(l *look) int64 { return l.Push.Resumed })},
	{Name: "controllerd_digest_mismatches_total", Kind: prom.Counter, Help: "times that a broker held something else than it was told",
		Read: count(func(l *look) int64 { return l.Push.Mismatched })},
	{Name: "controllerd_replicas_gone_offline_total", Kind: prom.Counter, Help: "times that the storage of a replica has failed",
		Read: count(func(l *look) int64 { return l.Push.WentOffline })},
	{Name: "controllerd_stray_replicas_found_total", Kind: prom.Counter, Help: "replicas found on brokers that nobody has assigned to them",
		Read: count(func(l *look) int64 { return l.Push.Strays })},
	{Name: "controllerd_brokers_unreachable_total", Kind: prom.Counter, Help: "times that a live broker was marked as unreachable",
		Read: count(func(l *look) int64 { return l.Stats.Unreachable })},
	{Name: "controllerd_brokers_disbelieved_total", Kind: prom.Counter, Help: "times that a broker claimed a higher epoch than etcd holds",
		Read: count(func(l *look) int64 { return l.Stats.Disbelieved })},
}

func perBroker(value func(rpc.Backlog) float64) func(*look, prom.Emit) {
	return func(l *look, e prom.Emit) {
		if !l.active {
			return
		}
		for _, b := range l.Backlogs {
			e.Value(value(b), strconv.Itoa(int(b.Broker)))
		}
	}
}

// process is about the daemon itself.
var process = []prom.Metric[*look]{
	{Name: "controllerd_event_queue_length", Kind: prom.Gauge, Help: "events that wait for the goroutine that owns the state",
		Read: prom.One(func(l *look) float64 { return float64(l.queue) })},
	{Name: "controllerd_event_queue_seconds", Kind: prom.Histogram, Help: "how long events have waited for it",
		Read: func(l *look, e prom.Emit) { e.Durations(&l.Owner.QueueTime) }},
	{Name: "controllerd_step_seconds", Kind: prom.Histogram, Help: "how long its steps took",
		Read: func(l *look, e prom.Emit) { e.Durations(&l.Owner.StepTime) }},
	{Name: "controllerd_longest_step_seconds", Kind: prom.Gauge, Help: "how long it was busy at a stretch at most; more than 0.05 is a fault, or a machine that is too busy",
		Read: prom.One(func(l *look) float64 { return l.Owner.LongestStep.Seconds() })},
	{Name: "controllerd_snapshot_age_seconds", Kind: prom.Gauge, Help: "how old what these metrics show is; more than some seconds says that it hangs",
		Read: prom.One(func(l *look) float64 { return max(l.now-l.At, 0).Seconds() })},
	{Name: "controllerd_build_info", Kind: prom.Gauge, Labels: []string{"version", "goversion"}, Help: "1",
		Read: func(l *look, e prom.Emit) { e.Value(1, l.version, runtime.Version()) }},
}
