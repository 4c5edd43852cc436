package durations

import (
	"slices"
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	if !slices.IsSorted(Bounds[:]) {
		t.Fatalf("bounds are not in order: %v", Bounds)
	}
	var h Histogram
	for _, d := range []time.Duration{-time.Second, 0, Bounds[0], Bounds[0] + 1, Bounds[3], time.Hour} {
		h.Observe(d)
	}
	if h.Count() != 6 || h.Sum != 2*Bounds[0]+1+Bounds[3]+time.Hour {
		t.Errorf("%d durations of %v", h.Count(), h.Sum)
	}
	for i, want := range map[int]uint64{0: 3, 1: 4, 2: 4, 3: 5, len(Bounds) - 1: 5} {
		if got := h.UpTo(i); got != want {
			t.Errorf("%d are at most %v, want %d", got, Bounds[i], want)
		}
	}
	copied := h
	copied.Observe(0)
	if h.Count() != 6 {
		t.Error("a copy shares what it counts")
	}
}
