package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/etcdtest"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// through makes a broker know some daemons only, at first.
func through(daemons ...*daemon) brokerOption {
	return func(_ *node, cfg *broker.Config) {
		cfg.Daemons = nil
		for _, d := range daemons {
			cfg.Daemons = append(cfg.Daemons, d.Endpoint)
		}
	}
}

// assigned makes a topic whose partitions have the given replicas.
func (w *world) assigned(name string, replicas ...[]int32) cluster.TopicID {
	w.t.Helper()
	return w.inBlocks(name, 0, replicas...)
}

// inBlocks does so with so many of them in a block, 0: as many as usual.
func (w *world) inBlocks(name string, size int32, replicas ...[]int32) cluster.TopicID {
	w.t.Helper()
	nt := &pb.NewTopic{Name: name, BlockSize: size}
	for _, r := range replicas {
		nt.Assignments = append(nt.Assignments, &pb.ReplicaAssignment{Replicas: r})
	}
	req := &pb.CreateTopicsRequest{RequestId: "request-" + name, Topics: []*pb.NewTopic{nt}}
	w.await("topic "+name+" is created", limit, func() bool {
		resp, err := w.someAdmin(0).CreateTopics(w.call(), req)
		if err == nil && resp.GetResults()[0].GetError() != "" {
			w.t.Fatalf("create %v: %v", nt, resp)
		}
		return err == nil
	})
	var id cluster.TopicID
	w.await("our own watch shows topic "+name, soon, func() (ok bool) {
		w.tape.look(func(im *cluster.Image) {
			if t := im.Topics[name]; t != nil {
				id, ok = t.ID, true
			}
		})
		return ok
	})
	return id
}

// A broker is another incarnation before anybody missed the one before: that is
// a failure and a start, whatever hides the time between.
func TestBR1BouncedInsideTTL(t *testing.T) {
	t.Parallel()
	restart := func(w *world, b *daemon, old *node) *node {
		old.kill()
		again := w.broker(1, through(b), withSession(patient), bent(old.bend))
		w.registered(again)
		return again
	}
	// Each returns who is broker 1 now, and what ends the hindrance.
	bounces := map[string]func(w *world, a, b *daemon, brokers []*node) (again *node, end func()){
		"restarted after 100 ms": func(w *world, a, _ *daemon, brokers []*node) (*node, func()) {
			brokers[1].kill()
			pass(100 * time.Millisecond)
			return restart(w, a, brokers[1]), func() {}
		},
		"seen in one batch": func(w *world, a, b *daemon, brokers []*node) (*node, func()) {
			end := hang(w, a)
			return restart(w, b, brokers[1]), end
		},
		"session lost, seen in one batch": func(w *world, a, b *daemon, brokers []*node) (*node, func()) {
			end := hang(w, a)
			old := brokers[1].Epoch()
			w.revoke(w.sessionLease(1))
			w.await("broker 1 has registered again", limit, func() bool { return brokers[1].Epoch() > old })
			return brokers[1], end
		},
		"while another broker takes its time": func(w *world, _, b *daemon, brokers []*node) (*node, func()) {
			busy, release := make(chan struct{}, 100), make(chan struct{})
			brokers[2].onApply(func(ctx context.Context, _ broker.PartitionState) error {
				busy <- struct{}{}
				select {
				case <-release:
				case <-ctx.Done():
				case <-time.After(5 * time.Second):
				}
				return ctx.Err()
			})
			w.create("more", 6, 3)
			<-busy
			return restart(w, b, brokers[1]), func() { close(release) }
		},
		"while the controller is cut off, then compacted": func(w *world, a, b *daemon, brokers []*node) (*node, func()) {
			a.proxy.Refuse()
			again := restart(w, b, brokers[1])
			if err := w.etcd.Compact(w.tape.rev()); err != nil {
				w.t.Fatal(err)
			}
			return again, a.proxy.Heal
		},
	}
	for name, bounce := range bounces {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.daemon("a", proxied(), withTTL(2*patient)) // it hangs for seconds
			w.active(1, soon)
			b := w.daemon("b")
			w.candidateLease("b", 0)
			said := &book{metadata: map[cluster.BrokerEpoch]map[int32]bool{}}
			brokers := w.startBrokers(3, withSession(patient))
			brokers[1].kill()
			brokers[1] = w.broker(1, withSession(patient), bent(&bend{received: said.note}))
			w.registered(brokers[1])
			id := w.create("orders", 6, 3)
			w.converged(soon)
			led := w.ledBy(id, 6, 1)
			if len(led) == 0 {
				t.Fatal("broker 1 leads nothing")
			}
			old := brokers[1].Epoch()

			again, end := bounce(w, a, b, brokers)
			if name == "while another broker takes its time" {
				defer end()
			} else {
				end()
			}
			w.await("the partitions that it led had an election", soon, func() bool {
				return !slices.ContainsFunc(led, func(p cluster.PartitionID) bool { return w.partition(p).LeaderEpoch == 0 })
			})
			w.await("it is told of all its replicas and of all partitions", soon, func() bool {
				return len(told(again, id)) == 6 && said.partitions(again.Epoch()) == 6
			})
			w.await("every partition has a leader", soon, func() bool { return w.offline() == 0 })
			for _, o := range again.observed() {
				if o.BrokerEpoch > old && o.BrokerEpoch != again.Epoch() {
					t.Errorf("a command for broker epoch %d, after %d it is %d", o.BrokerEpoch, old, again.Epoch())
				}
			}
			w.converged(soon)
			if claim, _ := w.seat(); claim.Epoch != 1 {
				t.Errorf("epoch %d", claim.Epoch)
			}
		})
	}
}

