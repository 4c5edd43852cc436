package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/controller"
	"github.com/controllerd/controllerd/internal/etcdtest"
	"github.com/controllerd/controllerd/internal/localcluster"
	"github.com/controllerd/controllerd/rpc"
)

// asProgram makes the test binary behave as controllerd itself, for tests that
// need a process of their own.
const asProgram = "TEST_AS_CONTROLLERD"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// patience bounds every wait, on a busy machine.
const patience = 20 * time.Second

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !cond() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited %v for: %s", patience, what)
		}
	}
}

// result is what a command line did.
type result struct {
	args           []string
	code           int
	stdout, stderr string
}

// cli runs a command line in this process.
func cli(args ...string) result {
	var stdout, stderr bytes.Buffer
	code := run(context.Background(), args, &stdout, &stderr)
	return result{args, code, stdout.String(), stderr.String()}
}

// want fails unless the command line exited with the code, and silently so
// with 0.
func (r result) want(t *testing.T, code int) result {
	t.Helper()
	if r.code != code || (code == exitOK) != (r.stderr == "") {
		t.Fatalf("controllerd %s: exit code %d, want %d\nstdout:\n%s\nstderr:\n%s", strings.Join(r.args, " "), r.code, code, r.stdout, r.stderr)
	}
	return r
}

// lines are the lines of stdout, with blanks collapsed.
func (r result) lines() []string { return linesOf(r.stdout) }

func linesOf(s string) []string {
	var lines []string
	for line := range strings.Lines(s) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

// decode reads stdout as JSON of a view, in which every field must be known.
func decode[T any](t *testing.T, r result) T {
	t.Helper()
	var v T
	r.want(t, exitOK)
	dec := json.NewDecoder(strings.NewReader(r.stdout))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v in:\n%s", err, r.stdout)
	}
	return v
}

// nop is a handler of a broker without data.
type nop struct{ failed, broken *atomic.Bool } // its storage, and the handler itself

func (n nop) ApplyPartition(context.Context, broker.PartitionState) error {
	if n.failed.Load() {
		return broker.ErrStorage
	}
	if n.broken.Load() {
		return errors.New("the handler is broken")
	}
	return nil
}

func (nop) StopReplica(context.Context, string, cluster.PartitionID, bool) error {
	return nil
}
func (nop) AdoptISR(broker.PartitionState)       {}
func (nop) UpdateMetadata(broker.MetadataUpdate) {}

// world is an etcd with daemons and brokers in this process.
type world struct {
	t       *testing.T
	etcd    *etcdtest.Cluster
	daemons []*localcluster.Daemon
	brokers []*broker.Broker
	failed  [8]atomic.Bool // the storage of each broker
	broken  [8]atomic.Bool // the handler of each broker
}

// quietly drops what daemons and brokers log.
var quietly = slog.New(slog.NewTextHandler(io.Discard, nil))

// newWorld starts daemons with the ids a, b, ... and brokers with the ids 0,
// 1, ..., and waits until all know each other.
func newWorld(t *testing.T, daemons, brokers int) *world {
	t.Helper()
	return newWorldOf(t, controller.MinLeaseTTL, daemons, brokers)
}

// newWorldOf starts daemons whose leases last so long.
func newWorldOf(t *testing.T, lease time.Duration, daemons, brokers int) *world {
	t.Helper()
	w := &world{t: t, etcd: etcdtest.Start(t)}
	for i := range daemons {
		d, err := localcluster.StartDaemon(localcluster.DaemonConfig{
			ID: string(rune('a' + i)), Cluster: "test", EtcdEndpoints: []string{w.etcd.Endpoint()}, Version: "v1.2.3", Logger: quietly,
			LeaseTTL: lease,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Kill)
		w.daemons = append(w.daemons, d)
	}
	for i := range brokers {
		b, err := broker.Start(context.Background(), broker.Config{
			ID: cluster.BrokerID(i), NodeUUID: fmt.Sprint("node-", i), Rack: fmt.Sprint("rack-", i), Daemons: w.endpoints(),
			Handler: nop{&w.failed[i], &w.broken[i]}, SessionTTL: 4 * time.Second, Logger: quietly,
			Endpoints: []broker.Endpoint{{Listener: "client", Address: fmt.Sprint("127.0.0.1:", 9000+i)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Kill)
		w.brokers = append(w.brokers, b)
	}
	for _, d := range w.daemons {
		w.await(d, "all daemons and brokers are known", func(v rpc.View) bool {
			return v.Image.Controller != nil && len(v.Image.Candidates) == daemons && len(v.Image.Brokers) == brokers
		})
	}
	return w
}

// await waits until the view of a daemon meets a condition.
func (w *world) await(d *localcluster.Daemon, what string, cond func(rpc.View) bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := d.Controller.Await(ctx, cond); err != nil {
		w.t.Fatalf("daemon %s: %s: %v", d.ID, what, err)
	}
}

func (w *world) endpoints() []string {
	var all []string
	for _, d := range w.daemons {
		all = append(all, d.Endpoint)
	}
	return all
}

// server is the flag that names all daemons.
func (w *world) server() string { return "--server=" + strings.Join(w.endpoints(), ",") }

// cli runs a command line against the daemons.
func (w *world) cli(args ...string) result { return cli(append(args, w.server())...) }

// roles are the active daemon and a standby.
func (w *world) roles() (active, standby *localcluster.Daemon) {
	w.t.Helper()
	eventually(w.t, "one daemon is active", func() bool {
		active, standby = nil, nil
		for _, d := range w.daemons {
			w.await(d, "it answers", func(v rpc.View) bool {
				if v.Active {
					active = d
				} else {
					standby = d
				}
				return true
			})
		}
		return active != nil && (standby != nil || len(w.daemons) == 1)
	})
	return active, standby
}

// topic creates a topic and waits until every daemon shows it.
func (w *world) topic(name string, partitions, replicas int, flags ...string) {
	w.t.Helper()
	w.cli(append([]string{"topic", "create", name, "--partitions", fmt.Sprint(partitions), "--replication-factor", fmt.Sprint(replicas)}, flags...)...).
		want(w.t, exitOK)
	for _, d := range w.daemons {
		w.await(d, "topic "+name+" is known", func(v rpc.View) bool { return v.Image.Topics[name] != nil })
	}
}

// dial connects to a daemon.
func dial(t *testing.T, endpoint string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
