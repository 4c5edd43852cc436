package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

// Defaults and limits of a Config.
const (
	DefaultLeaseTTL = 5 * time.Second
	MinLeaseTTL     = 2 * time.Second // what etcd grants at its default timings
	CompareInterval = 5 * time.Minute
	leaveTimeout    = 4 * time.Second // for giving up in order
	problemInterval = time.Second     // between looks at what to log
	queueLength     = 4096
	maxBatch        = 256 // events that are taken in at once
)

var daemonID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,255}$`)

// ErrStopped says that the daemon has ended.
var ErrStopped = errors.New("controller: stopped")

// Config describes one daemon.
type Config struct {
	Store store.Store
	// Cluster is the name under which the keys are kept.
	Cluster string
	// ID names the daemon to people. Two daemons with one id are told apart.
	ID string
	// Endpoint is where other daemons and brokers reach its gRPC services.
	Endpoint string
	Version  string
	// LeaseTTL is how long the seat outlives the last renewal; at least
	// MinLeaseTTL, 0 means DefaultLeaseTTL.
	LeaseTTL time.Duration
	// Strategy decides who takes an empty seat; default: election.Race.
	Strategy election.Strategy
	// Compare is the interval of the check for changes that the watch has
	// missed; 0 means CompareInterval.
	Compare time.Duration
	// Limits of what is created. nil: DefaultLimits.
	Limits *Limits
	// Unreachable is for how long a live broker must have answered on no stream
	// of commands to be marked as unreachable; 0 means rpc.UnreachableAfter.
	Unreachable time.Duration
	// NoDeathProbe turns proofs of death off: that of the active controller, to
	// which a standby holds a connection in plain text, and those of brokers.
	NoDeathProbe bool
	// DialOptions are for the connections to brokers; none means plain text.
	DialOptions []grpc.DialOption
	Logger      *slog.Logger
	TakenOut    TakenOut
}

// Validate reports every fault of the configuration.
func (c Config) Validate() error {
	var faults []error
	if c.Store == nil {
		faults = append(faults, errors.New("no store"))
	}
	if err := cluster.ValidateName(c.Cluster); err != nil {
		faults = append(faults, err)
	}
	if !daemonID.MatchString(c.ID) {
		faults = append(faults, fmt.Errorf("id %q: want 1 to 255 of letters, digits, '.', '_' and '-'", c.ID))
	}
	if c.Endpoint == "" || !utf8.ValidString(c.Endpoint) {
		faults = append(faults, fmt.Errorf("endpoint %q is empty or not UTF-8", c.Endpoint))
	}
	if c.LeaseTTL != 0 && c.LeaseTTL < MinLeaseTTL {
		faults = append(faults, fmt.Errorf("lease TTL %v is below %v", c.LeaseTTL, MinLeaseTTL))
	}
	if c.Limits != nil {
		faults = append(faults, c.Limits.Validate())
	}
	return errors.Join(faults...)
}

// Controller is one daemon. Run drives it.
type Controller struct {
	cfg     Config
	loop    *Loop
	log     *slog.Logger
	queue   chan item
	ended   chan struct{}
	quiet   atomic.Int64 // Loop.Quiet, for goroutines that send
	claimed atomic.Int64 // the epoch under which it is active, with quiet
	stepped atomic.Int64 // when the owner ended its last step
	// snapshot is what the owner has published last.
	snapshot atomic.Pointer[Snapshot]
	streams  *rpc.Streams
	wg       sync.WaitGroup

	// Owned by the goroutine of the loop.
	termCtx  context.Context
	termEnd  context.CancelFunc
	unattend context.CancelFunc // of the active controller
	replies  map[int64]chan rpc.Answer
	requests int64
	waiters  []*waiter
	owner    OwnerStats
	problems map[string]bool // that were logged
	looked   time.Duration
}

// item is one entry of the queue.
type item struct {
	event   Event
	request rpc.Request
	reply   chan rpc.Answer
	waiter  *waiter
	posted  time.Duration
}

// New makes a daemon. Its nonce is drawn here: one Controller is one process
// to the others.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure controller: %w", err)
	}
	if cfg.LeaseTTL == 0 {
		cfg.LeaseTTL = DefaultLeaseTTL
	}
	if cfg.Compare == 0 {
		cfg.Compare = CompareInterval
	}
	if cfg.Limits == nil {
		cfg.Limits = new(DefaultLimits)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	c := &Controller{
		cfg:     cfg,
		log:     cfg.Logger.With("controller", cfg.ID),
		queue:   make(chan item, queueLength),
		ended:   make(chan struct{}),
		replies: map[int64]chan rpc.Answer{},

		unattend: func() {},
	}
	c.snapshot.Store(&Snapshot{})
	c.stepped.Store(int64(election.Clock()))
	c.loop = NewLoop(LoopConfig{
		Keys: cluster.KeysOf(cfg.Cluster),
		Election: election.Config{
			Self: &pb.ControllerRecord{
				Id: cfg.ID, Nonce: newUUID(), Endpoint: cfg.Endpoint, StartedMs: time.Now().UnixMilli(),
			},
			Version: cfg.Version, TTL: cfg.LeaseTTL, ClusterUUID: newUUID(), Rand: random,
			Strategy: cfg.Strategy, DeathProbe: !cfg.NoDeathProbe,
		},
		Rand:        random,
		Limits:      *cfg.Limits,
		Unreachable: cfg.Unreachable,
		TakenOut:    cfg.TakenOut,
	})
	return c, nil
}

// newUUID draws a random UUID, version 4.
func newUUID() string {
	hi, lo := rand.Uint64(), rand.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", hi>>32, hi>>16&0xffff, hi&0xfff, lo>>48&0x3fff|0x8000, lo&0xffffffffffff)
}

// Store is where the daemon keeps its state.
func (c *Controller) Store() store.Store { return c.cfg.Store }

// Run drives the daemon until the context ends; then it gives up in order what
// it holds, within 4 s even if the store is away.
func (c *Controller) Run(ctx context.Context) { c.RunOrKill(ctx, context.Background()) }

// RunOrKill is Run that, if killed ends first, lets everything fall as a
// killed process would: nothing is resigned, deleted or revoked. For tests and
// demonstrations.
func (c *Controller) RunOrKill(ctx, killed context.Context) {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	c.streams = rpc.NewStreams(func(ev rpc.PushEvent) { c.post(inner, Pushed{ev}) }, c.mayAct, c.cfg.DialOptions...)
	c.termCtx, c.termEnd = context.WithCancel(inner)
	c.looked = election.Clock() // what is so at first is not worth a word
	c.wg.Go(func() { c.follow(inner) })
	c.wg.Go(func() { c.compare(inner) })
	c.own(ctx, killed, inner)
	c.quiet.Store(0)
	c.snapshot.Store(&Snapshot{At: election.Clock(), Unfit: []string{"the daemon has stopped"}})
	close(c.ended)
	cancel()
	c.wg.Wait()
	c.streams.Wait()
}

// mayAct reports whether the claim may be acted on at this very moment.
func (c *Controller) mayAct() bool { return int64(election.Clock()) < c.quiet.Load() }

// own is the goroutine that owns the loop.
func (c *Controller) own(ctx, killed, inner context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	leave, giveUp := ctx.Done(), (<-chan time.Time)(nil)
	for {
		var events []Event
		queue := c.queue
		if c.loop.Backlog() {
			queue = nil
		}
		select {
		case <-killed.Done():
			return
		case <-leave:
			leave, giveUp = nil, time.After(leaveTimeout)
			events = append(events, Elected{election.Leave{Reason: "the daemon was told to stop"}})
		case <-giveUp:
			c.log.Warn("giving up in order took too long, the lease will expire")
			return
		case it := <-queue:
			events = c.takeIn(it, events)
			for n := len(c.queue); n > 0 && len(events) < maxBatch; n-- {
				events = c.takeIn(<-c.queue, events)
			}
		case <-timer.C:
		}
		begun := time.Now()
		now := election.Now{Mono: election.Clock(), WallMs: begun.UnixMilli()}
		actions := c.loop.Step(now, events...)
		c.stand()
		for _, a := range actions {
			c.do(inner, a)
		}
		more := c.notify()
		c.logProblems(now.Mono)
		c.loop.measure(election.Clock())
		c.publish(election.Clock())
		busy := time.Since(begun)
		c.took(busy)
		c.owner.StepTime.Observe(busy)
		if c.loop.Done() {
			return
		}
		if more || c.loop.Unfinished() {
			timer.Reset(0)
		} else {
			timer.Reset(max(c.loop.Wake()-election.Clock(), time.Millisecond))
		}
	}
}

// logProblems says in the log when a problem appears and when it goes.
func (c *Controller) logProblems(now time.Duration) {
	if now-c.looked < problemInterval {
		return
	}
	c.looked = now
	current := map[string]bool{}
	for _, p := range c.loop.problems() {
		current[p] = true
		if !c.problems[p] {
			c.log.Warn("problem", "problem", p)
		}
	}
	for p := range c.problems {
		if !current[p] {
			c.log.Info("problem is gone", "problem", p)
		}
	}
	c.problems = current
}

// takeIn turns an entry of the queue into events.
func (c *Controller) takeIn(it item, events []Event) []Event {
	c.owner.QueueTime.Observe(election.Clock() - it.posted)
	switch {
	case it.event != nil:
		return append(events, it.event)
	case it.request != nil:
		c.requests++
		c.replies[c.requests] = it.reply
		return append(events, Requested{ID: c.requests, Request: it.request})
	case it.waiter != nil:
		c.waiters = append(c.waiters, it.waiter)
	}
	return events
}

// post puts an event into the queue; it waits while the queue is full.
func (c *Controller) post(ctx context.Context, ev Event) {
	select {
	case c.queue <- item{event: ev, posted: election.Clock()}:
	case <-ctx.Done():
	}
}

// do starts what the loop wants done. Each call of the store is a goroutine.
func (c *Controller) do(ctx context.Context, a Action) {
	switch a := a.(type) {
	case Commit:
		term := c.termCtx
		c.wg.Go(func() { c.commit(ctx, term, a) })
	case Read:
		c.call(ctx, func(ctx context.Context) Event {
			read, err := c.cfg.Store.Get(ctx, a.Keys...)
			return ReadBack{Chunk: a.Chunk, Read: read, Err: err}
		})
	case Fetch:
		c.log.Warn("the watch may have missed changes, reading", "keys", len(a.Keys), "among_them", a.Keys[:min(len(a.Keys), maxNamed)])
		c.call(ctx, func(ctx context.Context) Event {
			read, err := c.cfg.Store.Get(ctx, a.Keys...)
			return Fetched{Keys: a.Keys, Read: read, Err: err}
		})
	case List:
		c.wg.Go(func() { c.list(ctx) })
	case Elect:
		c.elect(ctx, a.Action)
	case Push:
		if dead, ok := a.Action.(rpc.Proven); ok {
			c.log.Warn("a broker is gone: its connection broke, and its address refuses new ones",
				"broker", int32(dead.Broker), "broker_epoch", int64(dead.Epoch), "address", dead.Address)
		}
		c.streams.Do(ctx, a.Action)
	case Answer:
		if reply := c.replies[a.ID]; reply != nil {
			delete(c.replies, a.ID)
			reply <- a.Answer
		}
	}
}

func (c *Controller) call(ctx context.Context, fn func(context.Context) Event) {
	c.wg.Go(func() {
		limited, cancel := context.WithTimeout(ctx, election.CallTimeout)
		defer cancel()
		c.post(ctx, fn(limited))
	})
}

// commit runs one transaction of the term, unless the claim is in doubt by now.
func (c *Controller) commit(ctx, term context.Context, a Commit) {
	ev := Committed{Chunk: a.Chunk, Err: rpc.ErrQuiet}
	if c.mayAct() {
		limited, cancel := context.WithTimeout(term, election.CallTimeout)
		defer cancel()
		ev.Result, ev.Err = c.cfg.Store.Commit(limited, a.Txn)
	}
	c.post(ctx, ev)
}

func (c *Controller) elect(ctx context.Context, a election.Action) {
	switch a := a.(type) {
	case election.Begin:
		c.termEnd()
		c.termCtx, c.termEnd = context.WithCancel(ctx)
		c.log.Info("active", "epoch", a.Claim.Epoch, "revision", a.Claim.Rev)
	case election.Stop:
		if !errors.Is(a.Cause, election.ErrResigned) { // else what is on its way may end
			c.termEnd()
		}
		c.log.Warn("not active any more", "epoch", a.Claim.Epoch, "cause", a.Cause, "reason", a.End.Reason)
	case election.Attend:
		c.attend(ctx, a.Peer)
	default:
		election.Do(ctx, c.cfg.Store, a, func(fn func()) { c.wg.Go(fn) }, func(ev election.Event) { c.post(ctx, Elected{ev}) })
	}
}

// follow feeds the loop with the one watch.
func (c *Controller) follow(ctx context.Context) {
	prefix := c.loop.im.Keys.Prefix()
	_ = election.Follow(ctx, c.cfg.Store, prefix, c.cfg.LeaseTTL, c.log, func(b store.Batch) { c.post(ctx, Watched{b}) })
}

// compare feeds the loop with lists of keys and mod revisions.
func (c *Controller) compare(ctx context.Context) {
	tick := time.NewTicker(c.cfg.Compare)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.list(ctx)
	}
}

func (c *Controller) list(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, 10*election.CallTimeout)
	defer cancel()
	if list, err := c.cfg.Store.List(limited, c.loop.im.Keys.Prefix(), true); err == nil {
		c.post(ctx, Listed{list})
	}
}

// Submit hands a request to the active controller, if this daemon is it, and
// waits for the answer.
func (c *Controller) Submit(ctx context.Context, r rpc.Request) (any, error) {
	reply := make(chan rpc.Answer, 1)
	select {
	case c.queue <- item{request: r, reply: reply, posted: election.Clock()}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.ended:
		return nil, ErrStopped
	}
	select {
	case a := <-reply:
		return a.Response, a.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.ended:
		return nil, ErrStopped
	}
}
