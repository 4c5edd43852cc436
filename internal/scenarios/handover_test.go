package scenarios

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// counters are what a daemon has counted since it started.
func (d *daemon) counters() map[string]int64 {
	d.w.t.Helper()
	resp, err := d.admin.DescribeController(d.w.call(), &pb.DescribeControllerRequest{})
	if err != nil {
		d.w.t.Fatalf("describe %s: %v", d.ID, err)
	}
	return resp.GetCounters()
}

// A planned hand-over says nothing again: every broker's stream goes on at the
// next controller where it ended, and what changes right after reaches all.
func TestHandOverSendsNothingAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	daemons := map[string]*daemon{"a": w.daemon("a"), "b": w.daemon("b")}
	w.candidateLease("a", 0)
	w.candidateLease("b", 0)
	w.active(1, soon)
	brokers := w.startBrokers(3)
	id := w.create("orders", 40, 3)
	w.converged(soon)
	for range 4 {
		_, from := w.seat()
		w.await("every broker is known to know everything", soon, func() bool { return w.untold() == 0 })
		before := map[string]map[string]int64{"a": daemons["a"].counters(), "b": daemons["b"].counters()}
		w.resign()
		_, to := w.seat()
		if to == from {
			t.Fatalf("%s follows, who resigned", to)
		}
		w.await("all streams are open again", soon, func() bool {
			return daemons[to].counters()["streams_resumed"] == before[to]["streams_resumed"]+int64(len(brokers))
		})
		p := cluster.PartitionID{Topic: id, Index: int32(w.epoch())}
		if r, err := w.shrink(w.call(), brokers, p); err != nil || r[0].Reason != "" {
			t.Fatalf("alter the ISR: %+v, %v", r, err)
		}
		w.converged(soon)
		for name, d := range daemons {
			now := d.counters()
			grown := func(counter string) int64 { return now[counter] - before[name][counter] }
			sent := int64(0)
			if name == to {
				sent = int64(len(brokers)) // the one that changed
			}
			if grown("full_syncs") != 0 || grown("states_sent") != sent || grown("digests_mismatched") != 0 {
				t.Errorf("%s after a hand-over to %s: %d full syncs, %d states sent, %d digests wrong", name, to,
					grown("full_syncs"), grown("states_sent"), grown("digests_mismatched"))
			}
		}
	}
}

// untold is how many brokers do not yet know that they know everything: from
// the end of what each was told last a stream could not go on.
func (w *world) untold() (n int) {
	w.mu.Lock()
	brokers := slices.Clone(w.brokers)
	w.mu.Unlock()
	var need int64
	w.tape.look(func(im *cluster.Image) {
		for _, t := range im.Topics {
			im.Partitions(t, func(_ cluster.PartitionID, p *cluster.Partition) { need = max(need, int64(p.Decided)) })
		}
	})
	for _, b := range brokers {
		if hello := w.hello(b); hello.GetResume().GetRevision() <= need {
			n++
		}
	}
	return n
}

// hello is the first word of a broker to whoever opens a stream.
func (w *world) hello(b *node) *pb.Hello {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.call())
	defer cancel()
	stream, err := pb.NewCommandServiceClient(dial(w.t, b.ControlAddress())).Commands(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := stream.Recv()
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.GetHello()
}

// Brokers lack something though they have said that they obeyed: what their
// gates were given was altered on the way. Digests find it within two pings,
// each is told everything again, and that is counted once.
func TestDigestFindsAlteredMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.daemon("a")
	w.active(1, soon)
	alterations := []*alteration{
		{what: "a replica is missing", alter: func(req *pb.CommandsRequest) bool {
			return cut(req.GetCommand().GetLeaderAndIsr().GetTopics())
		}},
		{what: "metadata is missing", alter: func(req *pb.CommandsRequest) bool {
			return cut(req.GetCommand().GetUpdateMetadata().GetTopics())
		}},
		{what: "an older state", alter: func(req *pb.CommandsRequest) bool {
			for _, ts := range req.GetCommand().GetLeaderAndIsr().GetTopics() {
				for _, p := range ts.GetPartitions() {
					if p.GetPartitionEpoch() > 0 {
						p.PartitionEpoch--
						return true
					}
				}
			}
			return false
		}},
	}
	brokers := w.startBrokers(2)
	for i, x := range alterations {
		brokers = append(brokers, w.broker(cluster.BrokerID(2+i), bent(&bend{received: x.received})))
		w.registered(brokers[2+i])
	}
	id := w.assigned("orders", []int32{0, 1, 4})
	w.converged(soon)
	before := a.counters()
	for _, x := range alterations {
		x.arm()
	}
	if r, err := w.shrink(w.call(), brokers, cluster.PartitionID{Topic: id}); err != nil || r[0].Reason != "" {
		t.Fatalf("alter the ISR: %+v, %v", r, err)
	}
	w.assigned("payments", []int32{0, 2, 3}, []int32{0, 2, 3})
	for i, x := range alterations {
		w.await(x.what, soon, x.happened)
		w.tape.look(func(im *cluster.Image) {
			if compareBroker(im, brokers[2+i]) == "" {
				t.Errorf("%s: nothing is wrong", x.what)
			}
		})
	}
	w.await("the digests tell", time.Minute, func() bool {
		return a.counters()["digests_mismatched"] >= before["digests_mismatched"]+int64(len(alterations))
	})
	w.converged(soon)
	pass(rpc.PingInterval + time.Second) // the next ping finds nothing
	now := a.counters()
	for _, counter := range []string{"digests_mismatched", "full_syncs"} {
		if n := now[counter] - before[counter]; n != int64(len(alterations)) {
			t.Errorf("%s: %d, want %d", counter, n, len(alterations))
		}
	}
	if now["keys_healed"] != before["keys_healed"] {
		t.Error("something was wrong in the image too")
	}
}

// alteration changes one command on its way to a gate.
type alteration struct {
	what  string
	alter func(*pb.CommandsRequest) bool // it did

	mu          sync.Mutex
	armed, done bool
}

func (x *alteration) received(_ context.Context, req *pb.CommandsRequest) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.armed && !x.done {
		x.done = x.alter(req)
	}
	return nil
}

func (x *alteration) arm() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.armed = true
}

func (x *alteration) happened() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.done
}

// cut leaves out the last partition that a command names.
func cut(topics []*pb.TopicStates) bool {
	if len(topics) == 0 {
		return false
	}
	ts := topics[len(topics)-1]
	ts.Partitions = ts.Partitions[:len(ts.Partitions)-1]
	return true
}