// book notes which partitions were named in metadata for which incarnation.
type book struct {
	mu       sync.Mutex
	metadata map[cluster.BrokerEpoch]map[int32]bool
}

func (b *book) note(_ context.Context, req *pb.CommandsRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	epoch := cluster.BrokerEpoch(req.GetCommand().GetStamp().GetBrokerEpoch())
	if b.metadata[epoch] == nil {
		b.metadata[epoch] = map[int32]bool{}
	}
	for _, ts := range req.GetCommand().GetUpdateMetadata().GetTopics() {
		for _, p := range ts.GetPartitions() {
			if ts.GetTopic() == "orders" {
				b.metadata[epoch][p.GetPartition()] = true
			}
		}
	}
	return nil
}

func (b *book) partitions(epoch cluster.BrokerEpoch) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.metadata[epoch])
}

// told are the partitions of a topic that a broker was told to lead or follow
// under its present epoch.
func told(n *node, topic cluster.TopicID) []int32 {
	var out []int32
	for _, o := range n.observed() {
		if o.Command == broker.LeaderAndIsr && o.TopicID == topic && o.BrokerEpoch == n.Epoch() && accepted(o) {
			out = append(out, o.Partition)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// A broker and the controller die together. The next controller never saw the
// broker alive; what it says first is true already.
func TestBR3DiesWithTheController(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"broker's key is gone at load": true, "broker's key expires after the load": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.daemon("a")
			w.active(1, soon)
			// Nobody keeps their sessions for a while.
			kept := []*node{w.broker(0, withSession(limit)), w.broker(2, withSession(limit))}
			dying := w.broker(1, withSession(sessionTTL*3/2))
			for _, b := range append(kept, dying) {
				w.registered(b)
			}
			var b *daemon
			if !gone {
				b = w.daemon("b")
				w.candidateLease("b", 0)
			}
			three := w.assigned("three", []int32{1, 0, 2}, []int32{0, 1, 2})
			two, one := w.assigned("two", []int32{1, 2}), w.assigned("one", []int32{1})
			w.converged(soon)
			lease := w.sessionLease(1)
			before := map[cluster.PartitionID]cluster.LeaderEpoch{}
			for _, id := range []cluster.PartitionID{{Topic: three}, {Topic: three, Index: 1}, {Topic: two}, {Topic: one}} {
				before[id] = w.partition(id).LeaderEpoch
			}

			dying.kill()
			a.kill()
			if gone {
				w.revoke(lease)
				w.await("our own watch shows that the broker is gone", soon, func() bool { return w.sessionLease(1) == 0 })
			}
			w.revoke(w.seatLease()) // as if it had expired
			if gone {
				b = w.daemon("b")
			}
			novice := w.fake(3, func(*pb.Command) *pb.CommandAck { return &pb.CommandAck{} })
			w.active(2, soon)
			want := map[cluster.PartitionID]cluster.Partition{
				{Topic: three}: {Leader: 0, ISR: ids(0, 2)}, {Topic: three, Index: 1}: {Leader: 0, ISR: ids(0, 2)},
				{Topic: two}: {Leader: 2, ISR: ids(2)}, {Topic: one}: {Leader: cluster.NoLeader, ISR: ids(1)},
			}
			w.await("every partition is as it should be, under a higher leader epoch", limit, func() bool {
				for id, want := range want {
					p := w.partition(id)
					if p.Leader != want.Leader || !slices.Equal(p.ISR, want.ISR) || p.LeaderEpoch <= before[id] {
						return false
					}
				}
				return true
			})
			w.converged(soon)
			w.await("the newcomer is told everything", soon, func() bool { return len(statesOf(novice)) >= 4 })
			if gone {
				w.await("and at last what is true", soon, func() bool { return deadLeads(novice, 1) == 0 })
				for _, c := range novice.commands() { // who lives is said first, and is true
					for _, l := range c.cmd.GetUpdateMetadata().GetLiveBrokers().GetBrokers() {
						if l.GetId() == 1 {
							t.Errorf("the dead broker is named as live: %v", c.cmd)
						}
					}
				}
				if first := novice.commands()[0].cmd; len(first.GetUpdateMetadata().GetLiveBrokers().GetBrokers()) == 0 {
					t.Errorf("the first command is %v", first)
				}
			}
			if _, active := b.active(); !active {
				t.Errorf("b is not active any more: %+v", b.history())
			}
		})
	}
}

