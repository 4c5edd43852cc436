package scenarios

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/epoch"
	"github.com/controllerd/controllerd/internal/etcdtest"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/etcdstore"
)

const (
	clusterName = "test"
	// ttl is the lease of daemons that are to lose it by silence, and of those
	// that are processes.
	ttl = 2 * time.Second
	// patient is the lease of all others: a busy machine is no fault.
	patient = 10 * time.Second
	// takeover is how long it may take until another daemon is active after
	// one was killed, with what a busy machine adds.
	takeover = ttl + 3*time.Second
	// soon is for what needs no lease to expire.
	soon = 10 * time.Second
	// limit is for what only has to come true at last.
	limit = 30 * time.Second
)

// world is one etcd with all that uses it.
type world struct {
	t         *testing.T
	etcd      *etcdtest.Cluster // nil on several members
	endpoints []string          // of etcd, as daemons are told
	client    *clientv3.Client
	store     store.Store
	keys      cluster.Keys
	tape      *tape
	log       *logBuffer
	// allowUnclean: what happened is not judged for unclean elections.
	allowUnclean bool

	mu        sync.Mutex
	daemons   []*daemon
	processes []*process
	brokers   []*node
	made      map[string]bool // topics whose creation was answered
}

func newWorld(t *testing.T, opts ...etcdtest.Option) *world {
	t.Helper()
	opts = append(opts, etcdtest.NoFsync()) // nothing here restarts etcd
	w := &world{t: t, etcd: etcdtest.Start(t, opts...), keys: cluster.KeysOf(clusterName), log: &logBuffer{}, made: map[string]bool{}}
	w.endpoints = []string{w.etcd.Endpoint()}
	w.client = w.etcd.Client(t)
	w.store = etcdstore.New(w.client)
	w.tape = startTape(t, w.client, w.keys)
	t.Cleanup(w.end)
	return w
}

// end judges what happened and takes everything down, abruptly.
func (w *world) end() {
	if !w.t.Failed() {
		w.judge()
	}
	w.mu.Lock()
	daemons, processes, brokers := w.daemons, w.processes, w.brokers
	w.mu.Unlock()
	for _, b := range brokers {
		b.kill()
	}
	for _, d := range daemons {
		d.kill()
	}
	for _, p := range processes {
		p.kill()
	}
	w.tape.stop()
	if w.t.Failed() {
		w.t.Logf("history of etcd:\n%s\nlog:\n%s", w.tape.describe(), w.log.String())
	}
}

// await polls until a condition holds.
func (w *world) await(what string, within time.Duration, cond func() bool) {
	w.t.Helper()
	if !poll(within, cond) {
		w.t.Fatalf("not within %v: %s", within, what)
	}
}

func poll(within time.Duration, cond func() bool) bool {
	late := time.NewTimer(within)
	defer late.Stop()
	for {
		begin := time.Now()
		if cond() {
			return true
		}
		pause := time.NewTimer(max(5*time.Millisecond, 3*time.Since(begin))) // what is watched needs the processor too
		select {
		case <-pause.C:
		case <-late.C:
			pause.Stop()
			return cond()
		}
	}
}

// pass lets time pass, where that is the fault, or where nothing is to happen.
func pass(d time.Duration) { <-time.After(d) }

// call is the context of one call.
func (w *world) call() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	w.t.Cleanup(cancel)
	return ctx
}

// put writes a key by hand.
func (w *world) put(key string, value []byte, opts ...clientv3.OpOption) store.Rev {
	w.t.Helper()
	resp, err := w.client.Put(w.call(), key, string(value), opts...)
	if err != nil {
		w.t.Fatalf("put %s by hand: %v", key, err)
	}
	w.tape.byHand(resp.Header.Revision)
	return store.Rev(resp.Header.Revision)
}

// remove deletes a key by hand.
func (w *world) remove(key string, opts ...clientv3.OpOption) store.Rev {
	w.t.Helper()
	resp, err := w.client.Delete(w.call(), key, opts...)
	if err != nil {
		w.t.Fatalf("delete %s by hand: %v", key, err)
	}
	w.tape.byHand(resp.Header.Revision)
	return store.Rev(resp.Header.Revision)
}

// revoke ends a lease by hand, whether it still is or not.
func (w *world) revoke(lease store.LeaseID) {
	w.t.Helper()
	if err := w.store.Revoke(w.call(), lease); err != nil {
		w.t.Fatalf("revoke lease %x: %v", lease, err)
	}
}

// leaseLives reports whether etcd holds a lease.
func (w *world) leaseLives(lease store.LeaseID) bool {
	w.t.Helper()
	resp, err := w.client.TimeToLive(w.call(), clientv3.LeaseID(lease))
	if err != nil {
		w.t.Fatalf("look up lease %x: %v", lease, err)
	}
	return resp.TTL >= 0 // -1 if it is gone
}

// seat is the claim that etcd shows, and the id of the daemon that won it.
func (w *world) seat() (claim epoch.Claim, id string) {
	w.tape.look(func(im *cluster.Image) {
		if c := im.Controller; c != nil && c.ModRev == im.EpochRev {
			claim, id = epoch.Claim{Epoch: im.Epoch, Rev: c.ModRev}, c.Record.GetId()
		}
	})
	return claim, id
}

// epoch is the one that etcd shows.
func (w *world) epoch() (e cluster.Epoch) {
	w.tape.look(func(im *cluster.Image) { e = im.Epoch })
	return e
}

// resign makes the active give up, and waits until somebody holds the seat.
func (w *world) resign() {
	w.t.Helper()
	var err error
	for n := range 100 {
		e := w.epoch()
		if _, err = w.someAdmin(n).ResignController(w.call(), &pb.ResignControllerRequest{Reason: "test"}); err == nil {
			w.await("somebody follows", soon, func() bool { claim, _ := w.seat(); return claim.Epoch > e })
			return
		}
		pass(20 * time.Millisecond) // between two terms
	}
	w.t.Fatalf("resign: %v", err)
}

// candidates are the candidate keys in etcd, by the daemon's id.
func (w *world) candidates() map[string][]store.LeaseID {
	out := map[string][]store.LeaseID{}
	w.tape.look(func(im *cluster.Image) {
		for lease, c := range im.Candidates {
			out[c.Record.GetId()] = append(out[c.Record.GetId()], lease)
		}
	})
	return out
}

// active waits for a daemon that acts under an epoch of at least min, and
// under the claim that etcd shows.
func (w *world) active(least cluster.Epoch, within time.Duration) *daemon {
	w.t.Helper()
	var found *daemon
	w.await(fmt.Sprintf("a daemon is active under epoch %d or above", least), within, func() bool {
		claim, _ := w.seat()
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, d := range w.daemons {
			if c, ok := d.active(); ok && c == claim && c.Epoch >= least {
				found = d
				return true
			}
		}
		return false
	})
	return found
}

// logBuffer keeps what the parts log, for a test that fails.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 64 << 10
	b := l.buf.Bytes()
	return string(b[max(0, len(b)-most):])
}

func (w *world) logger() *slog.Logger { return slog.New(slog.NewTextHandler(w.log, nil)) }
