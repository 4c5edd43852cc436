package rpc

import (
	"fmt"
	"slices"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// term writes that a controller wins the seat.
func (x *feeding) term(e cluster.Epoch, id string) {
	x.t.Helper()
	x.write(store.Put(keys.Controller(), cluster.Encode(&pb.ControllerRecord{Id: id})),
		store.Put(keys.ControllerEpoch(), cluster.Encode(&pb.EpochRecord{Epoch: int64(e)})),
		store.Put(keys.Term(e), cluster.Encode(&pb.TermRecord{Epoch: int64(e), Controller: id})))
}

// resigns writes that it gives the seat up.
func (x *feeding) resigns(e cluster.Epoch, id string) {
	x.t.Helper()
	x.write(store.Delete(keys.Controller()),
		store.Put(keys.Term(e), cluster.Encode(&pb.TermRecord{Epoch: int64(e), Controller: id, EndCause: pb.EndCause_END_CAUSE_RESIGNED})))
}

// told is all that a client is told at once.
func (x *feeding) told(r *reader) (all []*pb.WatchMetadataResponse) {
	for resp := r.next(x.im, x.f); resp != nil; resp = r.next(x.im, x.f) {
		all = append(all, resp)
	}
	return all
}

// seatIn is what a client is told of the seat.
func seatIn(all []*pb.WatchMetadataResponse) string {
	var out []string
	for _, resp := range all {
		if s := resp.GetSeat(); s != nil {
			out = append(out, fmt.Sprintf("%s@%d", s.GetControllerId(), s.GetEpoch()))
			for _, term := range s.GetTerms() {
				out = append(out, fmt.Sprintf("%d:%s", term.GetEpoch(), term.GetEndCause()))
			}
		}
	}
	return fmt.Sprint(out)
}

func TestWatchDetails(t *testing.T) {
	x := newFeeding(t)
	for e := cluster.Epoch(1); e <= 25; e++ {
		x.term(e, "a")
	}
	x.topic("t", hostedBy(1, 2))
	x.broker(1)
	x.broker(2)
	r, plain := &reader{details: true}, &reader{}
	all := x.told(r)
	x.told(plain)
	if s := all[0].GetSeat(); !all[0].GetSnapshot() || s.GetControllerId() != "a" || s.GetEpoch() != 25 || len(s.GetTerms()) != 20 || s.GetTerms()[0].GetEpoch() != 6 {
		t.Errorf("the snapshot begins with %v", all[0])
	}
	from := x.im.Rev

	x.resigns(25, "a")
	if got := seatIn(x.told(r)); got != "[@25 24:END_CAUSE_UNSPECIFIED 25:END_CAUSE_RESIGNED]" {
		t.Error(got)
	}
	x.term(26, "b")
	x.write(store.Delete(keys.Controller())) // lost
	x.term(27, "c")
	if got := seatIn(x.told(r)); got != "[c@27 25:END_CAUSE_RESIGNED 26:END_CAUSE_UNSPECIFIED 27:END_CAUSE_UNSPECIFIED]" {
		t.Error(got)
	}
	again := &reader{details: true, from: from}
	if got := seatIn(x.told(again)); got != "[c@27 24:END_CAUSE_UNSPECIFIED 25:END_CAUSE_RESIGNED 26:END_CAUSE_UNSPECIFIED 27:END_CAUSE_UNSPECIFIED]" {
		t.Error(got)
	}
	x.write(store.Delete(keys.Controller()))
	if got := seatIn(x.told(r)); got != "[@27]" {
		t.Error(got)
	}
	if all := x.told(plain); len(all) != 0 {
		t.Errorf("without details: %v", all)
	}

	x.write(store.Put(keys.Node(1), cluster.Encode(&pb.NodeRecord{NodeUuid: "n1"})))
	x.gone(1)
	x.broker(2, func(b *pb.BrokerRecord) { b.State, b.Unreachable = pb.BrokerState_BROKER_STATE_DRAINING, true })
	x.change("t", 0, func(p *cluster.Partition) {
		p.Leader, p.ISR, p.Cause, p.ChangedMs, p.ControllerEpoch = 2, []cluster.BrokerID{2}, pb.ChangeCause_CHANGE_CAUSE_BROKER_DOWN, 77, 27
	})
	all = x.told(r)
	if len(all) != 1 || len(all[0].GetBrokers()) != 2 {
		t.Fatalf("told %v", all)
	}
	down, draining := all[0].GetBrokers()[0], all[0].GetBrokers()[1]
	if down.GetId() != 1 || down.GetLive() || draining.GetId() != 2 || !draining.GetLive() || !draining.GetUnreachable() ||
		draining.GetState() != pb.BrokerState_BROKER_STATE_DRAINING || draining.GetBrokerEpoch() != int64(x.im.Brokers[2].Epoch) {
		t.Errorf("brokers %v", all[0].GetBrokers())
	}
	p := all[0].GetTopics()[0].GetPartitions()[0]
	if p.GetCause() != pb.ChangeCause_CHANGE_CAUSE_BROKER_DOWN || p.GetChangedMs() != 77 || p.GetControllerEpoch() != 27 || !slices.Equal(p.GetIsr(), []int32{2}) {
		t.Errorf("partition %v", p)
	}
	all = x.told(plain)
	if len(all) != 1 || all[0].GetSeat() != nil || all[0].GetBrokers() != nil || all[0].GetTopics()[0].GetPartitions()[0].GetChangedMs() != 0 {
		t.Errorf("without details: %v", all)
	}
}

func TestWatchManyTerms(t *testing.T) {
	x := newFeeding(t)
	from := x.im.Rev
	for e := cluster.Epoch(1); e <= 150; e++ {
		x.term(e, "a")
	}
	all := x.told(&reader{details: true, from: from})
	if s := all[0].GetSeat(); len(all) != 1 || len(s.GetTerms()) != maxTerms || s.GetTerms()[0].GetEpoch() != 51 {
		t.Errorf("%d terms from %v", len(s.GetTerms()), s.GetTerms()[0])
	}
}
