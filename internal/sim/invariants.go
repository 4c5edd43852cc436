package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// The invariants.
var (
	// ErrTwoSenders (I1): for each epoch value at most one process ever sends
	// commands with it, the one that won it.
	ErrTwoSenders = errors.New("I1: two senders of one epoch")
	// ErrEpochFell (I2): the epoch key never falls, and it rises with each won
	// term and only then.
	ErrEpochFell = errors.New("I2: epoch key fell, or rose without a term")
	// ErrStaleAccepted (I3): a broker obeys no controller epoch, no broker epoch
	// and, within one process, no state of a partition that is older than what
	// it obeyed before.
	ErrStaleAccepted = errors.New("I3: stale command obeyed")
	// ErrLateWrite (I3): keys of the controller are changed only by the term
	// that holds the seat.
	ErrLateWrite = errors.New("I3: write of a term that does not hold the seat")
	// ErrPartitionState (I4): a partition's leader is in the ISR or -1, the ISR
	// is not empty and within the replicas; no epoch of a record ever falls, the
	// partition epoch rises with each change, the leader epoch with each change
	// of the leader. Nobody who is draining is elected or let into an ISR.
	ErrPartitionState = errors.New("I4: illegal partition state")
	// ErrNotConverged (I5): some time after the last fault and the last change,
	// what a live broker accepted last is what etcd holds, for each partition
	// that it hosts, and its metadata names exactly the live brokers.
	ErrNotConverged = errors.New("I5: broker does not agree with etcd")
	// ErrNoController (I6): there is an active controller, except for some time
	// after the last one was lost, or in which no daemon could reach etcd.
	ErrNoController = errors.New("I6: no active controller")
)

// Violation is an invariant that did not hold. It wraps one of the errors
// above.
type Violation struct {
	Invariant error
	At        time.Duration // since the run began
	What      string
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%v: %s (at %v)", v.Invariant, v.What, v.At.Round(time.Millisecond))
}

// Unwrap gives the invariant.
func (v *Violation) Unwrap() error { return v.Invariant }

// Bounds are the stated times of I5 and I6.
type Bounds struct {
	// Converge is how long after the last fault, and after the last change of
	// what is compared, a broker may disagree with etcd.
	Converge time.Duration
	// Elect is how long after the last one was lost, while some daemon runs and
	// can reach etcd all the time, there may be no active controller: the lease
	// TTL and some more.
	Elect time.Duration
}

// Looks counts how often the invariants that take time were looked at, and held
// or not. One that was never looked at has not been shown to hold.
type Looks struct {
	// Converged: I5 of all live brokers, of which there was one, and of all
	// that they host, with no fault and no change too young to judge.
	Converged int
	// Elected: I6, but for times when it is too early to ask for an active
	// controller.
	Elected int
}

// Accepted is one decision of a broker about a command, in the manner of its
// observer: what was obeyed, and what was refused too.
type Accepted struct {
	At     time.Duration
	Broker cluster.BrokerID
	// Process is the process that sent the command (its nonce). Empty if it is
	// not known: then processes are told apart by Observation.Sender only.
	Process string
	broker.Observation
}

// Checker finds violations of I1 to I6 in what it is told. All times are since
// the run began and do not fall. It is not safe for concurrent use.
//
// Tell it
//
//   - Watched: each batch of a watch of the cluster's prefix, from before the
//     first daemon starts or from a list on, nothing left out;
//   - Edited: the revision of each transaction that none of the daemons made,
//     before the batch that brings it;
//   - Started: each time the process of a broker starts, before its first
//     Accepted;
//   - Registered, if it is known: each time a broker hears that it is;
//   - Accepted: each decision of a broker's gate, for each broker in the order
//     in which they took effect. broker.Config.Observer gives them so;
//   - Faulted: each disturbance: a kill, a cut, a freeze, a resignation;
//   - Tick: now and then, with who is active at that moment.
//
// What it found is in Violations. An order between brokers, or between brokers
// and etcd, is not needed.
type Checker struct {
	keys   cluster.Keys
	bounds Bounds

	faulted    time.Duration // the last fault
	looks      Looks
	active     time.Duration            // when there was an active controller last
	fit        map[string]time.Duration // daemon processes that could be, since when
	history    history
	brokers    map[cluster.BrokerID]*brokerFacts
	senders    map[cluster.Epoch]sender
	changed    func(transaction, cluster.PartitionID, *pb.PartitionRecord, *pb.PartitionRecord) // hears of each record; may be nil
	known      map[string]bool                                                                  // violations, to tell each once
	violations []*Violation
}

// maxViolations bounds what is kept: the first ones matter.
const maxViolations = 100

// NewChecker begins a run.
func NewChecker(keys cluster.Keys, b Bounds) *Checker {
	return &Checker{
		keys:    keys,
		bounds:  b,
		history: newHistory(),
		brokers: map[cluster.BrokerID]*brokerFacts{},
		senders: map[cluster.Epoch]sender{},
		known:   map[string]bool{},
		fit:     map[string]time.Duration{},
	}
}

// Violations are what was found so far, in order, each once.
func (c *Checker) Violations() []*Violation { return c.violations }

func (c *Checker) violated(invariant error, at time.Duration, format string, args ...any) {
	v := &Violation{Invariant: invariant, At: at, What: fmt.Sprintf(format, args...)}
	key := invariant.Error() + v.What
	if c.known[key] || len(c.violations) == maxViolations {
		return
	}
	c.known[key] = true
	c.violations = append(c.violations, v)
}

// Edited says that the transaction at rev was made by hand. What it wrote is
// taken as it is, and what follows is held against it.
func (c *Checker) Edited(rev store.Rev) { c.history.edited[rev] = true }

// Faulted says that something was disturbed at that time, or still is.
func (c *Checker) Faulted(at time.Duration) { c.faulted = max(c.faulted, at) }

// Tick checks what must have come about by now. fit are the daemon processes
// that run and can reach etcd. active: one of them acts under the claim that
// etcd holds.
func (c *Checker) Tick(at time.Duration, fit []string, active bool) {
	c.elected(at, fit, active)
	c.converged(at)
}

// elected checks that there is an active controller (I6). It asks for none
// before a process has been fit for long enough, but other faults do not count.
func (c *Checker) elected(at time.Duration, fit []string, active bool) {
	if active {
		c.active = at
	}
	maps.DeleteFunc(c.fit, func(process string, _ time.Duration) bool { return !slices.Contains(fit, process) })
	first := at
	for _, process := range fit {
		if _, known := c.fit[process]; !known {
			c.fit[process] = at
		}
		first = min(first, c.fit[process])
	}
	since := max(c.active, first)
	late := at-since > c.bounds.Elect
	if late {
		c.violated(ErrNoController, at, "none since %v", since.Round(time.Millisecond))
	}
	if late || active {
		c.looks.Elected++
	}
}

// Looks are how often I5 and I6 were looked at so far.
func (c *Checker) Looks() Looks { return c.looks }
