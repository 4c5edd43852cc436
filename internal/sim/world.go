package sim

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/controller"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/internal/unfenced"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// The size of the world.
const (
	daemons     = 3
	brokers     = 5
	replication = 3
)

// traceLength is how many lines before the end of a run are kept.
const traceLength = 60

// Config says which run it is.
type Config struct {
	Seed  uint64
	Quiet bool // without faults
	// Faults are the names of those that may strike; nil: half of all.
	Faults []string
	// Safety parts that are taken out.
	Loop controller.TakenOut
	Gate unfenced.Switch // brokers admit everything
	Lock unfenced.Switch // a handler starts some time after the admission
	// Daemons do not give up before their lease can expire.
	Deadline unfenced.Switch
	// Trace hears each line as it happens; nil: nobody.
	Trace func(line string)
}

// Report is what came of a run.
type Report struct {
	Seed    uint64
	Steps   int
	Virtual time.Duration
	Terms   cluster.Epoch // the last epoch
	Faults  int
	Seen    map[string]int // what happened how often
	Hash    uint64         // of the trace
	// Violations of the invariants; the run ends with the first.
	Violations []*Violation
	Trace      []string // the last lines
}

// World is one run.
type World struct {
	clock
	cfg     Config
	rng     *rand.Rand
	p       profile
	checker *Checker
	keys    cluster.Keys

	etcd    *simEtcd
	daemons [daemons]*simDaemon // the newest incarnation of each
	brokers [brokers]*simBroker
	toEtcd  [daemons]link
	links   [daemons][brokers]link
	control [daemons][brokers]link // of streams of commands

	noise   float64 // the part of messages that suffers
	calm    bool    // no more faults
	calmed  time.Duration
	well    time.Duration // since when all is well; -1: it is not
	faults  int
	topics  int
	doomed  map[string]time.Duration // when the deletion of a topic was asked for, by id
	disks   [brokers]disk
	planted [brokers]disk // strays that were left on purpose, besides

	trapped   bool          // the active is to be killed between two transactions
	torn      [brokers]bool // the next stream to bring the broker a chunk breaks
	unclean   bool          // somebody has asked for settings that allow unclean elections
	bouncing  bool          // a follower is to restart within an AlterPartition
	sightings map[sighting]bool
	left      map[leaver]bool // who was ever to delete a replica that was moved away

	seenTruth *cluster.Image // at some revision

	lines   []string
	hash    hashOf
	births  int // of processes
	spoiled []spoiled
	seen    map[string]int
}

// profile is what a seed decides at once.
type profile struct {
	ttl       time.Duration // of the daemons' leases
	session   time.Duration // of the brokers
	latency   time.Duration
	compare   time.Duration // between two compares; 0: none, so that nothing but the watch brings the image up to date
	blockSize int32
	removals  int // how many deleted topics a daemon remembers
	strategy  election.Strategy
	slice     int // that a daemon takes in at once; 0: as always
	// unreachable is for how long a broker must have answered on no stream to
	// be marked: less than what ships, since all of a run takes a minute.
	unreachable time.Duration
	oneID       bool // all daemons have the same id
	rhythm      time.Duration
	chaos       time.Duration
	faults      []fault
}

func (w *World) draw() profile {
	p := profile{
		ttl:       pick(w, 2*time.Second, 5*time.Second),
		session:   pick(w, 4*time.Second, 10*time.Second),
		latency:   pick(w, 200*time.Microsecond, 2*time.Millisecond, 20*time.Millisecond),
		blockSize: cluster.DefaultBlockSize,
		removals:  pick(w, 1, 3),
		oneID:     w.chance(0.1),
		rhythm:    pick(w, 300*time.Millisecond, time.Second, 3*time.Second, 15*time.Second),
	}
	p.chaos = 20*time.Second + w.upTo(20*time.Second) + 5*p.rhythm
	if w.chance(1. / 3) {
		p.blockSize = pick[int32](w, 1, 3)
		w.seen["seed with small blocks"]++
	}
	for _, f := range allFaults {
		if drawn := w.chance(0.5); w.cfg.Faults == nil && drawn || w.cfg.Faults != nil && !slices.Contains(w.cfg.Faults, f.name) {
			continue
		}
		p.faults = append(p.faults, f)
		if f.name == losesEvent {
			p.compare = 20 * time.Second
		}
	}
	if w.chance(1. / 3) {
		p.strategy = election.Queue
	}
	if w.chance(1. / 3) {
		p.slice = pick(w, 1, 30)
	}
	p.unreachable = pick(w, 3*time.Second, 8*time.Second)
	return p
}