func ids(list ...cluster.BrokerID) []cluster.BrokerID { return list }

// statesOf are the partition states that a broker was told, oldest first.
func statesOf(f *fake) (out []*pb.PartitionState) {
	for _, c := range f.commands() {
		for _, ts := range slices.Concat(c.cmd.GetUpdateMetadata().GetTopics(), c.cmd.GetLeaderAndIsr().GetTopics()) {
			out = append(out, ts.GetPartitions()...)
		}
	}
	return out
}

// deadLeads is for how many partitions the last that a broker was told names a
// leader that is dead.
func deadLeads(f *fake, dead int32) (n int) {
	last := map[string]*pb.PartitionState{}
	for _, c := range f.commands() {
		for _, ts := range slices.Concat(c.cmd.GetUpdateMetadata().GetTopics(), c.cmd.GetLeaderAndIsr().GetTopics()) {
			for _, p := range ts.GetPartitions() {
				last[fmt.Sprint(ts.GetTopic(), p.GetPartition())] = p
			}
		}
	}
	for _, p := range last {
		if p.GetLeader() == dead {
			n++
		}
	}
	return n
}

// The last replica in sync fails. The partition waits for it and for nobody
// else, through a failover too.
func TestBR4LastInSyncFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a")
	w.active(1, soon)
	w.daemon("b")
	w.candidateLease("b", 0)
	first, second := w.broker(1), w.broker(2)
	w.registered(first)
	w.registered(second)
	p := cluster.PartitionID{Topic: w.assigned("orders", []int32{1, 2})}
	w.converged(soon)
	is := func(leader cluster.BrokerID, isr ...cluster.BrokerID) {
		t.Helper()
		var have cluster.Partition
		if !poll(soon, func() bool {
			have = w.partition(p)
			return have.Leader == leader && slices.Equal(have.ISR, isr)
		}) {
			t.Fatalf("leader %d, ISR %v, want %d, %v", have.Leader, have.ISR, leader, isr)
		}
	}
	stop := func(n *node) {
		t.Helper()
		n.kill()
		w.revoke(w.sessionLease(n.id))
		w.await("the broker is gone", soon, func() bool { return w.sessionLease(n.id) == 0 })
	}
	start := func(id cluster.BrokerID) *node {
		t.Helper()
		n := w.broker(id)
		w.registered(n)
		w.converged(soon) // it and all others know
		return n
	}

	stop(second)
	is(1, 1)
	stop(first)
	is(cluster.NoLeader, 1)
	second = start(2)
	pass(time.Second)
	is(cluster.NoLeader, 1)
	le := w.partition(p).LeaderEpoch
	first = start(1)
	is(1, 1)
	if now := w.partition(p).LeaderEpoch; now <= le {
		t.Errorf("leader epoch %d after %d", now, le)
	}

	// Both are away while the controller changes; who was not in sync comes first.
	stop(second)
	stop(first)
	is(cluster.NoLeader, 1)
	w.resign()
	w.active(2, soon)
	second = start(2)
	pass(time.Second)
	is(cluster.NoLeader, 1)
	first = start(1)
	is(1, 1)
	w.converged(soon)
	// And with a failover while the last one in sync is away.
	stop(first)
	is(cluster.NoLeader, 1)
	w.resign()
	w.active(3, soon)
	pass(time.Second)
	is(cluster.NoLeader, 1)
	start(1)
	is(1, 1)
	if second.Epoch() == 0 {
		t.Error("broker 2 is not registered")
	}
	w.converged(soon)
}

