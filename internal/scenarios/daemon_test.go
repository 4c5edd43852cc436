package scenarios

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/epoch"
	"github.com/controllerd/controllerd/internal/etcdtest"
	"github.com/controllerd/controllerd/internal/localcluster"
	"github.com/controllerd/controllerd/internal/netproxy"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

// daemon is a daemon in this process, with faults between it and etcd.
type daemon struct {
	*localcluster.Daemon
	w         *world
	faults    *etcdtest.Faults // in its calls of etcd
	toBrokers *etcdtest.Faults // in its streams to brokers
	proxy     *netproxy.Proxy  // to etcd; nil unless asked for
	conn      *grpc.ClientConn
	admin     pb.AdminServiceClient
	health    healthpb.HealthClient

	mu    sync.Mutex
	nonce string
	terms []term
	ended bool
}

// term is one term as the daemon's own loop saw it.
type term struct {
	claim epoch.Claim
	began time.Time
	ended time.Time // zero: it runs
}

// strategy is that of all daemons of this process.
var strategy election.Strategy

func init() {
	flag.TextVar(&strategy, "election", election.Race, "who takes an empty seat: race or queue")
}

// daemonOption changes the configuration of a daemon.
type daemonOption func(*daemon, *localcluster.DaemonConfig)

// brief gives the daemon a lease that a test can wait for.
var brief = withTTL(ttl)

func withTTL(d time.Duration) daemonOption {
	return func(_ *daemon, cfg *localcluster.DaemonConfig) { cfg.LeaseTTL = d }
}

func listen(addr string) daemonOption {
	return func(_ *daemon, cfg *localcluster.DaemonConfig) { cfg.Listen = addr }
}

// proxied puts a proxy between the daemon and etcd.
func proxied() daemonOption {
	return func(d *daemon, cfg *localcluster.DaemonConfig) {
		d.proxy = startProxy(d.w.t, d.w.etcd.Endpoint())
		cfg.EtcdEndpoints = []string{d.proxy.Addr()}
	}
}

func startProxy(t *testing.T, target string) *netproxy.Proxy {
	t.Helper()
	p, err := netproxy.Start(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// daemon starts a daemon.
func (w *world) daemon(id string, opts ...daemonOption) *daemon {
	w.t.Helper()
	d := &daemon{w: w, faults: &etcdtest.Faults{}, toBrokers: &etcdtest.Faults{}}
	cfg := localcluster.DaemonConfig{
		ID: id, Cluster: clusterName, EtcdEndpoints: w.endpoints, LeaseTTL: patient, Strategy: strategy,
		Logger: w.logger(),
	}
	for _, o := range opts {
		o(d, &cfg)
	}
	cfg.EtcdOptions = append(cfg.EtcdOptions, d.faults.DialOptions()...)
	cfg.DialOptions = append(d.toBrokers.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	inner, err := localcluster.StartDaemon(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	d.Daemon = inner
	d.conn = dial(w.t, d.Endpoint)
	d.admin, d.health = pb.NewAdminServiceClient(d.conn), healthpb.NewHealthClient(d.conn)
	go d.watchTerms()
	w.mu.Lock()
	w.daemons = append(w.daemons, d)
	w.mu.Unlock()
	return d
}

func dial(t *testing.T, endpoint string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(endpoint, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// watchTerms notes from inside the loop when it is active.
func (d *daemon) watchTerms() {
	_ = d.Controller.Await(context.Background(), func(v rpc.View) bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.nonce = v.Nonce
		n := len(d.terms)
		running := n > 0 && d.terms[n-1].ended.IsZero()
		if running && (!v.Active || v.Claim != d.terms[n-1].claim) {
			d.terms[n-1].ended = time.Now()
			running = false
		}
		if v.Active && !running {
			d.terms = append(d.terms, term{claim: v.Claim, began: time.Now()})
		}
		return false
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.terms); n > 0 && d.terms[n-1].ended.IsZero() {
		d.terms[n-1].ended = time.Now()
	}
}

// goesBack watches the daemon until it ends, and returns an error if its image
// ever goes back to an older revision or epoch.
func (d *daemon) goesBack() (err error) {
	var rev store.Rev
	var e cluster.Epoch
	_ = d.Controller.Await(context.Background(), func(v rpc.View) bool {
		if v.Image.Rev < rev || v.Image.Epoch < e {
			err = fmt.Errorf("%s went from revision %d, epoch %d back to %d, %d", d.ID, rev, e, v.Image.Rev, v.Image.Epoch)
		}
		rev, e = v.Image.Rev, v.Image.Epoch
		return err != nil
	})
	return err
}

// active is the claim under which the daemon acts, if it does.
func (d *daemon) active() (epoch.Claim, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.terms); n > 0 && d.terms[n-1].ended.IsZero() {
		return d.terms[n-1].claim, true
	}
	return epoch.Claim{}, false
}

// history are the terms of the daemon so far.
func (d *daemon) history() []term {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]term(nil), d.terms...)
}

// kill ends the daemon as SIGKILL would.
func (d *daemon) kill() { d.finish(d.Daemon.Kill) }

// stop ends it in order.
func (d *daemon) stop() { d.finish(d.Daemon.Stop) }

func (d *daemon) finish(end func()) {
	d.mu.Lock()
	ended := d.ended
	d.ended = true
	d.mu.Unlock()
	if !ended {
		end()
		_ = d.conn.Close()
	}
}

func (d *daemon) alive() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.ended
}

// problems is what the daemon says is wrong.
func (d *daemon) problems() []string {
	resp, err := d.admin.DescribeController(d.w.call(), &pb.DescribeControllerRequest{})
	if err != nil {
		return []string{err.Error()}
	}
	return resp.GetProblems()
}

// serving is what its health service says about a name.
func (d *daemon) serving(service string) bool {
	resp, err := d.health.Check(d.w.call(), &healthpb.HealthCheckRequest{Service: service})
	return err == nil && resp.GetStatus() == healthpb.HealthCheckResponse_SERVING
}
