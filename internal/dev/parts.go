package dev

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/demobroker"
	"github.com/controllerd/controllerd/internal/localcluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

const loopback = "127.0.0.1:0"

// parts are the daemons and brokers, those that run and those that were killed.
type parts struct {
	cfg  Config
	etcd string
	book *book
	sent atomic.Int64 // commands to brokers

	brokersEnd context.Context
	endBrokers context.CancelFunc

	mu        sync.Mutex
	addresses map[string]string // of daemons, dead ones too
	daemons   map[string]*localcluster.Daemon
	brokers   map[cluster.BrokerID]*demobroker.Broker
	wg        sync.WaitGroup // who waits for brokers to end
}

func newParts(cfg Config, etcd string, b *book) *parts {
	p := &parts{
		cfg: cfg, etcd: etcd, book: b,
		addresses: map[string]string{},
		daemons:   map[string]*localcluster.Daemon{},
		brokers:   map[cluster.BrokerID]*demobroker.Broker{},
	}
	p.brokersEnd, p.endBrokers = context.WithCancel(context.Background())
	return p
}

// startDaemon starts a daemon, at its earlier address if that is free.
func (p *parts) startDaemon(id, listen string) error {
	p.mu.Lock()
	earlier, again := p.addresses[id]
	p.mu.Unlock()
	if again {
		listen = earlier
	}
	cfg := localcluster.DaemonConfig{
		ID: id, Cluster: p.cfg.Cluster, EtcdEndpoints: []string{p.etcd}, Listen: listen,
		Limits: &p.cfg.Limits, LeaseTTL: p.cfg.LeaseTTL, Strategy: p.cfg.Strategy, NoDeathProbe: p.cfg.NoDeathProbe, Version: p.cfg.Version,
		Logger: p.cfg.Logger, DialOptions: p.dialOptions(),
	}
	d, err := localcluster.StartDaemon(cfg)
	if errors.Is(err, syscall.EADDRINUSE) {
		cfg.Listen = loopback
		d, err = localcluster.StartDaemon(cfg)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.daemons[id], p.addresses[id] = d, d.Endpoint
	p.mu.Unlock()
	now := time.Now()
	p.book.put(func(a *account) { a.daemonStarted(now, id, d.Endpoint, again) })
	return nil
}

// dialOptions are for the daemons' connections to brokers.
func (p *parts) dialOptions() []grpc.DialOption {
	chain := []grpc.StreamClientInterceptor{countCommands(&p.sent)}
	if p.cfg.Intercept != nil {
		chain = append(chain, p.cfg.Intercept)
	}
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithChainStreamInterceptor(chain...),
	}
}

// killDaemon ends a daemon as SIGKILL would.
func (p *parts) killDaemon(id string) {
	p.mu.Lock()
	d := p.daemons[id]
	delete(p.daemons, id)
	p.mu.Unlock()
	if d == nil {
		return
	}
	now := time.Now()
	p.book.put(func(a *account) { a.daemonKilled(now, id) })
	d.Kill()
}

// startBroker starts a process of a broker. Its node stays the same over runs.
func (p *parts) startBroker(id cluster.BrokerID, again bool) error {
	now := time.Now()
	p.book.put(func(a *account) { a.brokerStarted(now, id, again) })
	b, err := demobroker.Start(p.brokersEnd, demobroker.Config{Broker: broker.Config{
		ID:              id,
		NodeUUID:        fmt.Sprintf("dev-node-%d", id),
		Daemons:         p.daemonAddresses(),
		SessionTTL:      p.cfg.SessionTTL,
		ShutdownTimeout: time.Second, // all of them leave together, so nobody can take over
		Logger:          p.cfg.Logger,
		Observer:        func(o broker.Observation) { p.book.put(func(a *account) { a.heard(id, o) }) },
		Unfenced:        p.cfg.Unfenced,
	}})
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.brokers[id] = b
	p.mu.Unlock()
	p.wg.Go(func() {
		err := b.Wait()
		if err != nil && !errors.Is(err, broker.ErrKilled) {
			now := time.Now()
			p.book.put(func(a *account) { a.announce(now, "broker %d stopped by itself: %v", id, err) })
		}
	})
	return nil
}

// killBroker ends a broker as SIGKILL would.
func (p *parts) killBroker(id cluster.BrokerID) {
	p.mu.Lock()
	b := p.brokers[id]
	delete(p.brokers, id)
	p.mu.Unlock()
	now := time.Now()
	p.book.put(func(a *account) { a.brokerKilled(now, id) })
	b.Kill()
}

// runningBrokers are in order of id.
func (p *parts) runningBrokers() []cluster.BrokerID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.brokers))
}

// daemonAddresses are in order of the daemons' ids.
func (p *parts) daemonAddresses() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for i := range p.cfg.Controllers {
		out = append(out, p.addresses[daemonID(i)])
	}
	return out
}

func daemonID(i int) string { return fmt.Sprintf("c%d", i+1) }

// stop ends everything in order: brokers leave, then the standbys, then the
// active, so that nobody takes over for a moment.
func (p *parts) stop(active string) {
	p.endBrokers()
	p.wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	var standbys sync.WaitGroup
	for id, d := range p.daemons {
		if id != active {
			standbys.Go(d.Stop)
		}
	}
	standbys.Wait()
	if d := p.daemons[active]; d != nil {
		d.Stop()
	}
}

// countCommands counts what is sent to brokers, as Commands says.
func countCommands(sent *atomic.Int64) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, method, opts...)
		if err != nil {
			return nil, err
		}
		return countedStream{s, sent}, nil
	}
}

// seen waits until every daemon has seen a revision.
func (p *parts) seen(ctx context.Context, rev store.Rev) error {
	p.mu.Lock()
	daemons := slices.Collect(maps.Values(p.daemons))
	p.mu.Unlock()
	for _, d := range daemons {
		if err := d.Controller.Await(ctx, func(v rpc.View) bool { return v.Image.Rev >= rev }); err != nil {
			return err
		}
	}
	return nil
}

type countedStream struct {
	grpc.ClientStream
	sent *atomic.Int64
}

// SendMsg counts before it sends, so that an answer never comes before.
func (s countedStream) SendMsg(m any) error {
	switch m := m.(type) {
	case *pb.CommandsRequest:
		s.sent.Add(commandsIn(m.GetCommand()))
	case rpc.Send: // metadata that other brokers hear too
		s.sent.Add(1)
	}
	return s.ClientStream.SendMsg(m)
}

func commandsIn(c *pb.Command) (n int64) {
	switch {
	case c.GetLeaderAndIsr() != nil:
		for _, t := range c.GetLeaderAndIsr().GetTopics() {
			n += int64(len(t.GetPartitions()))
		}
	case c.GetStopReplica() != nil:
		for _, t := range c.GetStopReplica().GetTopics() {
			n += int64(len(t.GetPartitions()))
		}
	case c.GetUpdateMetadata() != nil, c.GetFullSync() != nil:
		n = 1
	}
	return n
}
