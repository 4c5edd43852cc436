package dev

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	"github.com/controllerd/controllerd/internal/sim"
	"github.com/controllerd/controllerd/store"
)

const (
	// gather is how long changes of one kind are collected before they are
	// told, so that many of them can be summed up.
	gather = 200 * time.Millisecond
	// tellAnyway is when a new controller is announced whom no broker has heard.
	tellAnyway = 2 * time.Second
)

// account is what happened, as seen from outside: a watch of etcd, what the
// brokers accepted, and who was killed. It has no clock and is owned by one
// goroutine.
type account struct {
	cfg   Config
	began time.Time
	now   time.Time // never falls
	im    *cluster.Image
	check *sim.Checker
	told  int // violations

	before    cluster.Epoch // epochs up to this one are of an earlier run
	terms     []*term
	accepted  map[cluster.Epoch]time.Time // when a broker first obeyed
	commands  Commands
	running   map[string]bool // daemons
	alive     map[cluster.BrokerID]bool
	ready     bool
	ended     bool // nothing is told any more
	changes   changes
	status    string // as last told
	statusDue bool
	waiters   []func(*account) // who wait for something, to look again
}

func newAccount(cfg Config, began time.Time) *account {
	keys := cluster.KeysOf(cfg.Cluster)
	return &account{
		cfg: cfg, began: began, now: began,
		im:       cluster.NewImage(keys),
		check:    sim.NewChecker(keys, sim.Bounds{Converge: calm, Elect: cfg.LeaseTTL + calm}),
		accepted: map[cluster.Epoch]time.Time{},
		running:  map[string]bool{},
		alive:    map[cluster.BrokerID]bool{},
	}
}

// at moves the account's time on, and gives it as the checker wants it.
func (a *account) at(t time.Time) time.Duration {
	if t.After(a.now) {
		a.now = t
	}
	return a.now.Sub(a.began)
}

// waiting takes those who wait.
func (a *account) waiting() []func(*account) {
	w := a.waiters
	a.waiters = nil
	return w
}

// say tells one thing.
func (a *account) say(t time.Time, format string, args ...any) {
	if !a.ended {
		_, _ = io.WriteString(a.cfg.Out, t.Format(time.TimeOnly)+" "+fmt.Sprintf(format, args...)+"\n")
	}
}

// announce tells one thing after everything that came before it.
func (a *account) announce(t time.Time, format string, args ...any) {
	a.flush()
	a.say(t, format, args...)
}

// watched takes in what happened in etcd.
func (a *account) watched(t time.Time, b store.Batch) {
	first := a.im.Rev == 0
	a.check.Watched(a.at(t), b)
	events := a.im.Apply(b)
	if first { // of an earlier run
		a.before, events = a.im.Epoch, nil
	}
	a.seat(t)
	for _, ev := range events {
		a.changes.add(t, a.im, ev)
	}
	a.statusDue = a.statusDue || len(events) > 0
	a.violations()
}

// heard takes in one decision of a broker.
func (a *account) heard(id cluster.BrokerID, o broker.Observation) {
	a.check.Accepted(sim.Accepted{At: a.at(o.Time), Broker: id, Observation: o})
	switch o.Result {
	case fencing.Admitted.String(), fencing.IsrAdopted.String():
		a.commands.Applied++
	case fencing.Already.String():
		a.commands.Already++
	case string(cluster.StaleControllerEpoch), string(cluster.StaleBrokerEpoch):
		a.commands.RefusedStale++
	}
	if obeyed(o) && a.accepted[o.ControllerEpoch].IsZero() {
		a.accepted[o.ControllerEpoch] = o.Time
		a.tellTerm(false)
	}
	a.violations()
}

// obeyed reports whether a broker accepted a command.
func obeyed(o broker.Observation) bool {
	switch o.Result {
	case fencing.Admitted.String(), fencing.IsrAdopted.String(), fencing.Already.String():
		return true
	}
	return false
}

// daemonStarted and the following take in what was done to the cluster.
func (a *account) daemonStarted(t time.Time, id, address string, again bool) {
	a.check.Faulted(a.at(t))
	a.running[id] = true
	if again {
		a.announce(t, "controller %s started again at %s", id, address)
	}
}

func (a *account) daemonKilled(t time.Time, id string) {
	a.check.Faulted(a.at(t))
	delete(a.running, id)
	a.tellTerm(true)
	cur := a.current()
	if cur == nil || cur.controller != id || cur.cause != "" {
		a.announce(t, "controller %s killed, it was not active", id)
		return
	}
	cur.cause, cur.ended = causeKilled, t
	a.announce(t, "controller %s killed, it was active in epoch %d", id, cur.epoch)
}

func (a *account) brokerStarted(t time.Time, id cluster.BrokerID, again bool) {
	a.check.Faulted(a.at(t))
	a.check.Started(id)
	a.alive[id] = true
	if again {
		a.announce(t, "broker %d started again", id)
	}
}

func (a *account) brokerKilled(t time.Time, id cluster.BrokerID) {
	a.check.Faulted(a.at(t))
	delete(a.alive, id)
	a.announce(t, "broker %d killed", id)
}

