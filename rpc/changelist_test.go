package rpc

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/controllerd/controllerd/cluster"
)

func partition(i int) cluster.PartitionID {
	return cluster.PartitionID{Topic: cluster.TopicID{byte(i % 7)}, Index: int32(i)}
}

// read visits everything after the cursor and returns where it ended.
func (l *changeList) read(cursor int64) (ids []cluster.PartitionID, end int64) {
	end = cursor
	l.after(cursor, func(c change) bool {
		ids, end = append(ids, c.id), c.seq
		return true
	})
	return ids, end
}

func TestChangeList(t *testing.T) {
	a, b, c := partition(1), partition(2), partition(3)
	l := newChangeList()
	check := func(cursor int64, want ...cluster.PartitionID) int64 {
		t.Helper()
		got, end := l.read(cursor)
		if !slices.Equal(got, want) {
			t.Fatalf("after %d: %v, want %v", cursor, got, want)
		}
		return end
	}
	check(0)
	l.touch(a, 0)
	l.touch(b, 0)
	cursor := check(0, a, b)
	l.touch(a, 0) // moves to the end
	check(0, b, a)
	check(cursor, a)
	l.touch(c, 0)
	l.remove(a)
	check(cursor, c)
	l.remove(a) // not there any more
	check(0, b, c)
	check(l.last)
	seen := 0
	l.after(0, func(change) bool { seen++; return false })
	if seen != 1 {
		t.Errorf("visited %d changes after the visitor had said no", seen)
	}
}

// Random touches, removals and readers that lag behind show the same as a list
// that is never compacted, and the list holds little more than what it names.
func TestChangeListAgainstModel(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		l := newChangeList()
		var model []change // each partition once, in order of its last change
		drop := func(id cluster.PartitionID) {
			model = slices.DeleteFunc(model, func(c change) bool { return c.id == id })
		}
		cursors := make([]int64, 5)
		for range 3000 {
			id := partition(rng.IntN(200))
			switch n := rng.IntN(10); {
			case n < 7:
				drop(id)
				l.touch(id, 0)
				model = append(model, change{seq: l.last, id: id})
			case n < 8:
				drop(id)
				l.remove(id)
			default:
				i := rng.IntN(len(cursors))
				var want []cluster.PartitionID
				end := cursors[i]
				for _, c := range model {
					if c.seq > cursors[i] {
						want, end = append(want, c.id), c.seq
					}
				}
				got, at := l.read(cursors[i])
				if !slices.Equal(got, want) || at != end {
					t.Fatalf("seed %d, after %d: %v to %d, want %v to %d", seed, cursors[i], got, at, want, end)
				}
				cursors[i] = at
			}
			if len(l.log) > 2*len(model)+66 || l.size != len(model) {
				t.Fatalf("seed %d: %d entries and %d places for %d partitions", seed, len(l.log), l.size, len(model))
			}
		}
	}
}
