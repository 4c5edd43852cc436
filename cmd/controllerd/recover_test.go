package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/internal/etcdtest"
	"github.com/controllerd/controllerd/internal/localcluster"
	"github.com/controllerd/controllerd/internal/sim"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

var testKeys = cluster.KeysOf("test")

// witness holds what brokers obey, and what etcd holds, against the invariants.
type witness struct {
	began time.Time

	mu    sync.Mutex
	away  bool // it hears nothing
	check *sim.Checker
	image *cluster.Image
	moves int // changes of a leader
	stale []broker.Observation
}

func newWitness() *witness {
	return &witness{began: time.Now(), check: sim.NewChecker(testKeys, sim.Bounds{Converge: time.Second, Elect: time.Hour})}
}

func (w *witness) look(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn()
}

// heard takes in a decision of a broker.
func (w *witness) heard(id cluster.BrokerID, o broker.Observation) {
	w.look(func() {
		if w.away {
			return
		}
		w.check.Accepted(sim.Accepted{At: o.Time.Sub(w.began), Broker: id, Observation: o})
		if o.Result == string(cluster.StaleControllerEpoch) {
			w.stale = append(w.stale, o)
		}
	})
}

// follow watches an etcd from now on, until the function that it returns is
// called.
func (w *witness) follow(t *testing.T, etcd *etcdtest.Cluster) (stop func()) {
	w.look(func() { w.image = cluster.NewImage(testKeys) })
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	s := etcd.Store(t)
	following.Go(func() {
		_ = election.Follow(ctx, s, testKeys.Prefix(), 10*time.Second, quietly, func(b store.Batch) {
			w.look(func() {
				if w.away {
					return
				}
				w.check.Watched(time.Since(w.began), b)
				for _, ev := range w.image.Apply(b) {
					if c, ok := ev.(cluster.PartitionChanged); ok && c.Old != nil && c.New != nil && c.Old.Leader != c.New.Leader {
						w.moves++
					}
				}
			})
		})
	})
	stop = func() { cancel(); following.Wait() }
	t.Cleanup(stop)
	return stop
}

// restored is a cluster whose etcd is to be restored from a snapshot.
type restored struct {
	*world
	snapshot  string
	witnesses []*witness
	topic     cluster.TopicID
	listen    []string // of the daemons
}

const recoverPartitions = 120

