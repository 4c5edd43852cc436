package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/internal/etcdserver"
	"github.com/controllerd/controllerd/internal/sim"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/etcdstore"
)

const (
	// etcdTick and etcdElection let etcd grant leases of 1 s, and leave a busy
	// machine half a second.
	etcdTick     = 50 * time.Millisecond
	etcdElection = 500 * time.Millisecond
	// startTimeout bounds the time until everything is up.
	startTimeout = time.Minute
	// settleTimeout is how long the end waits for what is still on its way, and
	// for the rest in which I5 can be looked at.
	settleTimeout = calm + 7*time.Second
	retryInterval = 100 * time.Millisecond
)

// startEtcd starts etcd in the data directory, or in one that is removed at the
// end.
func startEtcd(ctx context.Context, cfg Config) (*etcdserver.Server, func() error, error) {
	dir, remove := cfg.DataDir, func() error { return nil }
	if dir == "" {
		temp, err := os.MkdirTemp("", "controllerd-dev-")
		if err != nil {
			return nil, nil, fmt.Errorf("make temporary folder: %w", err)
		}
		dir, remove = temp, func() error { return os.RemoveAll(temp) }
	}
	s, err := etcdserver.Start(ctx, etcdserver.Config{Dir: dir, Addr: cfg.EtcdListen, Tick: etcdTick, Election: etcdElection})
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	return s, func() error { return errors.Join(s.Stop(), remove()) }, nil
}

// RunEtcd runs etcd alone until the context or the time of the run ends. ready
// is called with its address.
func RunEtcd(ctx context.Context, cfg Config, ready func(address string)) error {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return err
	}
	s, stop, err := startEtcd(ctx, cfg)
	if err != nil {
		return err
	}
	ready(s.Addr())
	select {
	case <-ctx.Done():
	case <-after(cfg.For):
	case err = <-s.Err():
	}
	return errors.Join(err, stop())
}

// after is when a time has passed, never for 0.
func after(d time.Duration) <-chan time.Time {
	if d == 0 {
		return nil
	}
	return time.After(d)
}

// Run runs the cluster until the context or the time of the run ends, then
// stops it in order. An error says that the cluster could not run; whether it
// ran well is in the report.
func Run(ctx context.Context, cfg Config) (Report, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return Report{}, err
	}
	began := time.Now()
	server, stopEtcd, err := startEtcd(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	client, err := etcdstore.Dial(etcdstore.Config{Endpoints: []string{server.Addr()}})
	if err != nil {
		return Report{}, errors.Join(err, stopEtcd())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-server.Err():
			cancel(fmt.Errorf("etcd ended: %w", err))
		case <-ctx.Done():
		}
	}()
	r, err := runOn(ctx, cfg, began, server.Addr(), etcdstore.New(client))
	return r, errors.Join(err, client.Close(), stopEtcd())
}

// runOn runs the cluster on an etcd.
func runOn(ctx context.Context, cfg Config, began time.Time, etcd string, s store.Store) (Report, error) {
	watching, endWatch := context.WithCancel(context.WithoutCancel(ctx))
	b := newBook()
	kept, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(kept)
		b.keep(watching, newAccount(cfg, began))
	}()
	go func() {
		defer close(watched)
		_ = election.Follow(watching, s, cluster.KeysOf(cfg.Cluster).Prefix(), cfg.LeaseTTL, cfg.Logger, func(batch store.Batch) {
			now := time.Now()
			b.put(func(a *account) { a.watched(now, batch) })
		})
	}()
	p := newParts(cfg, etcd, b)
	err := p.bringUp(ctx, began)
	if err == nil {
		err = p.suffer(ctx)
	}
	var looks sim.Looks // before the end
	if err == nil {
		looks = ask(b, func(a *account) sim.Looks { return a.check.Looks() })
		settling, cancel := context.WithTimeout(ctx, settleTimeout)
		_ = b.until(settling, func(a *account) bool { return a.atRest(looks) })
		cancel()
		err = context.Cause(ctx)
	}
	complete := err == nil
	r := ask(b, func(a *account) Report {
		a.flush()
		a.ended = true
		if complete {
			return a.lastReport(looks)
		}
		return a.report()
	})
	r.Commands.Sent = p.sent.Load()
	p.stop(ask(b, (*account).activeID))
	endWatch()
	<-watched
	<-kept
	if errors.Is(err, context.Canceled) { // somebody has had enough
		err = nil
	}
	return r, err
}

