package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/controller"
	"github.com/controllerd/controllerd/election"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

// simDaemon is one process of a daemon: a Loop, and what Run does around it.
type simDaemon struct {
	process
	index    int
	id       string
	endpoint string
	loop     *controller.Loop
	uptime   time.Duration // its clock was at 0
	quiet    time.Duration

	inbox    []controller.Event
	due      bool  // a step is
	alarm    int64 // of the newest wake
	cancels  []func()
	rev      store.Rev
	watch    *watch
	streams  map[rpc.StreamID]*stream
	probes   map[rpc.StreamID]*refusals
	attends  election.Peer
	refused  *refusals // by whom it attends
	requests int64
	replies  map[int64]func(rpc.Answer)
	waiters  []waiter
	calls    []*rpcCall                     // that it serves
	answered map[cluster.PartitionID]epochs // the highest that it told a leader
}

// waiter waits for something in the image.
type waiter struct {
	until time.Duration
	cond  func(rpc.View) bool
	fn    func()
}

func (w *World) startDaemon(i int) {
	if old := w.daemons[i]; old != nil && !old.dead {
		return
	}
	w.births++
	id := fmt.Sprintf("c%d", i+1)
	d := &simDaemon{
		process: process{w: w, name: fmt.Sprintf("%s#%d", id, w.births)},
		index:   i, id: id, endpoint: id,
		uptime:   w.now - w.upTo(time.Hour),
		streams:  map[rpc.StreamID]*stream{},
		probes:   map[rpc.StreamID]*refusals{},
		replies:  map[int64]func(rpc.Answer){},
		answered: map[cluster.PartitionID]epochs{},
	}
	if w.p.oneID {
		d.id = "c"
	}
	random := rand.New(rand.NewPCG(w.rng.Uint64(), 2))
	d.loop = controller.NewLoop(controller.LoopConfig{
		Keys: w.keys,
		Election: election.Config{
			Self:        &pb.ControllerRecord{Id: d.id, Nonce: d.name, Endpoint: d.endpoint, StartedMs: w.wallMs()},
			TTL:         w.p.ttl,
			ClusterUUID: "cluster of " + d.name,
			Deadline:    w.cfg.Deadline,
			Rand:        random,
			Strategy:    w.p.strategy,
			DeathProbe:  true,
		},
		Rand:        random,
		Slice:       w.p.slice,
		Unreachable: w.p.unreachable,
		TakenOut:    w.cfg.Loop,
		Removals:    w.p.removals,
	})
	w.daemons[i] = d
	w.tracef("%s: starts", d.name)
	d.post(nil)
	d.follow()
	d.compare()
}

// kill ends the process. What it has sent travels on.
func (d *simDaemon) kill() {
	w := d.w
	d.dead = true
	d.account()
	w.tracef("%s: ends", d.name)
	if d.watch != nil {
		w.etcd.drop(d.watch)
	}
	for _, s := range d.openStreams() {
		s.daemonGone()
	}
	for _, c := range slices.Clone(d.calls) {
		c.serverGone()
	}
	if !d.loop.Done() { // else it has said so
		w.died(d)
	}
	if w.calm { // it was told to stop before
		w.after(time.Second, func() { w.startDaemon(d.index) })
	}
}

// account adds what only the loop has counted.
func (d *simDaemon) account() {
	push, seen := &d.loop.Pusher().Stats, d.w.seen
	seen["missed change that was healed"] += int(d.loop.Stats.Healed)
	seen["stream that began with everything"] += int(push.FullSyncs)
	seen["stream that went on"] += int(push.Resumed)
	seen["resume point of another history refused"] += int(push.Foreign)
	seen["resume point from before what is remembered refused"] += int(push.Forgotten)
	seen["broker marked as unreachable"] += int(d.loop.Stats.Unreachable)
	seen["term cut off"] += int(d.loop.Stats.CutOff)
	seen["proof of an active's death"] += int(d.loop.Candidate().Proofs.Proven)
	seen["proof of an active's death, damped"] += int(d.loop.Candidate().Proofs.Damped)
	seen["proof of a broker's death"] += int(push.DeathsProven)
	seen["proof of a broker's death, damped"] += int(push.DeathsDamped)
}

// clock is the daemon's monotonic clock.
func (d *simDaemon) clock() time.Duration { return d.w.now - d.uptime }

// mayAct is asked right before a call or a command leaves.
func (d *simDaemon) mayAct() bool { return d.clock() < d.quiet }