// What must not come back into an ISR does not, and what an old incarnation
// says does not touch the new one. Whoever is asked answers as the active
// would, or not at all.
func TestBR5NotBackIntoTheISR(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.daemon("a"), w.daemon("b")
	w.active(1, soon)
	w.seatTo("a")
	w.candidateLease("b", 0)
	brokers := w.startBrokers(5, withSession(patient))
	p := cluster.PartitionID{Topic: w.assigned("orders", []int32{0, 1, 2, 4})}
	w.converged(soon)

	// Broker 2 dies, 3 is no replica, 4 is shutting down, 0 leads.
	brokers[2].kill()
	w.revoke(w.sessionLease(2))
	w.await("broker 2 has left the ISR", soon, func() bool { return !slices.Contains(w.partition(p).ISR, 2) })
	ask := func(to *daemon, be cluster.BrokerEpoch, le, pe int32, members ...*pb.IsrMember) cluster.Reason {
		t.Helper()
		var uuid string
		w.tape.look(func(im *cluster.Image) { uuid = im.Cluster.GetUuid() })
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		resp, err := pb.NewBrokerServiceClient(to.conn).AlterPartition(ctx, &pb.AlterPartitionRequest{
			ClusterUuid: uuid, BrokerId: 0, BrokerEpoch: int64(be), Topics: []*pb.AlterPartitionTopic{{
				TopicId: p.Topic[:], Partitions: []*pb.AlterPartitionEntry{{Partition: 0, LeaderEpoch: le, PartitionEpoch: pe, NewIsr: members}},
			}},
		})
		if err != nil {
			if reason := rpc.ReasonOf(err); reason != "" {
				return reason
			}
			return cluster.Reason(err.Error())
		}
		return cluster.Reason(resp.GetTopics()[0].GetPartitions()[0].GetError())
	}
	member := func(id cluster.BrokerID) *pb.IsrMember {
		return &pb.IsrMember{BrokerId: int32(id), BrokerEpoch: int64(brokers[id].Epoch())}
	}
	lead := brokers[0].Epoch()
	now := w.partition(p)
	if reason := ask(a, lead, int32(now.LeaderEpoch), int32(now.PartitionEpoch), member(0), member(1)); reason != "" {
		t.Fatalf("a smaller ISR is refused: %s", reason)
	}
	w.drainByHand(4)
	w.await("the ISR is smaller", soon, func() bool {
		now = w.partition(p)
		return slices.Equal(now.ISR, ids(0, 1))
	})
	for _, d := range []*daemon{a, b} { // the tape may be ahead of them
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		if err := d.Controller.Await(ctx, func(v rpc.View) bool { return v.Image.Brokers[4].Draining() }); err != nil {
			t.Fatalf("%s does not see that broker 4 drains: %v", d.ID, err)
		}
		cancel()
	}
	le, pe := int32(now.LeaderEpoch), int32(now.PartitionEpoch)

	unseen := func(id cluster.BrokerID) *pb.IsrMember { return &pb.IsrMember{BrokerId: int32(id), BrokerEpoch: -1} }
	cases := map[string]struct {
		be      cluster.BrokerEpoch
		le, pe  int32
		members []*pb.IsrMember
		want    cluster.Reason
	}{
		"dead":                   {lead, le, pe, []*pb.IsrMember{member(0), member(1), unseen(2)}, cluster.IneligibleReplica},
		"shutting down":          {lead, le, pe, []*pb.IsrMember{member(0), member(1), member(4)}, cluster.IneligibleReplica},
		"no replica":             {lead, le, pe, []*pb.IsrMember{member(0), member(1), member(3)}, cluster.InvalidRequest},
		"twice":                  {lead, le, pe, []*pb.IsrMember{member(0), member(1), member(1)}, cluster.InvalidRequest},
		"empty":                  {lead, le, pe, nil, cluster.InvalidRequest},
		"without the leader":     {lead, le, pe, []*pb.IsrMember{member(1)}, cluster.InvalidRequest},
		"old leader epoch":       {lead, le - 1, pe, []*pb.IsrMember{member(0)}, cluster.FencedLeaderEpoch},
		"old sender":             {lead - 1, le, pe, []*pb.IsrMember{member(0)}, cluster.StaleBrokerEpoch},
		"old partition epoch":    {lead, le, pe - 1, []*pb.IsrMember{member(0)}, cluster.InvalidUpdateVersion},
		"ahead of what is known": {lead, le, pe + 1, []*pb.IsrMember{member(0)}, cluster.NotController},
	}
	for _, to := range []*daemon{a, b} {
		for name, c := range cases {
			if reason := ask(to, c.be, c.le, c.pe, c.members...); reason != c.want {
				t.Errorf("%s, asked at %s: %q, want %q", name, to.ID, reason, c.want)
			}
		}
	}
	w.unregisterStale(a, brokers[1])
	if have := w.partition(p); have.PartitionEpoch != now.PartitionEpoch || have.LeaderEpoch != now.LeaderEpoch {
		t.Errorf("the partition is %+v, it was %+v", have, now)
	}

	// An old incarnation of a member that would be new.
	if reason := ask(a, lead, le, pe, member(0)); reason != "" {
		t.Fatalf("a smaller ISR is refused: %s", reason)
	}
	old := &pb.IsrMember{BrokerId: 1, BrokerEpoch: int64(brokers[1].Epoch()) - 1}
	if reason := ask(a, lead, le, pe+1, member(0), old); reason != cluster.IneligibleReplica {
		t.Errorf("an old incarnation of a member: %q", reason)
	}
	w.await("our own watch shows it", soon, func() bool { return len(w.partition(p).ISR) == 1 })

	w.deposedSaysNothing(a, func() cluster.Reason { return ask(a, lead, le, pe+1, member(0)) }, func() cluster.Reason {
		return ask(a, lead, le, pe+1, member(0), member(1))
	}, func() cluster.Reason { return ask(a, lead, le, pe+1) })
	if have := w.partition(p); !slices.Equal(have.ISR, ids(0)) {
		t.Errorf("the ISR is %v", have.ISR)
	}
}

