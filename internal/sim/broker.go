package sim

import (
	"fmt"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// simBroker is one process of a broker: a gate, and what the SDK does around
// it.
type simBroker struct {
	process
	id      cluster.BrokerID
	address string
	gate    *fencing.Gate
	streams []*stream
	work    map[cluster.PartitionID]*work
	done    map[cluster.PartitionID]cluster.LeaderEpoch // of the handlers that did not fail
	broken  map[cluster.PartitionID]bool                // storage that fails
	started time.Duration
	foreign bool // its first hello is from another history

	daemon   int // to ask next
	joined   bool
	lease    int64
	attempts int  // failures in a row
	altering bool // an AlterPartition is on its way
}

// Pauses and limits of the broker SDK.
const (
	minPause     = 100 * time.Millisecond
	maxPause     = 2 * time.Second
	alterTimeout = 5 * time.Second
)

func (w *World) startBroker(i int) {
	if old := w.brokers[i]; old != nil && !old.dead {
		return
	}
	w.births++
	b := &simBroker{
		process: process{w: w, name: fmt.Sprintf("b%d#%d", i, w.births)},
		id:      cluster.BrokerID(i),
		address: fmt.Sprintf("b%d", i),
		gate:    fencing.NewGate(cluster.BrokerID(i), ""),
		work:    map[cluster.PartitionID]*work{},
		done:    map[cluster.PartitionID]cluster.LeaderEpoch{},
		broken:  map[cluster.PartitionID]bool{},
		daemon:  w.rng.IntN(daemons),
		started: w.now,
	}
	if w.chance(0.1) {
		b.address = b.name
	}
	b.gate.TakeOut(w.cfg.Gate)
	b.find()
	w.brokers[i] = b
	w.checker.Started(b.id)
	w.tracef("%s: starts", b.name)
	w.noteGarbled("broker started over its garbled key", fmt.Sprintf("brokers/%d", i))
	w.noteGarbled("broker started over the garbled key of its node", fmt.Sprintf("nodes/%d", i))
	b.register()
	b.after(w.upTo(time.Second), nil, b.fetch)
}

func (b *simBroker) kill() {
	b.dead = true
	b.w.tracef("%s: killed", b.name)
	for _, s := range b.streams {
		s.brokerGone()
	}
}

// toDaemon makes a call at the daemon whose turn it is.
func (b *simBroker) toDaemon(timeout time.Duration, serve func(*simDaemon, *rpcCall), done func(any, error)) {
	b.w.ask(&b.process, &b.w.links[b.daemon][b.id], b.daemon, timeout, serve, done)
}

func (b *simBroker) register() {
	hello := b.gate.Hello()
	r := &pb.RegisterRequest{
		ClusterUuid:     hello.GetClusterUuid(),
		BrokerId:        hello.GetBrokerId(),
		NodeUuid:        fmt.Sprintf("node %d", b.id),
		Nonce:           b.name,
		First:           !b.joined,
		ControlAddress:  b.address,
		DeathProbe:      true,
		SessionTtlMs:    b.w.p.session.Milliseconds(),
		ControllerEpoch: hello.GetControllerEpoch(),
	}
	timeout := min(max(b.w.p.session/2, 2*time.Second), 5*time.Second)
	b.toDaemon(timeout, func(d *simDaemon, c *rpcCall) { d.register(c, r) }, func(resp any, err error) {
		if err != nil {
			b.failed(err, b.register)
			return
		}
		b.registered(resp.(*pb.RegisterResponse))
	})
}

func (b *simBroker) registered(r *pb.RegisterResponse) {
	if err := b.gate.Registered(r.GetClusterUuid(), cluster.BrokerEpoch(r.GetBrokerEpoch())); err != nil {
		b.failed(err, b.register)
		return
	}
	b.gate.Adopt(cluster.Epoch(r.GetControllerEpoch()))
	b.w.checker.Registered(b.id, cluster.BrokerEpoch(r.GetBrokerEpoch()))
	b.w.tracef("%s: registered, broker epoch %d", b.name, r.GetBrokerEpoch())
	b.joined, b.lease, b.attempts = true, r.GetLease(), 0
	b.renewLater()
}

func (b *simBroker) renewLater() { b.after(b.w.p.session/4, nil, b.renew) }

func (b *simBroker) renew() {
	hello := b.gate.Hello()
	r := &pb.RenewSessionRequest{
		ClusterUuid: hello.GetClusterUuid(),
		BrokerId:    hello.GetBrokerId(),
		BrokerEpoch: hello.GetBrokerEpoch(),
		Lease:       b.lease,
		Nonce:       b.name,
	}
	timeout := min(max(b.w.p.session/4, 500*time.Millisecond), 3*time.Second)
	b.toDaemon(timeout, func(d *simDaemon, c *rpcCall) { d.renew(c, r) }, func(resp any, err error) {
		switch {
		case err == nil:
			b.gate.Adopt(cluster.Epoch(resp.(*pb.RenewSessionResponse).GetControllerEpoch()))
			b.attempts = 0
			b.renewLater()
		case rpc.ReasonOf(err) == cluster.StaleBrokerEpoch:
			b.w.tracef("%s: session is gone", b.name)
			b.register()
		default:
			b.failed(err, b.renew)
		}
	})
}

// failed tries again at the next daemon, or ends the process if it has been
// replaced. Somebody starts it again.
func (b *simBroker) failed(err error, again func()) {
	w := b.w
	if rpc.ReasonOf(err) == cluster.Replaced {
		w.tracef("%s: stops: %v", b.name, err)
		w.disturbed()
		b.kill()
		w.after(w.upTo(3*time.Second), func() { w.startBroker(int(b.id)) })
		return
	}
	b.daemon = (b.daemon + 1) % daemons
	pause := min(minPause<<min(b.attempts, 10), maxPause)
	b.attempts++
	b.after(pause/2+w.upTo(pause/2), nil, again)
}