// holdsSeat reports whether it acts under the claim that etcd holds.
func (d *simDaemon) holdsSeat() bool {
	claim, active := d.loop.Active()
	read, err := d.w.etcd.model.Get(d.w.keys.Controller())
	return active && err == nil && len(read.KVs) == 1 && read.KVs[0].ModRev == claim.Rev
}

// reachesEtcd reports whether nothing keeps it from calling and watching an etcd
// that serves.
func (d *simDaemon) reachesEtcd() bool {
	w := d.w
	return w.toEtcd[d.index].open() && w.noise == 0 && !w.etcd.model.NoSpace && !w.etcd.frozen && !w.headless() &&
		d.watch != nil && !d.watch.ended && *d.watch.pipe.flow == open
}

// post puts an event into the queue; nil only wakes the loop.
func (d *simDaemon) post(ev controller.Event) {
	if ev != nil {
		d.inbox = append(d.inbox, ev)
	}
	if !d.due {
		d.due = true
		d.after(d.w.upTo(time.Millisecond), nil, d.step)
	}
}

// step is one turn of the goroutine that owns the loop.
func (d *simDaemon) step() {
	events := d.inbox
	d.due, d.inbox = false, nil
	actions := d.loop.Step(election.Now{Mono: d.clock(), WallMs: d.w.wallMs()}, events...)
	d.quiet = d.loop.Quiet()
	for _, a := range actions {
		d.do(a)
	}
	if d.loop.Whole() {
		d.look()
	}
	if d.loop.Done() {
		d.kill()
		return
	}
	d.alarm++
	alarm := d.alarm
	d.after(max(d.loop.Wake()-d.clock(), time.Millisecond), nil, func() {
		if alarm == d.alarm {
			d.post(nil)
		}
	})
}

// leave lets something go out. If a freeze comes in between, the check whether
// it may may have been made before or after it.
func (d *simDaemon) leave(l *lane, fn func(allowed bool)) {
	checked := d.w.chance(0.3)
	d.after(d.w.upTo(200*time.Microsecond), l, func() {
		if !checked && d.mayAct() {
			d.checkLease()
		}
		fn(checked || d.mayAct())
	})
}

func (d *simDaemon) do(a controller.Action) {
	switch a := a.(type) {
	case controller.Commit:
		d.leave(nil, func(allowed bool) { d.commit(a, allowed) })
	case controller.Read:
		d.get(a.Keys, func(read store.Snapshot, err error) {
			d.post(controller.ReadBack{Chunk: a.Chunk, Read: read, Err: err})
		})
	case controller.Fetch:
		d.get(a.Keys, func(read store.Snapshot, err error) {
			d.post(controller.Fetched{Keys: a.Keys, Read: read, Err: err})
		})
	case controller.List:
		d.list(func() {})
	case controller.Elect:
		d.elect(a.Action)
	case controller.Push:
		d.push(a.Action)
	case controller.Answer:
		if reply := d.replies[a.ID]; reply != nil {
			delete(d.replies, a.ID)
			reply(a.Answer)
		}
	}
}

// await calls fn once cond holds, at once or after a step.
func (d *simDaemon) await(limit time.Duration, cond func(rpc.View) bool, fn func()) {
	d.waiters = append(d.waiters, waiter{d.w.now + limit, cond, fn})
	d.post(nil)
}

func (d *simDaemon) look() {
	waiting := d.waiters
	d.waiters = nil
	view := d.loop.View()
	for _, wt := range waiting {
		switch {
		case d.w.now > wt.until: // whoever waited has given up
		case wt.cond(view):
			wt.fn()
		default:
			d.waiters = append(d.waiters, wt)
		}
	}
}

// submit hands a request to the loop.
func (d *simDaemon) submit(r rpc.Request, reply func(rpc.Answer)) {
	d.requests++
	d.replies[d.requests] = reply
	d.post(controller.Requested{ID: d.requests, Request: r})
}

// activeDaemon is the one that believes to be active, if any.
func (w *World) activeDaemon() *simDaemon {
	for _, d := range w.daemons {
		if d != nil && d.runs() && d.holdsSeat() {
			return d
		}
	}
	return nil
}

// truth is what etcd holds, seen without any delay. It must not be changed.
func (w *World) truth() *cluster.Image {
	if w.seenTruth != nil && w.seenTruth.Rev == w.etcd.model.Rev() {
		return w.seenTruth
	}
	im := cluster.NewImage(w.keys)
	list := w.etcd.model.List(w.keys.Prefix(), false)
	b := store.Batch{Rev: list.Rev, Reset: true}
	for _, kv := range list.KVs {
		b.Changes = append(b.Changes, store.Change{KV: kv})
	}
	im.Apply(b)
	w.seenTruth = im
	return im
}