// drainByHand writes that a broker is in controlled shutdown.
func (w *world) drainByHand(id cluster.BrokerID) {
	w.t.Helper()
	w.editBroker(id, func(r *pb.BrokerRecord) { r.State = pb.BrokerState_BROKER_STATE_DRAINING })
}

// editBroker changes a broker's record by hand; its session goes on.
func (w *world) editBroker(id cluster.BrokerID, edit func(*pb.BrokerRecord)) {
	w.t.Helper()
	r := &pb.BrokerRecord{}
	if err := proto.Unmarshal(w.value(w.keys.Broker(id)), r); err != nil {
		w.t.Fatal(err)
	}
	edit(r)
	w.put(w.keys.Broker(id), encode(w.t, r), clientv3.WithIgnoreLease())
}

// unregisterStale says goodbye in the name of an older incarnation.
func (w *world) unregisterStale(d *daemon, n *node) {
	w.t.Helper()
	var uuid string
	w.tape.look(func(im *cluster.Image) { uuid = im.Cluster.GetUuid() })
	epoch := n.Epoch()
	r := &pb.BrokerRecord{}
	if err := proto.Unmarshal(w.value(w.keys.Broker(n.id)), r); err != nil {
		w.t.Fatal(err)
	}
	_, err := pb.NewBrokerServiceClient(d.conn).Unregister(w.call(), &pb.UnregisterRequest{
		ClusterUuid: uuid, BrokerId: int32(n.id), BrokerEpoch: int64(epoch) - 1, Nonce: r.GetNonce(),
	})
	if rpc.ReasonOf(err) != cluster.StaleBrokerEpoch {
		w.t.Errorf("an older incarnation says goodbye: %v", err)
	}
	if w.sessionLease(n.id) == 0 || n.Epoch() != epoch {
		w.t.Errorf("broker %d was taken down by its older incarnation", n.id)
	}
}

// deposedSaysNothing takes the seat from the active behind its back, while its
// watch brings nothing, and asks it questions: those that would change
// something, and those that would not.
func (w *world) deposedSaysNothing(a *daemon, questions ...func() cluster.Reason) {
	w.t.Helper()
	before, _ := a.active()
	blind := a.faults.Add(etcdtest.Rule{Effect: etcdtest.HoldReply, Method: "Watch"})
	defer blind.Remove()
	w.remove(w.keys.Controller())
	w.seated(before.Epoch+1, soon)
	rev := w.tape.rev()
	for i, question := range questions {
		reason := question()
		if reason != cluster.NotController && reason != cluster.RequestTimedOut {
			w.t.Errorf("question %d: a controller without a seat answers %q", i, reason)
		}
	}
	state := func(key string) bool { return strings.HasPrefix(key, w.keys.Prefix()+"partitions/") }
	if c := w.tape.after(rev, state); len(c) > 0 {
		w.t.Errorf("it has written: %+v", c)
	}
}
