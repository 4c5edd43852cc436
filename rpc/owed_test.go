package rpc

import (
	"math/rand/v2"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/store"
)

// The lowest revision is that of what is on its way or to be tried again.
func TestLowestOwed(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	o := newOwed()
	for n := range 20_000 {
		id := cluster.PartitionID{Index: rng.Int32N(50)}
		rev := store.Rev(max(0, n/10+rng.IntN(30)-5))
		switch rng.IntN(6) {
		case 0, 1:
			o.send(id, sent{1, rev})
		case 2, 3:
			o.answered(id)
		case 4:
			if o.retries[id] == nil {
				o.retry(id, &retry{epoch: 1, rev: rev})
			}
		case 5:
			o.done(id, cluster.LeaderEpoch(rng.IntN(3)))
		}
		want, any := store.Rev(0), false
		see := func(rev store.Rev) {
			if rev != 0 && (!any || rev < want) {
				want, any = rev, true
			}
		}
		for _, s := range o.pending {
			see(s.rev)
		}
		for _, r := range o.retries {
			see(r.rev)
		}
		if got, ok := o.revs.lowest(); got != want || ok != any {
			t.Fatalf("step %d: lowest %d %t, want %d %t", n, got, ok, want, any)
		}
	}
}
