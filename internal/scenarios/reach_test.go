package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/etcdtest"
	"github.com/controllerd/controllerd/internal/localcluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// impatient is for how long brokers are not answered for in tests before they
// count as unreachable.
const impatient = 1500 * time.Millisecond

func unreachableAfter(d time.Duration) daemonOption {
	return func(_ *daemon, cfg *localcluster.DaemonConfig) { cfg.Unreachable = d }
}

// marked are the brokers that etcd holds as unreachable.
func (w *world) marked() (out []cluster.BrokerID) {
	w.tape.look(func(im *cluster.Image) {
		for _, b := range im.SortedBrokers() {
			if b.Unreachable() {
				out = append(out, b.ID)
			}
		}
	})
	return out
}

// everMarked reports whether any broker ever was.
func (w *world) everMarked() bool {
	for _, c := range w.tape.after(0, func(key string) bool { return strings.HasPrefix(key, w.keys.Prefix()+"brokers/") }) {
		r := &pb.BrokerRecord{}
		if !c.Deleted && proto.Unmarshal(c.KV.Value, r) == nil && r.GetUnreachable() {
			return true
		}
	}
	return false
}

// A broker keeps its session, but nothing reaches its control listener: it is
// marked, what it leads is led elsewhere, and a new active sees it so. When it
// answers again it may lead again.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a", unreachableAfter(impatient))
	a := w.active(1, soon)
	b := w.daemon("b", unreachableAfter(impatient))
	proxy, behind := w.behindProxy()
	lost := w.broker(0, behind)
	w.registered(lost)
	leader := w.broker(1)
	w.registered(leader)
	w.registered(w.broker(2))
	topic, single := w.assigned("t", []int32{0, 1, 2}, []int32{1, 0, 2}), w.assigned("single", []int32{0})
	w.converged(soon)
	epoch := lost.Epoch()
	letIn := func() cluster.Reason {
		id := cluster.PartitionID{Topic: topic}
		var p cluster.Partition
		w.tape.look(func(im *cluster.Image) { p = im.Partition(id).Clone() })
		got, err := leader.AlterPartition(w.call(), []broker.IsrChange{{
			Partition: id, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch,
			NewISR: []broker.IsrMember{{Broker: 1}, {Broker: 2}, {Broker: 0, Epoch: epoch}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return got[0].Reason
	}

	proxy.Refuse()
	w.await("it is marked, and the others lead without it", soon, func() (ok bool) {
		w.tape.look(func(im *cluster.Image) {
			ok = im.Brokers[0] != nil && im.Brokers[0].Unreachable()
			for i := range int32(2) {
				p := im.Partition(cluster.PartitionID{Topic: topic, Index: i})
				ok = ok && p.Leader == 1 && slices.Equal(p.ISR, ids(1, 2)) && p.Cause == pb.ChangeCause_CHANGE_CAUSE_BROKER_UNREACHABLE
			}
		})
		return ok
	})
	w.tape.look(func(im *cluster.Image) {
		alone := im.Partition(cluster.PartitionID{Topic: single})
		if im.Brokers[0].Epoch != epoch || im.Brokers[0].Lease == 0 || alone.Leader != 0 {
			t.Errorf("broker %+v, its own partition %+v", im.Brokers[0], alone)
		}
	})
	if got := letIn(); got != cluster.IneligibleReplica {
		t.Errorf("to let it into the ISR is answered %q", got)
	}
	resp, err := b.admin.ListBrokers(w.call(), &pb.ListBrokersRequest{}) // a standby asks the active
	if err != nil || !resp.GetFromActive() || !resp.GetBrokers()[0].GetUnreachable() || resp.GetBrokers()[0].GetProblem() == "" ||
		resp.GetBrokers()[0].ResumePoint != nil || resp.GetBrokers()[1].GetResumePoint() == 0 {
		t.Errorf("brokers %v, %v", resp, err)
	}

	a.stop()
	w.active(2, soon)
	status, err := b.admin.DescribeController(w.call(), &pb.DescribeControllerRequest{})
	if err != nil || !slices.Equal(status.GetUnreachableBrokers(), []int32{0}) {
		t.Errorf("status of the new active: %v, %v", status, err)
	}
	pass(2 * impatient) // it is one of three: no reason to resign
	if e := w.epoch(); e != 2 || !slices.Equal(w.marked(), ids(0)) {
		t.Errorf("epoch %d, marked %v", e, w.marked())
	}
	proxy.Heal()
	w.await("the mark is taken back", soon, func() bool { return len(w.marked()) == 0 })
	w.converged(soon)
	w.tape.look(func(im *cluster.Image) {
		if im.Brokers[0].Epoch != epoch {
			t.Errorf("epoch %d, was %d", im.Brokers[0].Epoch, epoch)
		}
	})
	if got := letIn(); got != "" {
		t.Errorf("to let it into the ISR again is refused: %s", got)
	}
}

// The active reaches none of the brokers, others would: it gives up the seat,
// says why in the history, and does not come back to it. Nobody is marked.
func TestCutOffActiveResigns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a", unreachableAfter(impatient))
	a := w.active(1, soon)
	fault := a.toBrokers.Add(etcdtest.Rule{Effect: etcdtest.Refuse, Method: "Commands"})
	defer fault.Remove()
	b := w.daemon("b", unreachableAfter(impatient))
	w.await("both campaign", soon, func() bool { return len(w.candidates()) == 2 })
	w.startBrokers(3)
	w.await("the other follows", soon, func() bool { _, id := w.seat(); return id == "b" })
	w.create("t", 6, 3)
	w.converged(soon)
	pass(3 * impatient)
	if _, ok := b.active(); !ok || w.epoch() != 2 || w.everMarked() {
		t.Errorf("active %v, epoch %d, marked %v", ok, w.epoch(), w.marked())
	}
	resp, err := b.admin.ListTerms(w.call(), &pb.ListTermsRequest{})
	if err != nil || len(resp.GetTerms()) != 2 || resp.GetTerms()[1].GetEndCause() != pb.EndCause_END_CAUSE_CUT_OFF ||
		!strings.HasPrefix(resp.GetTerms()[1].GetEndReason(), "3 of 3 live brokers") {
		t.Errorf("history %v, %v", resp, err)
	}
}

// order notes what comes first on the streams to a process.
type order struct {
	live     bool // the first command named the live brokers
	commands int
	known    map[string]bool // partitions of which it has heard metadata
	faults   []string
}

// note is told of each command in turn; both are on the stream's goroutine.
func (o *order) note(_ context.Context, req *pb.CommandsRequest) error {
	cmd := req.GetCommand()
	if cmd == nil {
		return nil
	}
	if o.commands++; o.commands == 1 {
		o.live = cmd.GetUpdateMetadata().GetLiveBrokers() != nil
		o.known = map[string]bool{}
	}
	each := func(topics []*pb.TopicStates, fn func(string)) {
		for _, t := range topics {
			for _, p := range t.GetPartitions() {
				fn(fmt.Sprintf("%s/%d", t.GetTopic(), p.GetPartition()))
			}
		}
	}
	each(cmd.GetUpdateMetadata().GetTopics(), func(p string) { o.known[p] = true })
	each(cmd.GetLeaderAndIsr().GetTopics(), func(p string) {
		if !o.known[p] {
			o.faults = append(o.faults, p)
		}
	})
	return nil
}

// knowsLive reports whether all of the brokers name exactly the given ones as
// live.
func knowsLive(brokers []*node, want ...cluster.BrokerID) bool {
	for _, b := range brokers {
		var got []cluster.BrokerID
		for _, l := range b.Live() {
			got = append(got, l.ID)
		}
		if !slices.Equal(got, want) {
			return false
		}
	}
	return true
}

// Who is live is told though no partition changes, and a broker that knows
// nothing hears first who is live, then metadata, then what is its own.
func TestBR6MetadataWithoutPartitionChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a")
	w.active(1, soon)
	brokers := w.startBrokers(2)
	w.create("t", 1000, 2)
	w.converged(limit)

	began := &order{}
	extra := w.broker(7, bent(&bend{received: began.note})) // without replicas
	w.registered(extra)
	prompt := 2 * time.Second
	all := append(slices.Clone(brokers), extra)
	w.await("a broker without replicas is known to all", prompt, func() bool { return knowsLive(all, 0, 1, 7) })
	w.converged(soon)
	extra.kill()
	w.revoke(w.sessionLease(7))
	w.await("it is known to be gone", prompt, func() bool { return knowsLive(brokers, 0, 1) })
	if !began.live || len(began.known) != 1000 {
		t.Errorf("live brokers first: %v, metadata of %d partitions", began.live, len(began.known))
	}

	orders := []*order{{}, {}}
	for _, b := range brokers {
		b.kill()
	}
	var again []*node
	for id := range 2 {
		again = append(again, w.broker(cluster.BrokerID(id), bent(&bend{received: orders[id].note})))
	}
	for _, b := range again {
		w.registered(b)
	}
	w.await("all of them, restarted, know each other", soon, func() bool { return knowsLive(again, 0, 1) })
	w.converged(limit)
	for _, b := range again {
		b.kill() // what follows is not written to any more
	}
	for id, o := range orders {
		if !o.live || len(o.known) != 1000 || len(o.faults) > 0 {
			t.Errorf("broker %d: live brokers first: %v, metadata of %d partitions, own state before metadata: %v", id, o.live, len(o.known), o.faults)
		}
	}
}

// endpointOf is where a broker hears that another is reached.
func endpointOf(b *node, id cluster.BrokerID) string {
	for _, l := range b.Live() {
		if l.ID == id && len(l.Endpoints) > 0 {
			return l.Endpoints[0].Address
		}
	}
	return ""
}

// A broker's addresses change under its session: by hand, by itself, with a
// new process. The stream goes to the new one, the old one is closed, and all
// brokers hear of it.
func TestBR7AddressChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon("a")
	w.active(1, soon)
	brokers := w.startBrokers(2)
	w.create("t", 8, 2)
	w.converged(soon)
	epoch := brokers[1].Epoch()
	settled := func(what, endpoint string, throughProxy func() bool) {
		t.Helper()
		w.await(what, soon, func() bool {
			return endpointOf(brokers[0], 1) == endpoint && endpointOf(brokers[1], 1) == endpoint && brokers[1].streams.Load() == 1 && throughProxy()
		})
		w.create(strings.ReplaceAll(what, " ", "-"), 4, 2)
		w.converged(soon)
	}

	first := startProxy(t, brokers[1].ControlAddress())
	w.editBroker(1, func(r *pb.BrokerRecord) {
		r.ControlAddress, r.Endpoints = first.Addr(), []*pb.Endpoint{{Listener: "data", Address: "by-hand:1"}}
	})
	settled("edited by hand", "by-hand:1", func() bool { return first.Open() == 1 })

	second := startProxy(t, brokers[1].ControlAddress())
	if err := brokers[1].SetAddresses(w.call(), second.Addr(), []broker.Endpoint{{Listener: "data", Address: "itself:1"}}); err != nil {
		t.Fatal(err)
	}
	settled("set by the broker", "itself:1", func() bool { return first.Open() == 0 && second.Open() == 1 })
	if got := brokers[1].Epoch(); got != epoch {
		t.Errorf("broker epoch %d, was %d", got, epoch)
	}

	brokers[1].kill()
	brokers[1] = w.broker(1, func(_ *node, cfg *broker.Config) {
		cfg.Endpoints = []broker.Endpoint{{Listener: "data", Address: "restarted:1"}}
	})
	w.registered(brokers[1])
	settled("restarted elsewhere", "restarted:1", func() bool { return second.Open() == 0 })
	if got := brokers[1].Epoch(); got <= epoch {
		t.Errorf("broker epoch %d, was %d", got, epoch)
	}
}

