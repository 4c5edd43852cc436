package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"

	"google.golang.org/grpc"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
)

// Broker is a broker that runs: one process, one nonce.
type Broker struct {
	cfg    Config
	log    *slog.Logger
	nonce  string
	server *grpc.Server
	pool   *pool

	ctx        context.Context // of everything but the session; ends last
	end        context.CancelCauseFunc
	session    context.CancelCauseFunc // ends the session
	work       sync.WaitGroup          // every goroutine but the one that waits for them
	registered chan struct{}           // closed by the first registration
	done       chan struct{}           // closed when everything has stopped
	err        error                   // valid when done is closed

	// mu makes one step of a verdict and of what it starts. It is never held
	// while something can block.
	mu        sync.Mutex
	gate      *fencing.Gate
	addresses addresses
	workers   workers
	ready     []cluster.PartitionID // whose workers wait for a goroutine, in order
	coming    bool                  // one is on its way
	metadata  metadata
	streams   map[*outbox]struct{} // that are open
	again     chan struct{}        // closed when all of them have to end
	proposals proposals
	measured  measured
	noStorage bool // some storage has failed, of which it is not known what it holds
}

// Run runs a broker until the context ends; see Wait for what it returns.
func Run(ctx context.Context, cfg Config) error {
	b, err := Start(ctx, cfg)
	if err != nil {
		return err
	}
	return b.Wait()
}

// Start listens on the control address and runs a broker until the context
// ends. It does not wait for the registration. Errors: a config that is not
// valid, an address that cannot be listened on.
func Start(ctx context.Context, cfg Config) (*Broker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", cfg.ControlListen)
	if err != nil {
		return nil, fmt.Errorf("listen for commands: %w", err)
	}
	b, err := StartOn(ctx, l, cfg)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return b, nil
}

// StartOn is Start with a control listener of the caller, which belongs to the
// broker if there is no error. ControlListen is ignored.
func StartOn(ctx context.Context, l net.Listener, cfg Config) (*Broker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	control := cfg.AdvertiseControl
	if control == "" {
		control = l.Addr().String()
		if a, err := netip.ParseAddrPort(control); err == nil && a.Addr().IsUnspecified() {
			return nil, fmt.Errorf("broker config: AdvertiseControl is empty, and nobody can dial %s", control)
		}
	}
	b := &Broker{
		cfg:        cfg,
		log:        cfg.Logger.With("broker", int32(cfg.ID)),
		nonce:      rand.Text(),
		addresses:  addresses{control: control, endpoints: cfg.Endpoints, probe: cfg.AdvertiseControl == ""},
		pool:       newPool(cfg),
		registered: make(chan struct{}),
		done:       make(chan struct{}),
		gate:       fencing.NewGate(cfg.ID, cfg.ClusterUUID),
		workers:    workers{},
		streams:    map[*outbox]struct{}{},
		again:      make(chan struct{}),
	}
	b.gate.TakeOut(cfg.Unfenced)
	b.gate.Found(cfg.Found)
	b.ctx, b.end = context.WithCancelCause(context.WithoutCancel(ctx))
	session, end := context.WithCancelCause(ctx)
	b.session = end
	b.server = newControlServer(b)
	b.work.Go(func() { b.serve(l) })
	go b.run(session)
	return b, nil
}

// run keeps the session until its context ends or it is lost for good, and
// then stops everything else.
func (b *Broker) run(ctx context.Context) {
	defer close(b.done)
	kept, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- b.keepSession(kept) }()
	lost := false
	select {
	case b.err = <-ended:
		lost = true
	case <-ctx.Done():
	}
	cause := context.Cause(ctx)
	orderly := !lost && !errors.Is(cause, ErrKilled) && !errors.Is(cause, errServe)
	if orderly {
		b.shutDown() // commands are obeyed meanwhile, and the session is kept
	}
	end()
	switch {
	case lost:
	case !orderly:
		b.err = cause
		<-ended
	default:
		if b.err = <-ended; b.err == nil {
			b.unregister()
		}
	}
	b.lostSession(true)
	b.stop()
	b.work.Wait()
}

// stop ends what serves commands. Streams end without an answer to what is
// still under way; the broker is no longer in the cluster.
func (b *Broker) stop() {
	b.session(ErrClosed)
	b.mu.Lock() // who starts a goroutine under it sees the end, or is waited for
	b.end(ErrClosed)
	b.mu.Unlock()
	b.server.Stop()
	b.pool.close()
}

// Wait returns when everything has stopped, handlers included: nil if the
// context of Start ended and the broker has left in order, or the reason why
// it could not go on.
func (b *Broker) Wait() error {
	<-b.done
	return b.err
}

// Done is closed when everything has stopped: Wait will not block.
func (b *Broker) Done() <-chan struct{} { return b.done }

// Kill ends the broker as a crash would: connections break, the session is left
// to expire. Handlers' contexts end; Wait returns when the handlers have.
func (b *Broker) Kill() {
	b.session(ErrKilled)
	b.stop()
}

// Registered is closed when the broker is registered for the first time.
func (b *Broker) Registered() <-chan struct{} { return b.registered }

// Epoch is the broker epoch, 0 before the first registration.
func (b *Broker) Epoch() cluster.BrokerEpoch {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gate.BrokerEpoch()
}

// ControllerEpoch is the highest controller epoch that the broker heard of.
func (b *Broker) ControllerEpoch() cluster.Epoch {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gate.ControllerEpoch()
}

// ClusterUUID is the cluster that the broker belongs to, empty until known.
func (b *Broker) ClusterUUID() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gate.ClusterUUID()
}

// Partition is the newest state of a partition hosted here. Its handler may
// still run.
func (b *Broker) Partition(p cluster.PartitionID) (PartitionState, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gate.Replica(p)
}

// Partitions are those hosted here, in order.
func (b *Broker) Partitions() []cluster.PartitionID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gate.Replicas()
}

// Metadata is the newest state heard of a partition anywhere in the cluster.
func (b *Broker) Metadata(p cluster.PartitionID) (PartitionState, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gate.Metadata(p)
}

// Settings are those of the whole cluster that somebody has set, by name; nil
// before the broker has been told. The map must not be changed.
func (b *Broker) Settings() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gate.Settings()
}

// TopicConfig is what a topic has set of its own, which wins over Settings; nil if
// that is nothing, or not known. The map must not be changed.
func (b *Broker) TopicConfig(id cluster.TopicID) map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gate.TopicConfig(id)
}

// Live are the live brokers by id. The slice must not be changed.
func (b *Broker) Live() []LiveBroker {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gate.Live()
}
