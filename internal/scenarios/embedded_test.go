package scenarios

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/etcdtest"
)

// trio is three daemons, each with a member of etcd of its own, as processes.
type trio struct {
	w         *world
	flags     map[string]func(*exec.Cmd) // by daemon
	clients   map[string]string          // of its member
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
	x := &trio{flags: map[string]func(*exec.Cmd){}, clients: map[string]string{}, processes: map[string]*process{}}
	dir := t.TempDir()
	for i, id := range ids {
		x.clients[id] = free[3*i+1]
		x.flags[id] = with("--embedded-etcd", filepath.Join(dir, id), "--embedded-etcd-peers", strings.Join(peers, ","),
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
