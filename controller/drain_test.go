package controller

import (
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

func (b *bench) drained(id int64) *pb.DrainBrokerResponse {
	b.t.Helper()
	a := b.answerOf(id)
	if a.Err != nil {
		b.t.Fatal(a.Err)
	}
	return a.Response.(*pb.DrainBrokerResponse)
}

// A broker is drained, and answered when it leads nothing that others could lead;
// what is counted of the rest is counted in slices.
func TestDrain(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 300, 1)
	b.l.cfg.Slice = 20
	drain := func(id cluster.BrokerID, cancel, dry bool) *pb.DrainBrokerResponse {
		r := b.ask(rpc.DrainBroker{DrainBrokerRequest: &pb.DrainBrokerRequest{BrokerId: int32(id), Cancel: cancel, ValidateOnly: dry, Reason: "why"}})[0]
		b.run()
		return b.drained(r)
	}
	leads := b.l.im.Load(1).Leaders
	if r := drain(1, false, true); !r.GetChanged() || r.GetLeaders() != int64(leads) || r.GetRemaining() != 0 || b.l.im.Brokers[1].ShuttingDown() {
		t.Errorf("a dry run: %v", r)
	}
	if r := drain(1, false, false); !r.GetChanged() || r.GetLeaders() != 0 || r.GetRemaining() != 0 || r.GetRevision() == 0 {
		t.Errorf("%v", r)
	}
	if b1 := b.l.im.Brokers[1]; !b1.ShuttingDown() || b1.Record.GetDrainReason() != "why" || b.l.im.Load(1).Leaders != 0 {
		t.Errorf("%v, leads %d", b1.Record, b.l.im.Load(1).Leaders)
	}
	if r := drain(1, false, false); r.GetChanged() {
		t.Errorf("again: %v", r)
	}
	drain(2, false, false)
	if r := drain(3, false, true); r.GetRemaining() != 300 || len(r.GetPartitions()) != 300 {
		t.Errorf("the last one: %d of %d remain", r.GetRemaining(), r.GetLeaders())
	}
	if r := drain(1, true, false); !r.GetChanged() || b.l.im.Brokers[1].ShuttingDown() || b.l.im.Brokers[1].Record.GetDrainReason() != "" {
		t.Errorf("the end: %v", r)
	}
	id := b.ask(rpc.DrainBroker{DrainBrokerRequest: &pb.DrainBrokerRequest{BrokerId: 9}})[0]
	b.run()
	if got := rpc.ReasonOf(b.answerOf(id).Err); got != cluster.BrokerIDNotRegistered {
		t.Errorf("of nobody: %s", got)
	}
}

// A broker that stops is answered the same way; one that is gone meanwhile, or is
// another process, is refused.
func TestControlledShutdown(t *testing.T) {
	b := newBench(t, 3)
	b.created("a", 30, 1)
	ask := func(epoch cluster.BrokerEpoch) int64 {
		return b.ask(rpc.ControlledShutdown{ControlledShutdownRequest: &pb.ControlledShutdownRequest{BrokerId: 1, BrokerEpoch: int64(epoch)}})[0]
	}
	epoch := b.l.im.Brokers[1].Epoch
	for _, wrong := range []cluster.BrokerEpoch{epoch - 1, epoch + 1} {
		id := ask(wrong)
		b.run()
		if got := rpc.ReasonOf(b.answerOf(id).Err); got != cluster.StaleBrokerEpoch {
			t.Errorf("epoch %d instead of %d: %s", wrong, epoch, got)
		}
	}
	id := ask(epoch)
	b.run()
	if r := b.answerOf(id).Response.(*pb.ControlledShutdownResponse); r.GetRemaining() != 0 || b.l.im.Load(1).Leaders != 0 {
		t.Errorf("%v", r)
	}
	b.hand(store.Delete(keys.Broker(2)))
	b.run()
	b.held = commits
	id = b.ask(rpc.ControlledShutdown{ControlledShutdownRequest: &pb.ControlledShutdownRequest{BrokerId: 3, BrokerEpoch: int64(b.l.im.Brokers[3].Epoch)}})[0]
	b.hand(store.Delete(keys.Broker(3)))
	b.held = nothing
	b.run()
	if got := rpc.ReasonOf(b.answerOf(id).Err); got != cluster.StaleBrokerEpoch {
		t.Errorf("gone meanwhile: %s", got)
	}
}