// bounds are the stated times of I5 and I6. Among them are the longest pauses
// of the code: 30 s between attempts at a broker that refused, the TTL and two
// more until a silent watch is replaced, the interval of the compare if an
// event was lost.
func (p *profile) bounds() Bounds {
	return Bounds{Converge: 60 * time.Second, Elect: 3*p.ttl + 3*time.Second + p.compare}
}

// Run plays one seed: faults for a while, then calm until all is well.
func Run(cfg Config) Report {
	w := &World{
		cfg:    cfg,
		rng:    rand.New(rand.NewPCG(cfg.Seed, 1)),
		keys:   cluster.KeysOf("sim"),
		hash:   newHash(),
		seen:   map[string]int{},
		doomed: map[string]time.Duration{},
	}
	w.sightings, w.left = map[sighting]bool{}, map[leaver]bool{}
	w.p = w.draw()
	if cfg.Quiet {
		w.p.faults, w.p.chaos = nil, 10*time.Second
	}
	for i := range w.disks {
		w.disks[i], w.planted[i] = disk{}, disk{}
	}
	w.checker = NewChecker(w.keys, w.p.bounds())
	w.checker.changed = func(t transaction, id cluster.PartitionID, old, r *pb.PartitionRecord) {
		w.checkMembers(t, id, old, r)
		w.checkLeavers(t, id, old, r)
	}
	w.tracef("seed %d: %v, ttl %v session %v latency %v block size %d, slices of %d, a fault in %v for %v",
		cfg.Seed, w.p.strategy, w.p.ttl, w.p.session, w.p.latency, w.p.blockSize, w.p.slice, w.p.rhythm, w.p.chaos)
	w.begin()
	for !w.over() {
		w.step()
	}
	for _, d := range w.daemons {
		if !d.dead {
			d.account()
		}
	}
	w.seen["look at I6"] = w.checker.Looks().Elected // I5 is looked at by the settling too
	return Report{
		Seed: cfg.Seed, Steps: w.steps, Virtual: w.now, Terms: w.checker.history.epoch, Faults: w.faults, Seen: w.seen,
		Hash: w.hash.Sum64(), Violations: w.checker.Violations(), Trace: w.lines,
	}
}

func (w *World) begin() {
	w.etcd = newEtcd(w)
	for i := range w.daemons {
		w.after(w.upTo(time.Second), func() { w.startDaemon(i) })
	}
	for i := range w.brokers {
		w.after(w.upTo(time.Second), func() { w.startBroker(i) })
	}
	for range 2 {
		w.after(time.Second+w.upTo(4*time.Second), w.createTopic)
	}
	if w.chance(0.3) {
		w.operate()
	}
	w.after(3*time.Second, w.strike)
	w.after(3*time.Second+w.p.chaos, w.calmDown)
	w.watchOver()
}

// watchOver tells the checker who is active, now and then.
func (w *World) watchOver() {
	var fit []string
	for _, d := range w.daemons {
		if d != nil && d.runs() && d.reachesEtcd() {
			fit = append(fit, d.name)
		}
	}
	w.checker.Tick(w.now, fit, w.activeDaemon() != nil)
	w.after(100*time.Millisecond, w.watchOver)
}

// over reports whether the run has ended: with the first violation, or when
// all is well after the calm.
func (w *World) over() bool {
	if len(w.checker.violations) > 0 {
		return true
	}
	return w.calm && w.settled()
}

// blame is violated for what only the simulation can see.
func (w *World) blame(invariant error, format string, args ...any) {
	w.checker.violated(invariant, w.now, format, args...)
}

func (w *World) disturbed() { w.checker.Faulted(w.now) }

// wallMs is what clocks on walls show.
func (w *World) wallMs() int64 { return 1_700_000_000_000 + w.now.Milliseconds() }

func (w *World) chance(p float64) bool { return w.rng.Float64() < p }

// upTo is a time below d.
func (w *World) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d) + 1)) }

func pick[T any](w *World, of ...T) T { return of[w.rng.IntN(len(of))] }

// hashOf is the hash of the trace so far.
type hashOf interface {
	Write([]byte) (int, error)
	Sum64() uint64
}

func newHash() hashOf { return fnv.New64a() }

// tracef notes what happened.
func (w *World) tracef(format string, args ...any) {
	line := fmt.Sprintf("%11.6f "+format, append([]any{w.now.Seconds()}, args...)...)
	_, _ = w.hash.Write([]byte(line))
	if w.cfg.Trace != nil {
		w.cfg.Trace(line)
	}
	if len(w.lines) >= 2*traceLength {
		w.lines = append(w.lines[:0], w.lines[traceLength:]...)
	}
	w.lines = append(w.lines, line)
}

// Broken is the invariant that broke first, nil if none did.
func (r *Report) Broken() error {
	if len(r.Violations) == 0 {
		return nil
	}
	return errors.Unwrap(r.Violations[0])
}