// tick tells what is due, and checks what should have come about.
func (a *account) tick(t time.Time) {
	at := a.at(t)
	for id := range a.im.Brokers {
		if !a.alive[id] {
			a.check.Faulted(at) // it cannot hear of anything
		}
	}
	a.check.Tick(at, slices.Collect(maps.Keys(a.running)), a.activeID() != "")
	a.violations()
	if cur := a.current(); cur != nil && t.Sub(cur.seen) > tellAnyway {
		a.tellTerm(true)
	}
	if !a.changes.since.IsZero() && t.Sub(a.changes.since) >= gather {
		a.flush()
	}
	if cur := a.current(); a.ready && a.statusDue && a.changes.since.IsZero() && (cur == nil || cur.told) {
		a.statusDue = false
		if s := a.describe(); s != a.status {
			a.status = s
			a.say(t, "%s", s)
		}
	}
}

// flush tells the changes that were gathered.
func (a *account) flush() {
	t := a.changes.since
	for _, line := range a.changes.lines() {
		a.say(t, "%s", line)
	}
	a.changes = changes{}
}

// violations tells those that are new.
func (a *account) violations() {
	all := a.check.Violations()
	for _, v := range all[a.told:] {
		a.told++
		a.announce(a.now, "INVARIANT BROKEN: %v", v)
	}
}

// begin says that the cluster is complete.
func (a *account) begin(t time.Time, format string, args ...any) {
	a.announce(t, format, args...)
	a.ready, a.statusDue = true, true
	a.tick(t)
}

// describe is the state of the cluster in one line.
func (a *account) describe() string {
	who := "nobody active"
	if id := a.activeID(); id != "" {
		who = id + " active"
	}
	p := a.partitions()
	s := fmt.Sprintf("= epoch %d, %s, %d of %d brokers live, %d of %d partitions online",
		a.im.Epoch, who, len(a.im.Brokers), a.cfg.Brokers, p.Online, p.Total)
	if n := p.Online - a.inSync(); n > 0 {
		s += fmt.Sprintf(", %d under-replicated", n)
	}
	return s
}

// online reports whether somebody leads a partition.
func (a *account) online(p *cluster.Partition) bool {
	return p != nil && a.im.Brokers[p.Leader] != nil
}

// each visits all partitions; p is nil for one that cannot be read.
func (a *account) each(visit func(t *cluster.Topic, id cluster.PartitionID, p *cluster.Partition)) {
	for _, t := range a.im.SortedTopics() {
		a.im.Partitions(t, func(id cluster.PartitionID, p *cluster.Partition) { visit(t, id, p) })
	}
}

func (a *account) partitions() Partitions {
	var n Partitions
	a.each(func(_ *cluster.Topic, _ cluster.PartitionID, p *cluster.Partition) {
		n.Total++
		if a.online(p) {
			n.Online++
		}
	})
	n.Offline = n.Total - n.Online
	return n
}

// inSync is the number of online partitions with all replicas in the ISR.
func (a *account) inSync() (n int) {
	a.each(func(_ *cluster.Topic, _ cluster.PartitionID, p *cluster.Partition) {
		if a.online(p) && len(p.ISR) == len(p.Replicas) {
			n++
		}
	})
	return n
}

// stuck names the partitions without a leader that could have one, because a
// member of their ISR is live.
func (a *account) stuck() []string {
	var out []string
	a.each(func(t *cluster.Topic, id cluster.PartitionID, p *cluster.Partition) {
		live := func(b cluster.BrokerID) bool { return a.im.Brokers[b] != nil && !a.im.Brokers[b].Draining() }
		if p != nil && !a.online(p) && slices.ContainsFunc(p.ISR, live) {
			out = append(out, fmt.Sprintf("%s-%d", t.Name, id.Index))
		}
	})
	return out
}

// made reports whether the topics are there, with all partitions online.
func (a *account) made(names []string) bool {
	for _, name := range names {
		t := a.im.Topics[name]
		if t == nil || t.Made() < t.Record.GetPartitionsWanted() {
			return false
		}
	}
	return len(a.stuck()) == 0
}

// report is the account in numbers.
func (a *account) report() Report {
	r := Report{
		Epoch:      int64(a.im.Epoch),
		Terms:      []Term{},
		Brokers:    Brokers{Live: len(a.im.Brokers)},
		Partitions: a.partitions(),
		Commands:   a.commands,
		Violations: []string{},
		unseen:     a.unseen(sim.Looks{}),
	}
	for i := range a.terms {
		r.Terms = append(r.Terms, a.termReport(i))
	}
	for _, v := range a.check.Violations() {
		r.Violations = append(r.Violations, v.Error())
	}
	return r
}

// brokerList is a list of ids, with runs of three and more as a range.
func brokerList(ids []cluster.BrokerID) string {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	var parts []string
	for i := 0; i < len(ids); {
		n := 1
		for i+n < len(ids) && ids[i+n] == ids[i]+cluster.BrokerID(n) {
			n++
		}
		if n >= 3 {
			parts = append(parts, fmt.Sprintf("%d to %d", ids[i], ids[i+n-1]))
		} else {
			n = 1
			parts = append(parts, fmt.Sprint(ids[i]))
		}
		i += n
	}
	return strings.Join(parts, ", ")
}

// brokers is a list of brokers in words.
func brokers(ids []cluster.BrokerID) string {
	if len(ids) == 1 {
		return "broker " + brokerList(ids)
	}
	return "brokers " + brokerList(ids)
}
