package broker

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Stats tell of the session in each of its states.
func TestStatsOfSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.daemon("d1")
		d.set(func() { d.err = status.Error(codes.Unavailable, "starting") })
		ctx, cancel := context.WithCancel(t.Context())
		b := n.start(ctx, applies(), nil, "d1")
		after(time.Second)
		if s := b.Stats(); s.Registered || s.Registrations != 0 || s.SessionFailures == 0 || s.SinceRenewal != 0 || s.BrokerEpoch != 0 {
			t.Errorf("before it is registered: %+v", s)
		}
		d.set(func() { d.err = nil })
		<-b.Registered()
		after(5 * time.Second) // two renewals, one every 2 s
		s := b.Stats()
		if !s.Registered || s.Registrations != 1 || s.Renewals != 2 || s.BrokerEpoch != 10 || s.ControllerEpoch != 5 || s.SessionTTL != 8*time.Second ||
			s.SinceRenewal < 500*time.Millisecond || s.SinceRenewal > 2*time.Second {
			t.Errorf("registered: %+v", s)
		}
		d.set(func() { d.err, d.epoch = reasoned(cluster.StaleBrokerEpoch), 20 })
		after(2 * time.Second)
		if s := b.Stats(); s.Registered {
			t.Errorf("the session is gone: %+v", s)
		}
		d.set(func() { d.err = nil })
		after(3 * time.Second)
		if s := b.Stats(); !s.Registered || s.Registrations != 2 || s.BrokerEpoch != 20 {
			t.Errorf("registered again: %+v", s)
		}
		cancel()
		if err := b.Wait(); err != nil {
			t.Error(err)
		}
		if s := b.Stats(); s.Registered || s.Streams != 0 {
			t.Errorf("stopped: %+v", s)
		}
	})
}

// Stats tell what the gate and the handlers did.
func TestStatsOfCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler()
		n, b, c := commanded(t, h, nil)
		stale := n.controller("c0", 4)
		stale.ack(stale.leaderAndIsr(partition(0, 1, 1)), pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH)
		c.ack(c.leaderAndIsr(partition(0, 1, 1), partition(1, 1, 1, 2), partition(2, 1, 1)), admitted)
		var calls []call
		for range 3 {
			calls = append(calls, <-h.calls)
		}
		if s := b.Stats(); s.Working != 3 || s.Streams != 2 || s.HandlerTime.Count() != 0 {
			t.Errorf("handlers run: %+v", s)
		}
		after(300 * time.Millisecond)
		for _, call := range calls {
			call.end <- map[int32]error{1: errors.New("failed"), 2: ErrStorage}[call.state.Partition.Index]
		}
		synctest.Wait()
		c = n.controller("c1", 5) // the stale one was not told of the failure: both streams have ended
		c.leaderAndIsr(partition(0, 1, 1))
		c.leaderAndIsr(partition(0, 1, 2, 2))
		synctest.Wait()
		s := b.Stats()
		if s.Working != 0 || s.HandlerTime.Count() != 3 || s.HandlerTime.Sum != 900*time.Millisecond || s.Failed != 2 || s.StorageFailed != 1 {
			t.Errorf("handlers have run: %+v", s)
		}
		if want := (fencing.Counts{Hosted: 3, Leading: 3, Offline: 1, IsrExpands: 1}); s.Counts != want {
			t.Errorf("counts %+v, want %+v", s.Counts, want)
		}
		if want := map[string]int64{
			"STALE_CONTROLLER_EPOCH": 1, "STALE_BROKER_EPOCH": 0, "UNAVAILABLE": 0, "INCONSISTENT_CLUSTER_ID": 0, "WRONG_BROKER": 0,
		}; !reflect.DeepEqual(s.Refused, want) {
			t.Errorf("refused %v, want %v", s.Refused, want)
		}
		if want := map[string]int64{
			"ADMITTED": 3, "ALREADY": 1, "ISR_ADOPTED": 1, "INCONSISTENT_TOPIC_ID": 0, "FENCED_LEADER_EPOCH": 0,
		}; !reflect.DeepEqual(s.Decided, want) {
			t.Errorf("decided %v, want %v", s.Decided, want)
		}
		if len(s.Refused) != len(pb.Refusal_name)-1 {
			t.Errorf("a kind of refusal is not counted: %v", s.Refused)
		}
	})
}

// Stats count proposals until they are decided or overtaken.
func TestStatsOfProposals(t *testing.T) {
	var ps proposals
	p := func(i int32) *proposal { return &proposal{change: IsrChange{Partition: pid(i)}} }
	wants := func(when string, want int) {
		t.Helper()
		if ps.open != want {
			t.Fatalf("%s: %d open, want %d", when, ps.open, want)
		}
	}
	ps.add(p(0))
	ps.add(p(1))
	wants("two", 2)
	ps.add(p(1))
	wants("one is overtaken", 2)
	batch, _ := ps.take()
	ps.add(p(0))
	wants("another waits for the one that was sent", 3)
	ps.decided(batch[0], IsrResult{Partition: batch[0].change.Partition}, nil)
	wants("decided", 2)
	ps.again(batch[1:])
	wants("to be sent again", 2)
	ps.close(ErrClosed)
	wants("closed", 0)
}
