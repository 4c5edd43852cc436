package durations

import (
	"sort"
	"time"
)

// Bounds are the upper bounds of the buckets, each inclusive.
var Bounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second,
	10 * time.Second, 30 * time.Second,
}

// Histogram counts durations. Its zero value has seen none. It is not safe for
// concurrent use.
type Histogram struct {
	Sum    time.Duration
	counts [len(Bounds) + 1]uint64 // by bucket; the last one is above all bounds
}

// Observe takes in a duration. One below 0 counts as 0: clocks of two readings
// may be of two moments.
func (h *Histogram) Observe(d time.Duration) {
	d = max(d, 0)
	h.Sum += d
	h.counts[sort.Search(len(Bounds), func(i int) bool { return d <= Bounds[i] })]++
}

// Count is how many durations were seen.
func (h *Histogram) Count() (n uint64) {
	for _, c := range h.counts {
		n += c
	}
	return n
}

// UpTo is how many of them were at most Bounds[i].
func (h *Histogram) UpTo(i int) (n uint64) {
	for _, c := range h.counts[:i+1] {
		n += c
	}
	return n
}
