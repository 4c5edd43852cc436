package rpc

import (
	"context"
	"runtime"
	"testing"

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
