package fencing

import (
	"math/rand/v2"
	"testing"

	"github.com/controllerd/controllerd/cluster"
)

// A broker greets every new controller before it obeys it, so a hello must not
// look at each of the replicas that are well. Those here are nil: to look at
// one panics.
func TestHelloLooksOnlyAtStrays(t *testing.T) {
	d := newDesk(t, diskHas(oldTopic, 3, 7)...)
	d.begin(10)
	d.lead(10, oldTopic, 1, 0)
	d.finish(10, 10, oldTopic)
	for i := range int32(1_000) {
		d.hosted[cluster.PartitionID{Topic: newTopic, Index: i}] = nil
	}
	strays := HeldReplicas(d.Hello().GetStrays())
	if len(strays) != 1 || strays[0].Partition.Index != 7 {
		t.Errorf("hello names %v, want partition 7", strays)
	}
}

// The strays that are kept beside are those of hosted, whatever happens.
func TestStraysAreThoseHosted(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	most := 0
	for range 200 {
		d := newDesk(t, diskHas(oldTopic, 3, 6, 7)...)
		rev, le, be := int64(10), int32(1), cluster.BrokerEpoch(5)
		for range 40 {
			rev++
			p := rng.Int32N(8)
			id := cluster.PartitionID{Topic: oldTopic, Index: p}
			switch rng.IntN(8) {
			case 0, 1:
				le += rng.Int32N(2)
				d.lead(rev, oldTopic, le, p)
			case 2, 3:
				d.begin(rev)
				d.lead(rev, oldTopic, le, p)
				d.finish(rev, rev, oldTopic)
			case 4:
				d.SetOffline(id)
			case 5:
				d.FailedStray(id)
			case 6:
				le++
				d.admitStop(&PartitionState{Topic: "t", Partition: id, LeaderEpoch: cluster.LeaderEpoch(le), Stop: true, Delete: rng.IntN(2) == 0})
			case 7:
				be++
				if err := d.Registered(d.ClusterUUID(), be); err != nil {
					t.Fatal(err)
				}
			}
			n := 0
			for id, h := range d.hosted {
				if _, kept := d.strays[id]; kept != h.stray {
					t.Fatalf("%v: stray is %v, kept beside %v", id, h.stray, kept)
				}
				if h.stray {
					n++
				}
			}
			if n != len(d.strays) {
				t.Fatalf("%d strays, %d kept beside", n, len(d.strays))
			}
			most = max(most, n)
		}
	}
	if most < 3 {
		t.Errorf("never more than %d strays: the test sees nothing", most)
	}
}
