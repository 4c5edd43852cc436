package scenarios

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/etcdtest"
)

// trio is three daemons, each with a member of etcd of its own, as processes.
type trio struct {
	w         *world
	flags     map[string]func(*exec.Cmd) // by daemon
	dir       string                     // with a folder for each
	clients   map[string]string          // where its member serves
	peers     map[string]string          // where it listens to the others
	processes map[string]*process
}

func newTrio(t *testing.T) *trio {
	t.Helper()
	free, err := etcdtest.FreeAddresses(9)
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{"a", "b", "c"}
	var peers []string
	for i, id := range ids {
		peers = append(peers, id+"=http://"+free[3*i])
	}
	x := &trio{
		dir: t.TempDir(), flags: map[string]func(*exec.Cmd){}, clients: map[string]string{}, peers: map[string]string{}, processes: map[string]*process{},
	}
	for i, id := range ids {
		x.peers[id], x.clients[id] = "http://"+free[3*i], free[3*i+1]
		x.flags[id] = with("--embedded-etcd", filepath.Join(x.dir, id), "--embedded-etcd-peers", strings.Join(peers, ","),
			"--embedded-etcd-listen-client", free[3*i+1], "--listen", free[3*i+2])
	}
	starting := &world{t: t, log: &logBuffer{}}
	for _, id := range ids {
		x.processes[id] = starting.launch(id, x.flags[id])
	}
	x.w = ofEndpoints(t, slices.Sorted(maps.Values(x.clients))...)
	x.w.log = starting.log
	for _, id := range ids {
		x.processes[id].w = x.w
		x.processes[id].joined()
	}
	return x
}

// crash kills a daemon and its member, and starts both again once somebody else
// is active and went on.
func (x *trio) crash(id string, goesOn func()) {
	w := x.w
	w.t.Helper()
	claim, active := w.seat()
	x.processes[id].kill()
	if active == id {
		w.seated(claim.Epoch+1, limit)
	}
	goesOn()
	x.processes[id] = w.launch(id, x.flags[id])
	w.caughtUp(x.clients[id])
	x.processes[id].joined()
}

// acked are the changes of partitions that leaders were told to be committed.
type acked struct {
	mu sync.Mutex
	pe map[cluster.PartitionID]cluster.PartitionEpoch
	n  int
}

func (a *acked) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}

// keepAltering changes the ISRs of a topic, smaller and larger in turn, until
// stop is called.
func (w *world) keepAltering(brokers []*node, topic cluster.TopicID, partitions int32) (a *acked, stop func()) {
	a = &acked{pe: map[cluster.PartitionID]cluster.PartitionEpoch{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for i := int32(0); ctx.Err() == nil; i = (i + 1) % partitions {
			id := cluster.PartitionID{Topic: topic, Index: i}
			if results, err := w.breathe(ctx, brokers, id); err == nil && results[0].Reason == "" {
				a.mu.Lock()
				a.pe[id] = cluster.PartitionEpoch(results[0].State.GetPartitionEpoch())
				a.n++
				a.mu.Unlock()
			}
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	w.t.Cleanup(stop)
	return a, stop
}

// breathe asks, as the leader of a partition, to be alone in its ISR, or for all
// replicas if it is.
func (w *world) breathe(ctx context.Context, brokers []*node, id cluster.PartitionID) ([]broker.IsrResult, error) {
	p := w.record(id)
	if len(p.ISR) > 1 {
		return w.shrink(ctx, brokers, id)
	}
	if p.Leader < 0 {
		return nil, fmt.Errorf("partition %s has no leader", id)
	}
	change := broker.IsrChange{Partition: id, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
	for _, r := range p.Replicas {
		change.NewISR = append(change.NewISR, broker.IsrMember{Broker: r})
	}
	return brokers[p.Leader].AlterPartition(ctx, []broker.IsrChange{change})
}

// kept checks that nothing acknowledged is lost.
func (w *world) kept(a *acked) {
	w.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, pe := range a.pe {
		if p := w.record(id); p.PartitionEpoch < pe {
			w.t.Errorf("partition %s has partition epoch %d, %d was acknowledged", id, p.PartitionEpoch, pe)
		}
	}
}

// One of three daemons with a member each is killed under load: the active, the
// one whose member leads etcd, any. The others go on, nothing acknowledged is
// lost, and the one that was killed joins again.
func TestEmbeddedKill(t *testing.T) {
	t.Parallel()
	x := newTrio(t)
	w := x.w
	w.seated(1, limit)
	brokers := w.startBrokers(3)
	const partitions = 12
	id := w.create("orders", partitions, 3)
	w.converged(limit)
	acked, stopAltering := w.keepAltering(brokers, id, partitions)
	stopCreating := w.keepCreating("load", 4, 3)
	topics := func() (n int) {
		w.tape.look(func(im *cluster.Image) { n = len(im.Topics) })
		return n
	}
	goesOn := func() {
		made, altered := topics(), acked.count()
		w.await("topics are made, ISRs are changed", limit, func() bool { return topics() > made+2 && acked.count() > altered+2 })
	}
	for round := range longOr(30, 2) {
		_, victim := w.seat()
		switch round % 3 {
		case 1: // the member that leads
			leader := w.etcdLeader(w.endpoints)
			for id, e := range x.clients {
				if e == leader {
					victim = id
				}
			}
		case 2:
			victim = []string{"a", "b", "c"}[rand.IntN(3)]
		}
		x.crash(victim, goesOn)
	}
	goesOn()
	stopAltering()
	made := stopCreating()
	w.converged(limit)
	w.kept(acked)
	t.Logf("%d topics, %d changes of ISRs", made, acked.count())
}

// A daemon loses the folder of its member. It is not let in again as if nothing
// had happened; the others replace the member, and the daemon begins anew.
func TestEmbeddedFolderIsLost(t *testing.T) {
	t.Parallel()
	x := newTrio(t)
	w := x.w
	w.seated(1, limit)
	w.startBrokers(3)
	w.create("orders", 6, 3)
	x.processes["c"].kill()
	if err := os.RemoveAll(filepath.Join(x.dir, "c")); err != nil {
		t.Fatal(err)
	}
	again := w.launch("c", x.flags["c"])
	select {
	case <-again.exited:
	case <-time.After(limit):
		t.Fatal("it runs on without its folder")
	}
	if !strings.Contains(w.log.String(), "has already been bootstrapped") {
		t.Error("it does not say why it has ended")
	}
	if err := os.RemoveAll(filepath.Join(x.dir, "c")); err != nil {
		t.Fatal(err)
	}
	w.await("the member is removed", limit, func() bool { return w.removeMember("c") == nil })
	w.await("another one is added", limit, func() bool {
		_, err := w.client.MemberAdd(w.call(), []string{x.peers["c"]})
		return err == nil
	})
	x.processes["c"] = w.launch("c", x.flags["c"], with("--embedded-etcd-join"))
	w.caughtUp(x.clients["c"])
	x.processes["c"].joined()
	w.create("payments", 6, 3)
	w.converged(limit)
	x.processes["a"].kill() // b and c are a majority
	w.create("refunds", 6, 3)
	w.converged(limit)
}
