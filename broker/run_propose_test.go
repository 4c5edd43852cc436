package broker

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// proposed is a call of done.
type proposed struct {
	IsrResult
	err error
	at  time.Time
}

func collect(t *testing.T, b *Broker, into chan proposed, c IsrChange) {
	t.Helper()
	if err := b.ProposeISR(c, func(r IsrResult, err error) { into <- proposed{r, err, time.Now()} }); err != nil {
		t.Fatal(err)
	}
}

// redirect is what a standby says that cannot forward.
func redirect(endpoint string) error {
	s, err := status.New(codes.Unavailable, "not the active").WithDetails(&errdetails.ErrorInfo{
		Reason: string(cluster.NotController), Domain: cluster.ErrorDomain, Metadata: map[string]string{"endpoint": endpoint},
	})
	if err != nil {
		panic(err)
	}
	return s.Err()
}

// TestProposeISR: while one request is answered, what else is proposed is put
// together.
func TestProposeISR(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.daemon("d1")
		h := applies()
		b := n.start(t.Context(), h, nil, "d1")
		<-b.Registered()
		c := n.controller("c1", 5)
		for i := range int32(4) {
			c.leaderAndIsr(partition(i, 1, 1))
			c.expect(1, 1, applied)
		}
		hold := make(chan bool)
		d.set(func() {
			d.alter = func(r *pb.AlterPartitionRequest) (*pb.AlterPartitionResponse, error) {
				d.mu.Unlock()
				<-hold
				d.mu.Lock()
				return committed(r)
			}
		})
		got := make(chan proposed, 10)
		collect(t, b, got, grow(0))
		synctest.Wait()
		for _, i := range []int32{3, 1, 2, 1} {
			collect(t, b, got, grow(i))
		}
		if v, ok := b.ISR(pid(1)); !ok || !slices.Equal(v.Committed, ids(1)) || !slices.Equal(v.Maximal, ids(1, 2)) {
			t.Errorf("view %+v", v)
		}
		if _, ok := b.ISR(pid(9)); ok {
			t.Error("an ISR of a partition that is not hosted")
		}
		hold <- true
		if p := <-got; !errors.Is(p.err, ErrOvertaken) || p.Partition != pid(1) {
			t.Errorf("overtaken: %+v", p)
		}
		if p := <-got; p.err != nil || p.Partition != pid(0) || p.Reason != "" || p.State.GetPartitionEpoch() != 2 {
			t.Errorf("first: %+v", p)
		}
		if v, _ := b.ISR(pid(0)); !slices.Equal(v.Committed, ids(1, 2)) || v.PartitionEpoch != 2 {
			t.Errorf("view %+v", v)
		}
		hold <- true
		for _, want := range []int32{3, 1, 2} {
			if p := <-got; p.err != nil || p.Partition != pid(want) || p.Reason != "" {
				t.Errorf("partition %d: %+v", want, p)
			}
		}
		synctest.Wait()
		if len(d.alters) != 2 || len(d.alters[1].GetTopics()) != 1 || len(d.alters[1].GetTopics()[0].GetPartitions()) != 3 || len(h.adopted) != 4 {
			t.Errorf("%d requests, %d ISRs adopted", len(d.alters), len(h.adopted))
		}
		b.mu.Lock()
		if len(b.proposals.at) != 0 || b.proposals.running {
			t.Errorf("kept %v", b.proposals.at)
		}
		b.mu.Unlock()
	})
}

