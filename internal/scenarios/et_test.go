package scenarios

import (
	"strings"
	"sync/atomic"
	"testing"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/etcdtest"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Limits of etcd as it comes.
const (
	etcdMaxOps   = 128
	etcdMaxBytes = 1_500 << 10
)

// inspect checks every transaction with which a daemon writes topics or
// partitions: it is within etcd's limits, and it carries the whole guard.
func (w *world) inspect(d *daemon) {
	state := []func(any) bool{writes(w.keys.Prefix() + "topics/"), writes(w.keys.Prefix() + "partitions/")}
	d.faults.Add(etcdtest.Rule{Effect: etcdtest.Refuse, Method: "Txn", Match: func(msg any) bool {
		if !state[0](msg) && !state[1](msg) {
			return false
		}
		txn := msg.(*etcdpb.TxnRequest)
		if len(txn.Compare) > etcdMaxOps || len(txn.Success) > etcdMaxOps || proto.Size(txn) > etcdMaxBytes {
			w.t.Errorf("a transaction of %d compares, %d operations, %d bytes", len(txn.Compare), len(txn.Success), proto.Size(txn))
		}
		guards := map[string]int64{}
		for _, c := range txn.Compare {
			if c.Target == etcdpb.Compare_MOD && c.Result == etcdpb.Compare_EQUAL {
				guards[string(c.Key)] = c.GetModRevision()
			}
		}
		if seat := guards[w.keys.Controller()]; seat == 0 || seat != guards[w.keys.ControllerEpoch()] {
			w.t.Errorf("a transaction without the guard: %v", guards)
		}
		return false // it passes
	}})
}

// What does not fit into one transaction is cut into several, each with the
// guard. One that a deposed controller did not come to is done by the next.
func TestET2LimitsOfTransactions(t *testing.T) {
	longOr(func() {}, t.Parallel)() // the long one needs the machine for itself
	w := newWorld(t)
	daemons := []*daemon{w.daemon("a", withTTL(2*patient)), w.daemon("b", withTTL(2*patient))}
	for _, d := range daemons {
		w.inspect(d)
	}
	w.active(1, soon)
	brokers := w.startBrokers(4, withSession(2*patient))
	w.create("many", 3_000, 3)
	w.create("huge", longOr[int32](20_000, 5_000), 3)
	w.createTopic(&pb.NewTopic{Name: "fine", Partitions: 700, ReplicationFactor: 3, BlockSize: 1})
	w.refuses(&pb.NewTopic{Name: "absurd", Partitions: cluster.MaxPartitions + 1, ReplicationFactor: 3}, cluster.InvalidPartitions)
	w.refuses(&pb.NewTopic{Name: "wide", Partitions: 1, ReplicationFactor: 30_000}, cluster.InvalidReplicationFactor)
	w.converged(2 * limit)

	brokers[3].kill()
	w.revoke(w.sessionLease(3))
	w.await("broker 3 leads nothing", 2*limit, func() bool { return w.leads(3) == 0 })
	w.converged(2 * limit)

	// The next one is interrupted: three of its transactions pass.
	claim, _ := w.seat()
	d := w.active(claim.Epoch, soon)
	var n atomic.Int64
	match := writes(w.keys.Prefix() + "partitions/")
	held := d.faults.Add(etcdtest.Rule{Effect: etcdtest.Hold, Method: "Txn", Match: func(msg any) bool { return match(msg) && n.Add(1) > 3 }})
	defer held.Remove()
	rev := w.tape.rev()
	brokers[2].kill()
	w.revoke(w.sessionLease(2))
	<-held.Hit()
	written := func() map[cluster.Epoch]bool {
		out := map[cluster.Epoch]bool{}
		for _, c := range w.tape.after(rev, func(key string) bool { return strings.HasPrefix(key, w.keys.Prefix()+"partitions/") }) {
			block := &pb.PartitionBlock{}
			if err := proto.Unmarshal(c.KV.Value, block); err != nil {
				t.Fatal(err)
			}
			for _, p := range block.GetPartitions() {
				out[cluster.Epoch(p.GetControllerEpoch())] = true
			}
		}
		return out
	}
	w.await("a part is written", soon, func() bool { return written()[claim.Epoch] })
	w.revoke(w.seatLease())
	w.seated(claim.Epoch+1, soon)
	held.Remove() // whoever follows
	w.await("broker 2 leads nothing", 2*limit, func() bool { return w.leads(2) == 0 && w.offline() == 0 })
	w.converged(2 * limit)
	if by := written(); !by[claim.Epoch] || !by[claim.Epoch+1] {
		t.Errorf("partitions were written under the epochs %v", by)
	}
}

// createTopic makes a topic with all that can be said of it.
func (w *world) createTopic(nt *pb.NewTopic) {
	w.t.Helper()
	resp, err := w.someAdmin(0).CreateTopics(w.call(), &pb.CreateTopicsRequest{Topics: []*pb.NewTopic{nt}})
	if err != nil || resp.GetResults()[0].GetError() != "" {
		w.t.Fatalf("create %v: %v, %v", nt, resp, err)
	}
}

// refuses checks that a topic is refused, with which error.
func (w *world) refuses(nt *pb.NewTopic, want cluster.Reason) {
	w.t.Helper()
	resp, err := w.someAdmin(0).CreateTopics(w.call(), &pb.CreateTopicsRequest{Topics: []*pb.NewTopic{nt}})
	if err != nil || cluster.Reason(resp.GetResults()[0].GetError()) != want {
		w.t.Errorf("create %v: %v, %v", nt, resp, err)
	}
}
