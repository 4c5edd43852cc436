package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
)

// desk is one partition's worker and one stream, without goroutines.
type desk struct {
	t         *testing.T
	ws        workers
	out       *outbox
	cancelled int
}

func newDesk(t *testing.T) *desk {
	return &desk{t: t, ws: workers{}, out: &outbox{wake: func() {}}}
}

func at(le, pe int) PartitionState {
	return PartitionState{Partition: pid(0), LeaderEpoch: cluster.LeaderEpoch(le), PartitionEpoch: cluster.PartitionEpoch(pe)}
}

func (d *desk) admit(a fencing.Action, le, pe int, start bool) {
	d.t.Helper()
	if got := d.ws.admit(&fencing.Decision{State: at(le, pe), Action: a}, d.out); got != start {
		d.t.Errorf("%v %d/%d: worker starts: %t, want %t", a, le, pe, got, start)
	}
}

// begin takes the next task, which must be this one.
func (d *desk) begin(apply bool, le, pe int) {
	d.t.Helper()
	want := task{state: at(le, pe), apply: apply}
	if got := d.ws[pid(0)].begin(func() { d.cancelled++ }); fmt.Sprint(got) != fmt.Sprint(want) {
		d.t.Errorf("works on %v, want %v", got, want)
	}
}

func (d *desk) end(err error, more, failed bool) {
	d.t.Helper()
	if m, f, _ := d.ws.end(pid(0), err); m != more || f != failed {
		d.t.Errorf("more %t and failed %t, want %t and %t", m, f, more, failed)
	}
}

func (d *desk) results(want ...string) {
	d.t.Helper()
	var got []string
	for _, m := range d.out.take() {
		for _, o := range m.GetResults().GetOutcomes() {
			got = append(got, fmt.Sprintf("%d/%d %v", o.GetLeaderEpoch(), o.GetPartitionEpoch(), o.GetResult()))
		}
	}
	if !slices.Equal(got, want) {
		d.t.Errorf("results %q, want %q", got, want)
	}
}

// TestNewerISRWhileWaiting: what had to be applied still has to, with the ISR
// that came meanwhile.
func TestNewerISRWhileWaiting(t *testing.T) {
	d := newDesk(t)
	d.admit(fencing.Admitted, 1, 1, true)
	d.begin(true, 1, 1)
	d.admit(fencing.Admitted, 2, 2, false)
	d.admit(fencing.IsrAdopted, 2, 3, false)
	if d.cancelled != 1 {
		t.Errorf("cancelled %d times", d.cancelled)
	}
	d.end(errors.New("cancelled"), true, false)
	d.results()
	d.begin(true, 2, 3)
	d.end(nil, false, false)
	d.results("2/3 PARTITION_RESULT_APPLIED")
}

// TestFailedBeforeISR: the handler does not hear of the ISR of a leader epoch
// that it failed to apply.
func TestFailedBeforeISR(t *testing.T) {
	d := newDesk(t)
	d.admit(fencing.Admitted, 1, 1, true)
	d.begin(true, 1, 1)
	d.admit(fencing.IsrAdopted, 1, 2, false)
	d.end(errors.New("no"), false, true)
	d.results("1/2 PARTITION_RESULT_FAILED")
	if len(d.ws) != 0 {
		t.Error("a worker is left")
	}
}

// TestOvertakenAndWell: a handler that ends well although it was overtaken has
// applied its leader epoch.
func TestOvertakenAndWell(t *testing.T) {
	d := newDesk(t)
	other := &outbox{wake: func() {}}
	d.ws.admit(&fencing.Decision{State: at(1, 1), Action: fencing.Admitted}, other)
	d.begin(true, 1, 1)
	d.admit(fencing.Admitted, 2, 2, false)
	d.end(nil, true, false)
	d.results()
	d.out, other = other, d.out
	d.results("1/1 PARTITION_RESULT_APPLIED")
	d.out = other
	d.begin(true, 2, 2)
	d.end(nil, false, false)
	d.results("2/2 PARTITION_RESULT_APPLIED")
}

// TestDuringAdoption: a call of AdoptISR is nothing to wait for.
func TestDuringAdoption(t *testing.T) {
	d := newDesk(t)
	d.admit(fencing.IsrAdopted, 1, 2, true)
	d.results("1/2 PARTITION_RESULT_ALREADY")
	d.begin(false, 1, 2)
	d.admit(fencing.Already, 1, 2, false)
	d.results("1/2 PARTITION_RESULT_ALREADY")
	d.admit(fencing.IsrAdopted, 1, 3, false)
	d.results("1/3 PARTITION_RESULT_ALREADY")
	d.end(nil, true, false)
	d.begin(false, 1, 3)
	d.admit(fencing.Admitted, 2, 4, false)
	d.results()
	d.end(nil, true, false)
	d.begin(true, 2, 4)
	d.end(nil, false, false)
	d.results("2/4 PARTITION_RESULT_APPLIED")
}

// TestTaskContext: whenever a handler looks, its context is over if the task
// was cancelled or the broker has ended, and says why.
func TestTaskContext(t *testing.T) {
	parent, end := context.WithCancelCause(context.Background())
	early := &taskContext{parent: parent}
	early.cancel()
	if <-early.Done(); early.Err() == nil || context.Cause(early) == nil {
		t.Error("cancelled before the first look")
	}
	late := &taskContext{parent: parent}
	child, stop := context.WithCancel(late)
	defer stop()
	if late.Err() != nil {
		t.Error("over from the start")
	}
	late.cancel()
	if <-child.Done(); late.Err() == nil {
		t.Error("cancelled after the first look")
	}
	open := &taskContext{parent: parent}
	end(ErrClosed)
	if <-open.Done(); context.Cause(open) != ErrClosed {
		t.Errorf("the broker has ended: %v", context.Cause(open))
	}
}
