package rpc

import (
	"context"
	"runtime"
	"slices"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// core shows a view.
type core struct {
	Core
	view View
}

func (c core) Await(_ context.Context, cond func(View) bool) error {
	cond(c.view)
	return nil
}

// TestHeapInStatus: the status has the counters of the heap beside those of the
// daemon, which stay what they are.
func TestHeapInStatus(t *testing.T) {
	runtime.GC()
	v := View{Image: newHub(t).im, Problems: func() []string { return nil }, Counters: map[string]int64{"terms_won": 3}}
	s := adminService{core: core{view: v}}
	resp, err := s.DescribeController(t.Context(), &pb.DescribeControllerRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if c := resp.GetCounters(); c["terms_won"] != 3 || c[HeapCounter] <= 0 || c[CollectionsCounter] <= 0 {
		t.Errorf("counters %v", c)
	}
	if len(v.Counters) != 1 {
		t.Errorf("the daemon's own counters became %v", v.Counters)
	}
}

func TestHeapCounters(t *testing.T) {
	before, after := map[string]int64{}, map[string]int64{"terms_won": 3}
	runtime.GC()
	addHeap(before)
	kept := make([]byte, 64<<20)
	runtime.GC()
	addHeap(after)
	runtime.KeepAlive(kept)
	if n := after[CollectionsCounter] - before[CollectionsCounter]; n < 1 {
		t.Errorf("%d collections were counted", n)
	}
	if grown := after[HeapCounter] - before[HeapCounter]; grown < 60<<20 {
		t.Errorf("64 MiB more are live, %d bytes were counted", grown)
	}
	if after["terms_won"] != 3 {
		t.Error("another counter is gone")
	}
}

// TestIdleHeap: when everything is applied, a pusher does not keep what that
// took.
func TestIdleHeap(t *testing.T) {
	const n = 50_000
	h := newHub(t)
	h.broker(1)
	h.topic("a", slices.Repeat([]cluster.Partition{hostedBy(1)}, n)...)
	h.begin(1)
	live := func() int64 {
		counters := map[string]int64{}
		runtime.GC()
		runtime.GC()
		addHeap(counters)
		return counters[HeapCounter]
	}
	h.step()
	before := live()
	h.opens(1)
	h.step()
	for len(h.unacked[1]) > 0 { // the handlers are slower than the gate
		h.admits(1)
		h.step()
	}
	if got := h.p.Pending(); got != n {
		t.Fatalf("%d are pending, want %d", got, n)
	}
	for i := range int32(n) {
		h.result(1, "a", i, 0, pb.PartitionResult_PARTITION_RESULT_APPLIED)
	}
	h.step()
	clear(h.sent)
	clear(h.synced)
	clear(h.unacked)
	kept := live() - before
	runtime.KeepAlive(h)
	if kept > 20*n {
		t.Errorf("%d bytes are kept of %d partitions", kept, n)
	}
}