// newRestored takes a snapshot and lets the cluster run on, over three terms
// and 100 changes of leaders.
func newRestored(t *testing.T) *restored {
	r := &restored{world: &world{t: t, etcd: etcdtest.Start(t)}, witnesses: []*witness{newWitness(), newWitness()}}
	var stops []func()
	for _, w := range r.witnesses {
		stops = append(stops, w.follow(t, r.etcd))
	}
	r.start()
	for i := range 3 {
		id := cluster.BrokerID(i)
		b, err := broker.Start(context.Background(), broker.Config{
			ID: id, NodeUUID: fmt.Sprint("node-", i), Daemons: r.endpoints(), SessionTTL: 4 * time.Second, Logger: quietly,
			Handler: nop{&r.failed[i], &r.broken[i]},
			Observer: func(o broker.Observation) {
				for _, w := range r.witnesses {
					w.heard(id, o)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Kill)
		r.brokers = append(r.brokers, b)
		<-b.Registered()
	}
	for _, d := range r.daemons {
		r.await(d, "all brokers are known", func(v rpc.View) bool { return len(v.Image.Brokers) == len(r.brokers) })
	}
	r.world.topic("orders", recoverPartitions, 3)
	r.world.topic("gone", 1, 1)
	r.image(func(im *cluster.Image) { r.topic = im.Topics["orders"].ID })
	r.fill()
	r.snapshot = r.etcd.Snapshot()

	before := r.epoch()
	for n := 0; r.moves() < 100; n++ {
		k := cluster.BrokerID(n % 3)
		var lease store.LeaseID
		r.image(func(im *cluster.Image) { lease = im.Brokers[k].Lease })
		if err := r.etcd.Store(t).Revoke(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the broker is back, and nobody leads on it", func() (back bool) {
			r.image(func(im *cluster.Image) { back = im.Brokers[k] != nil && im.Brokers[k].Lease != lease })
			return back
		})
		r.cli("controller", "resign").want(t, exitOK)
		eventually(t, "another is active", func() bool { return r.epoch() > before+cluster.Epoch(n) })
		r.fill()
	}
	for r.epoch() < before+3 {
		e := r.epoch()
		r.cli("controller", "resign").want(t, exitOK)
		eventually(t, "another is active", func() bool { return r.epoch() > e })
	}
	r.world.topic("young", 1, 1) // which the snapshot lacks
	r.cli("topic", "delete", "gone", "--yes").want(t, exitOK)
	r.shrink()
	r.stop()
	for _, stop := range stops {
		stop()
	}
	r.witnesses[1].look(func() { r.witnesses[1].away = true })
	return r
}

// start runs two daemons, always at the same addresses.
func (r *restored) start() {
	r.t.Helper()
	if r.listen == nil {
		r.listen = []string{"127.0.0.2:0", "127.0.0.2:0"} // a port there is free for the next start: nobody dials from it
	}
	r.daemons = nil
	for i := range r.listen {
		d, err := localcluster.StartDaemon(localcluster.DaemonConfig{
			ID: string(rune('a' + i)), Cluster: "test", EtcdEndpoints: []string{r.etcd.Endpoint()}, Logger: quietly, Listen: r.listen[i],
		})
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(d.Kill)
		r.listen[i] = d.Endpoint
		r.daemons = append(r.daemons, d)
	}
	r.roles()
}

func (r *restored) stop() {
	for _, d := range r.daemons {
		d.Stop()
	}
}

func (r *restored) image(fn func(*cluster.Image)) {
	w := r.witnesses[0]
	w.look(func() { fn(w.image) })
}

func (r *restored) epoch() (e cluster.Epoch) {
	r.image(func(im *cluster.Image) { e = im.Epoch })
	return e
}

func (r *restored) moves() (n int) {
	r.witnesses[0].look(func() { n = r.witnesses[0].moves })
	return n
}

// alter lets leaders propose an ISR for each partition of orders that has
// another one, and waits until all have it.
func (r *restored) alter(isr func(index int32, leader cluster.BrokerID) []cluster.BrokerID) {
	r.t.Helper()
	eventually(r.t, "all ISRs are as they should", func() bool {
		changes := map[cluster.BrokerID][]broker.IsrChange{}
		open := 0
		r.image(func(im *cluster.Image) {
			for i := range int32(recoverPartitions) {
				id := cluster.PartitionID{Topic: r.topic, Index: i}
				p := im.Partition(id)
				want := isr(i, p.Leader)
				if sorted := slices.Sorted(slices.Values(p.ISR)); slices.Equal(sorted, want) && p.Leader != cluster.NoLeader {
					continue
				}
				open++
				c := broker.IsrChange{Partition: id, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
				for _, b := range want {
					c.NewISR = append(c.NewISR, broker.IsrMember{Broker: b})
				}
				changes[p.Leader] = append(changes[p.Leader], c)
			}
		})
		for id, c := range changes {
			if id != cluster.NoLeader {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
				_, _ = r.brokers[id].AlterPartition(ctx, c)
				cancel()
			}
		}
		return open == 0
	})
}

// fill makes every ISR whole.
func (r *restored) fill() {
	r.t.Helper()
	r.alter(func(int32, cluster.BrokerID) []cluster.BrokerID { return []cluster.BrokerID{0, 1, 2} })
}

// shrink leaves every other partition its leader alone.
func (r *restored) shrink() {
	r.t.Helper()
	r.alter(func(i int32, leader cluster.BrokerID) []cluster.BrokerID {
		if i%2 == 0 {
			return []cluster.BrokerID{leader}
		}
		return []cluster.BrokerID{0, 1, 2}
	})
}

// states are what the brokers hold of orders: the newest of each partition.
func (r *restored) states() []broker.PartitionState {
	out := make([]broker.PartitionState, recoverPartitions)
	for i := range out {
		for n, b := range r.brokers {
			if s, ok := b.Partition(cluster.PartitionID{Topic: r.topic, Index: int32(i)}); ok && (n == 0 || s.Compare(&out[i]) > 0) {
				out[i] = s
			}
		}
	}
	return out
}

func (r *restored) recover(args ...string) result {
	return cli(append([]string{"recover", "--etcd-endpoints=" + r.etcd.Endpoint(), "--cluster=test"}, args...)...)
}

// TestRecover: etcd is restored from a snapshot that is older than three terms
// and 100 changes of leaders. Without recover brokers refuse every new term, and
// epochs go back; with it none does.
func TestRecover(t *testing.T) {
	r := newRestored(t)
	lived, counter := r.witnesses[0], r.witnesses[1]
	before, last := r.states(), cluster.Epoch(0)
	for _, b := range r.brokers {
		last = max(last, b.ControllerEpoch())
	}
	if last < 4 || r.moves() < 100 {
		t.Fatalf("since the snapshot of epoch 1: epoch %d, %d changes of leaders", last, r.moves())
	}

	t.Run("without", func(t *testing.T) {
		r.t = t
		lived.look(func() { lived.away = true })
		counter.look(func() { counter.away = false })
		r.etcd.Restore(r.snapshot, 1_000_000)
		stop := counter.follow(t, r.etcd)
		r.start()
		eventually(t, "brokers refuse the new term", func() (refused bool) {
			counter.look(func() { refused = len(counter.stale) > 0 })
			return refused
		})
		active, _ := r.roles()
		r.await(active, "the daemon says what to do", func(v rpc.View) bool {
			return !v.Healthy && strings.Contains(strings.Join(v.Problems(), "\n"), "3 of 3 live brokers know of controller epoch")
		})
		status := cli("controller", "status", "--server="+active.Endpoint).want(t, exitOK).stdout
		if !strings.Contains(status, "run controllerd recover") {
			t.Errorf("status:\n%s", status)
		}
		if got := r.recover("--yes", "--seat-wait=0s").want(t, exitFailed).stderr; !strings.Contains(got, "stop all daemons") {
			t.Errorf("while a daemon is active: %s", got)
		}
		var found []string
		counter.look(func() {
			for _, v := range counter.check.Violations() {
				found = append(found, v.Error()[:2])
			}
		})
		for _, want := range []string{"I2", "I4"} { // the epoch key and leader epochs fell
			if !slices.Contains(found, want) {
				t.Errorf("the restore is not seen as %s, but as %v", want, slices.Compact(found))
			}
		}
		r.stop()
		stop()
		counter.look(func() { counter.away = true })
	})
	t.Run("without a bumped revision", func(t *testing.T) {
		r.t = t
		r.etcd.Restore(r.snapshot, 0)
		rev := revision(t, r.etcd.Client(t))
		if got := r.recover("--yes", "--seat-wait=0s").want(t, exitFailed).stderr; !strings.Contains(got, "restore once more, with --mark-compacted and a --bump-revision") {
			t.Errorf("refused: %s", got)
		}
		wantNothingWritten(t, r.etcd, rev)
	})
	r.t = t
	r.etcd.Restore(r.snapshot, 2_000_000)
	dry := decode[recoveredView](t, r.recover("--dry-run", "-o", "json"))
	if !dry.Needed || dry.Written || !dry.DryRun || dry.Ahead < recoverPartitions || dry.Adopted < recoverPartitions/2 || dry.EpochOfBrokers != int64(last) {
		t.Errorf("dry run: %+v", dry)
	}
	v := decode[recoveredView](t, r.recover("--yes", "--reason", "disk lost", "-o", "json"))
	if !v.Written || v.Resumed || v.Epoch <= int64(last) || len(v.Brokers) != 3 || len(v.UnknownTopics) != 1 || !strings.HasPrefix(v.UnknownTopics[0], "young (") {
		t.Errorf("recovered: %+v", v)
	}
	again := decode[recoveredView](t, r.recover("--yes", "-o", "json"))
	if again.Needed || again.Written || again.Epoch != v.Epoch {
		t.Errorf("a second time: %+v", again)
	}

	lived.look(func() { lived.away, lived.stale = false, nil })
	lived.follow(t, r.etcd)
	r.start()
	r.fill() // needs a leader that obeys, of each partition
	r.converged()
	for i, s := range r.states() {
		if was := before[i]; s.LeaderEpoch <= was.LeaderEpoch || s.PartitionEpoch <= was.PartitionEpoch {
			t.Errorf("partition %d: leader epoch %d after %d, partition epoch %d after %d", i, s.LeaderEpoch, was.LeaderEpoch, s.PartitionEpoch, was.PartitionEpoch)
		}
	}
	lived.look(func() {
		if len(lived.stale) > 0 {
			t.Errorf("%d commands were refused, the first: %+v", len(lived.stale), lived.stale[0])
		}
		for _, v := range lived.check.Violations() {
			t.Error(v)
		}
	})
	history := decode[historyView](t, r.cli("controller", "history", "-o", "json"))
	i := slices.IndexFunc(history.Terms, func(h termView) bool { return h.Epoch == v.Epoch })
	if i < 0 || history.Terms[i].Cause != "recovered" || history.Terms[i].Reason != "disk lost" {
		t.Errorf("history: %+v", history.Terms)
	}
}

// converged waits until the brokers hold what etcd holds.
func (r *restored) converged() {
	r.t.Helper()
	w := r.witnesses[0]
	eventually(r.t, "brokers hold what etcd holds", func() (held bool) {
		w.look(func() {
			before := w.check.Looks().Converged
			w.check.Tick(time.Since(w.began), nil, true)
			held = w.check.Looks().Converged > before
		})
		return held
	})
}

func wantNothingWritten(t *testing.T, etcd *etcdtest.Cluster, since int64) {
	t.Helper()
	snap, err := etcd.Store(t).List(t.Context(), testKeys.Prefix(), true)
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range snap.KVs {
		if int64(kv.ModRev) > since {
			t.Errorf("key %s was written at %d", kv.Key, kv.ModRev)
		}
	}
}

// TestRecoverUsage: what makes no sense is refused before etcd is asked, and
// what is not typed is not written.
func TestRecoverUsage(t *testing.T) {
	for args, want := range map[string]string{
		"x":                              `unexpected argument "x"`,
		"--leader-epoch-step 0":          "--leader-epoch-step is 0, want 1 or more",
		"--epoch-above -1":               "--epoch-above is -1",
		"--seat-wait -1s":                "--seat-wait is -1s",
		"--timeout 0s":                   "timeout 0s is not positive",
		"--cluster A":                    `cluster name "A"`,
		"--etcd-user u":                  "--etcd-user without a password",
		"--reason \xff":                  "is not UTF-8",
		"--epoch-above 9e9":              "invalid argument",
		"--leader-epoch-step 9999999999": "invalid argument",
	} {
		if r := cli(append([]string{"recover", "--yes"}, strings.Fields(args)...)...).want(t, exitUsage); !strings.Contains(r.stderr, want) {
			t.Errorf("recover %s: %s, want %q", args, r.stderr, want)
		}
	}
	if r := cli("recover", "--yes", "--etcd-endpoints=127.0.0.1:1", "--timeout=100ms").want(t, exitAway); r.stderr != "Error: no answer from etcd at 127.0.0.1:1 in time\n" {
		t.Errorf("without etcd: %s", r.stderr)
	}
	etcd := etcdtest.Start(t)
	recovering := func(args ...string) result {
		return cli(append([]string{"recover", "--etcd-endpoints=" + etcd.Endpoint(), "--cluster=test"}, args...)...)
	}
	if r := recovering("--yes").want(t, exitFailed); !strings.Contains(r.stderr, "this is no cluster") {
		t.Errorf("an empty etcd: %s", r.stderr)
	}
	client := etcd.Client(t)
	for key, value := range map[string][]byte{
		testKeys.Cluster(): cluster.Encode(&pb.ClusterRecord{Uuid: "u", Format: 1}),
		testKeys.Node(1):   cluster.Encode(&pb.NodeRecord{NodeUuid: "n", ControlAddress: "127.0.0.1:1"}),
	} {
		if _, err := client.Put(t.Context(), key, string(value)); err != nil {
			t.Fatal(err)
		}
	}
	r := recovering("--yes").want(t, exitFailed)
	if !strings.Contains(r.stderr, "broker 1 has not answered: name its control address with --brokers") || !strings.Contains(r.stdout, "connection refused") {
		t.Errorf("a broker is away: %s%s", r.stdout, r.stderr)
	}
	rev := revision(t, client)
	if r := recovering("--epoch-above=7").want(t, exitUsage); !strings.Contains(r.stderr, "give --yes") {
		t.Errorf("nobody to ask: %s", r.stderr)
	}
	wantNothingWritten(t, etcd, rev)
}

// TestDaemonsLiveThroughARestore: they hold what etcd has lost, so they stand by
// and say why.
func TestDaemonsLiveThroughARestore(t *testing.T) {
	for _, bump := range []uint64{0, 1_000_000} {
		t.Run(fmt.Sprint("bump ", bump), func(t *testing.T) {
			w := newWorld(t, 2, 1)
			w.topic("orders", 3, 1)
			snapshot := w.etcd.Snapshot()
			w.cli("controller", "resign").want(t, exitOK)
			w.roles()
			w.topic("young", 3, 1)
			w.etcd.Restore(snapshot, bump)
			for _, d := range w.daemons {
				w.await(d, "it says what to do, and stands by", func(v rpc.View) bool {
					return !v.Active && !v.Healthy && strings.Contains(strings.Join(v.Problems(), "\n"), "etcd was restored to an older state")
				})
			}
		})
	}
}
