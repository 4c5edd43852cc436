package etcdtest

import (
	"context"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/controllerd/controllerd/internal/etcdserver"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/etcdstore"
)

const (
	fastTick     = 10 * time.Millisecond
	fastElection = 100 * time.Millisecond
	// callTimeout bounds what the harness itself asks of etcd, on a busy machine.
	callTimeout = 20 * time.Second
)

// MinTTL is the shortest lease that a Cluster with fast ticks grants.
const MinTTL = time.Second

// Option changes the server of a Cluster.
type Option func(*etcdserver.Config)

// DefaultTicks runs the server at etcd's own timings: elections of 1 s and
// leases of at least 2 s.
func DefaultTicks() Option {
	return func(c *etcdserver.Config) { c.Tick, c.Election = 0, 0 }
}

// NoFsync trades durability for speed. Do not combine it with Restart.
func NoFsync() Option { return func(c *etcdserver.Config) { c.NoFsync = true } }

// Quota sets the size in bytes at which the server refuses writes.
func Quota(bytes int64) Option { return func(c *etcdserver.Config) { c.Quota = bytes } }

// KeepRevisions turns automatic compaction on, which a Cluster has off.
func KeepRevisions(n int) Option { return func(c *etcdserver.Config) { c.KeepRevisions = n } }

// Cluster is a real etcd of one member that ends with its test.
type Cluster struct {
	t      testing.TB
	cfg    etcdserver.Config
	server *etcdserver.Server // nil while stopped
	admin  *clientv3.Client
}

// Start runs an etcd in a temporary directory on a free port of loopback.
func Start(t testing.TB, opts ...Option) *Cluster {
	t.Helper()
	c := &Cluster{t: t, cfg: etcdserver.Config{
		Dir:           t.TempDir(),
		Addr:          "127.0.0.1:0",
		Tick:          fastTick,
		Election:      fastElection,
		KeepRevisions: -1,
	}}
	for _, o := range opts {
		o(&c.cfg)
	}
	t.Cleanup(c.Stop)
	c.run()
	c.cfg.Addr = c.server.Addr()
	c.admin = c.Client(t)
	return c
}

func (c *Cluster) run() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	server, err := etcdserver.Start(ctx, c.cfg)
	if err != nil {
		c.t.Fatalf("start etcd: %v", err)
	}
	c.server = server
}

// Stop ends the server; its data and port stay reserved for Restart. A stopped
// Cluster may be stopped again.
func (c *Cluster) Stop() {
	c.t.Helper()
	if c.server == nil {
		return
	}
	if err := c.server.Stop(); err != nil {
		c.t.Errorf("stop etcd: %v", err)
	}
	c.server = nil
}

// Restart runs a stopped or running server again, on the same data and port.
func (c *Cluster) Restart() {
	c.t.Helper()
	c.Stop()
	c.run()
}

// Endpoint is the host:port that clients dial.
func (c *Cluster) Endpoint() string { return c.cfg.Addr }

// Client dials the cluster; the client closes with the test.
func (c *Cluster) Client(t testing.TB, opts ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	return Dial(t, c.Endpoint(), opts...)
}

// Store is a store on a client of its own.
func (c *Cluster) Store(t testing.TB, opts ...grpc.DialOption) store.Store {
	t.Helper()
	return etcdstore.New(c.Client(t, opts...))
}

// Dial makes a client that closes with the test, for example through a proxy.
func Dial(t testing.TB, endpoint string, opts ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	client, err := etcdstore.Dial(etcdstore.Config{Endpoints: []string{endpoint}, DialOptions: opts})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Watchers is the number of watch streams that clients hold open.
func (c *Cluster) Watchers() int { return c.server.Watchers() }

// Leases are the leases that the server holds.
func (c *Cluster) Leases(ctx context.Context) []store.LeaseID {
	c.t.Helper()
	resp, err := c.admin.Leases(ctx)
	if err != nil {
		c.t.Fatalf("list leases: %v", err)
	}
	ids := make([]store.LeaseID, len(resp.Leases))
	for i, l := range resp.Leases {
		ids[i] = store.LeaseID(l.ID)
	}
	return ids
}

// Compact forgets the history below rev and waits until that is done.
func (c *Cluster) Compact(rev store.Rev) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, err := c.admin.Compact(ctx, int64(rev), clientv3.WithCompactPhysical())
	return err
}

// SetNoSpace raises or clears the alarm that a full database raises. Clearing
// it is what an operator does after making room.
func (c *Cluster) SetNoSpace(on bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	req := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: c.server.Member()}
	if !on {
		req.Action = pb.AlarmRequest_DEACTIVATE
	}
	if _, err := pb.NewMaintenanceClient(c.admin.ActiveConnection()).Alarm(ctx, req); err != nil {
		c.t.Fatalf("set alarm: %v", err)
	}
}