// TestProposeISRAgain: what the controller did not decide is sent again; a
// refusal is not.
func TestProposeISRAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.daemon("d1")
		b := n.start(t.Context(), applies(), nil, "d1")
		got := make(chan proposed, 10)
		for i := range int32(3) { // before it is registered
			collect(t, b, got, grow(i))
		}
		attempts := 0
		d.set(func() {
			d.alter = func(r *pb.AlterPartitionRequest) (*pb.AlterPartitionResponse, error) {
				resp, err := committed(r)
				parts := resp.Topics[0].Partitions
				switch attempts++; attempts {
				case 1:
					return nil, reasoned(cluster.StaleBrokerEpoch)
				case 2:
					parts[0].Error = string(cluster.NotController)
					parts[1].Error, parts[1].State = string(cluster.IneligibleReplica), nil
					resp.Topics[0].Partitions = parts[:2]
				}
				return resp, err
			}
		})
		want := map[int32]cluster.Reason{0: "", 1: cluster.IneligibleReplica, 2: ""}
		for range 3 {
			p := <-got
			if p.err != nil || p.Reason != want[p.Partition.Index] {
				t.Errorf("%+v", p)
			}
			delete(want, p.Partition.Index)
		}
		if len(want) != 0 || attempts != 3 || len(d.alters[2].GetTopics()[0].GetPartitions()) != 2 {
			t.Errorf("no answer for %v; %d attempts", want, attempts)
		}
		d.set(func() {
			d.alter = func(*pb.AlterPartitionRequest) (*pb.AlterPartitionResponse, error) {
				return nil, reasoned(cluster.InvalidRequest)
			}
		})
		collect(t, b, got, grow(0))
		if p := <-got; ReasonOf(p.err) != cluster.InvalidRequest || p.Partition != pid(0) {
			t.Errorf("%+v", p)
		}
		d.set(func() { d.hang = true })
		if err := b.ProposeISR(grow(0), nil); err != nil { // nobody wants to know
			t.Error(err)
		}
		collect(t, b, got, grow(1))
		synctest.Wait()
		collect(t, b, got, grow(1))
		b.Kill()
		if err := b.Wait(); !errors.Is(err, ErrKilled) {
			t.Error(err)
		}
		for range 2 {
			if p := <-got; !errors.Is(p.err, ErrClosed) && !errors.Is(p.err, ErrOvertaken) {
				t.Errorf("%+v", p)
			}
		}
		if err := b.ProposeISR(grow(1), nil); !errors.Is(err, ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// TestRedirected: a daemon that names the active one sends the broker there at
// once, be it in the list or not.
func TestRedirected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		standby, active := n.daemon("d1"), n.daemon("d2")
		standby.set(func() {
			standby.alter = func(*pb.AlterPartitionRequest) (*pb.AlterPartitionResponse, error) {
				return nil, redirect("passthrough:///d2")
			}
		})
		active.set(func() { active.alter = committed })
		b := n.start(t.Context(), applies(), nil, "d1")
		<-b.Registered()
		got := make(chan proposed, 1)
		began := time.Now()
		for i := range int32(2) {
			collect(t, b, got, grow(i))
			if p := <-got; p.err != nil || p.Reason != "" || p.at != began {
				t.Errorf("%+v, after %v", p, p.at.Sub(began))
			}
		}
		if _, err := b.AlterPartition(t.Context(), []IsrChange{grow(2)}); err != nil || time.Now() != began {
			t.Errorf("%v, after %v", err, time.Since(began))
		}
		if len(active.alters) != 3 {
			t.Errorf("%d requests at the active", len(active.alters))
		}
	})
}

func TestCourse(t *testing.T) {
	c := course{rng: newRand()}
	there, away := redirect("d2"), status.Error(codes.Unavailable, "starting")
	for i, step := range []struct {
		err      error
		at       string
		min, max time.Duration
	}{
		{away, "", 5 * time.Millisecond, 10 * time.Millisecond},
		{there, "d2", 0, 0},
		{there, "d2", 10 * time.Millisecond, 20 * time.Millisecond}, // two that blame each other
		{there, "d2", 0, 0},
		{away, "", 20 * time.Millisecond, 40 * time.Millisecond},
		{reasoned(cluster.NotController), "", 40 * time.Millisecond, 80 * time.Millisecond},
	} {
		if d := c.after(step.err); d < step.min || d > step.max || c.at != step.at {
			t.Errorf("step %d: %v at %q", i, d, c.at)
		}
	}
	for range 20 {
		c.after(away)
	}
	if d := c.after(away); d < maxAlterBackoff/2 || d > maxAlterBackoff {
		t.Errorf("at last %v", d)
	}
}