// Two brokers have each other's address: nothing meant for one is obeyed by
// the other, nor tried again at once, and once each is registered where it is
// all is well.
func TestBR7AddressesSwapped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.daemon("a")
	w.active(1, soon)
	brokers := w.startBrokers(3)
	w.create("t", 6, 3)
	w.converged(soon)
	addresses := []string{brokers[0].ControlAddress(), brokers[1].ControlAddress()}
	heard := []int{len(brokers[0].observed()), len(brokers[1].observed())}
	swap := func(first, second string) {
		w.editBroker(0, func(r *pb.BrokerRecord) { r.ControlAddress = first })
		w.editBroker(1, func(r *pb.BrokerRecord) { r.ControlAddress = second })
	}
	swap(addresses[1], addresses[0])
	w.await("both are named", soon, func() bool {
		text := strings.Join(a.problems(), "\n")
		return strings.Contains(text, "answers broker 0") && strings.Contains(text, "answers broker 1")
	})
	w.create("while-swapped", 3, 3)
	before := a.counters()["commands_refused"]
	pass(2 * time.Second)
	if n := a.counters()["commands_refused"] - before; n > 0 {
		t.Errorf("%d commands were sent to the wrong broker", n)
	}
	for id, b := range brokers[:2] {
		for _, o := range b.observed()[heard[id]:] {
			if o.Topic == "while-swapped" {
				t.Errorf("broker %d has heard %+v", id, o)
			}
		}
	}
	stamp := &pb.Stamp{
		ClusterUuid: brokers[0].ClusterUUID(), ControllerId: byHandSender, ControllerEpoch: 1, BrokerId: 0, BrokerEpoch: int64(brokers[0].Epoch()),
	}
	cmd := &pb.Command{Stamp: stamp, Sequence: 1, Body: &pb.Command_UpdateMetadata{UpdateMetadata: &pb.UpdateMetadata{}}}
	if got := w.say(brokers[1], cmd).GetRefusal(); got != pb.Refusal_REFUSAL_WRONG_BROKER {
		t.Errorf("a command for broker 0 at broker 1: %v", got)
	}
	swap(addresses[0], addresses[1])
	w.converged(soon)

	// They come back at each other's port.
	brokers[0].kill()
	brokers[1].kill()
	for id, addr := range []string{addresses[1], addresses[0]} {
		brokers[id] = w.broker(cluster.BrokerID(id), func(_ *node, cfg *broker.Config) { cfg.ControlListen = addr })
	}
	w.registered(brokers[0])
	w.registered(brokers[1])
	w.converged(soon)
}

// A broker dies, and another takes its port before the session has ended: it is
// not told what was meant for the one that died.
func TestBR7PortTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.daemon("a")
	w.active(1, soon)
	brokers := w.startBrokers(2)
	w.create("t", 4, 2)
	w.converged(soon)
	addr := brokers[1].ControlAddress()
	brokers[1].kill()
	other := w.broker(5, func(_ *node, cfg *broker.Config) { cfg.ControlListen = addr })
	w.registered(other)
	w.await("it is named", soon, func() bool {
		return strings.Contains(strings.Join(a.problems(), "\n"), "answers broker 5") || w.sessionLease(1) == 0
	})
	w.await("the session ends", limit, func() bool { return w.sessionLease(1) == 0 })
	w.converged(soon)
	for _, o := range other.observed() {
		if o.Command == broker.LeaderAndIsr || o.BrokerEpoch != other.Epoch() {
			t.Errorf("broker 5 has heard %+v", o)
		}
	}
}