// bringUp starts everything, and returns when the topics are there.
func (p *parts) bringUp(ctx context.Context, began time.Time) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the cluster was not up within %v", startTimeout))
	defer cancel()
	if err := p.book.until(ctx, func(a *account) bool { return a.im.Rev > 0 }); err != nil {
		return err
	}
	listen := p.cfg.Listen
	for i := range p.cfg.Controllers {
		if err := p.startDaemon(daemonID(i), listen); err != nil {
			return err
		}
		listen = loopback
	}
	p.greet()
	for i := range p.cfg.Brokers {
		if err := p.startBroker(cluster.BrokerID(i+1), false); err != nil {
			return err
		}
	}
	err := p.book.until(ctx, func(a *account) bool {
		return (p.cfg.Controllers == 0 || a.activeID() != "") && len(a.im.Brokers) >= p.cfg.Brokers
	})
	if err != nil {
		return err
	}
	names := p.cfg.topicNames()
	if err := p.createTopics(ctx, names); err != nil {
		return err
	}
	var made store.Rev
	if err := p.book.until(ctx, func(a *account) bool { made = a.im.Rev; return a.made(names) }); err != nil {
		return err
	}
	if err := p.seen(ctx, made); err != nil { // or the first command would meet a daemon that knows less
		return err
	}
	now := time.Now()
	p.book.put(func(a *account) {
		a.begin(now, "ready after %s, try: controllerd topic list --server %s", inWords(now.Sub(began)), p.daemonAddresses()[0])
	})
	return nil
}

// greet says where everything is.
func (p *parts) greet() {
	data := p.cfg.DataDir
	if data == "" {
		data = "a temporary folder"
	}
	now, addresses := time.Now(), p.daemonAddresses()
	p.book.put(func(a *account) {
		a.announce(now, "etcd at %s, its data in %s", p.etcd, data)
		if a.before > 0 {
			a.announce(now, "going on after epoch %d with %d topics", a.before, len(a.im.Topics))
		}
		for i, address := range addresses {
			a.announce(now, "controller %s at %s", daemonID(i), address)
		}
		if p.cfg.KillBrokerEvery > 0 {
			a.announce(now, "seed %d", p.cfg.Seed)
		}
	})
}

// createTopics creates the topics that do not exist yet.
func (p *parts) createTopics(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	req := &pb.CreateTopicsRequest{}
	for _, name := range names {
		req.Topics = append(req.Topics, &pb.NewTopic{
			Name: name, Partitions: int32(p.cfg.Partitions), ReplicationFactor: int32(p.cfg.ReplicationFactor),
		})
	}
	conn, err := grpc.NewClient(p.daemonAddresses()[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for {
		resp, err := pb.NewAdminServiceClient(conn).CreateTopics(ctx, req)
		again := status.Code(err) == codes.Unavailable
		if err == nil {
			again, err = refusedTopics(resp)
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("create topics: %w: %w", context.Cause(ctx), err)
		case !again:
			return fmt.Errorf("create topics: %w", err)
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
		}
	}
}

// refusedTopics are those that could not be created. It is worth another try if
// the active has not seen all brokers yet.
func refusedTopics(resp *pb.CreateTopicsResponse) (again bool, err error) {
	var faults []error
	again = true
	for _, r := range resp.GetResults() {
		if r.GetError() == "" || r.GetError() == string(cluster.TopicAlreadyExists) {
			continue
		}
		again = again && r.GetError() == string(cluster.InvalidReplicationFactor)
		faults = append(faults, fmt.Errorf("%s: %s: %s", r.GetName(), r.GetError(), r.GetMessage()))
	}
	return again, errors.Join(faults...)
}
