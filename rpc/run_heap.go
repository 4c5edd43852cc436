package rpc

import "runtime/metrics"

// The counters of DescribeController that describe the process, not what it
// did: bytes that the latest collection of the heap found live, and how many
// collections have ended.
const (
	HeapCounter        = "heap_live_bytes"
	CollectionsCounter = "heap_collections"
)

// addHeap puts the counters of the heap beside those of the daemon. Reading
// them stops nothing.
func addHeap(counters map[string]int64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(samples)
	counters[HeapCounter] = int64(samples[0].Value.Uint64())
	counters[CollectionsCounter] = int64(samples[1].Value.Uint64())
}
