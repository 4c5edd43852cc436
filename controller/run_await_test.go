package controller

import (
	"testing"
	"time"

	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
)

func busy(d time.Duration) {
	for begun := time.Now(); time.Since(begun) < d; {
	}
}

// TestLooksTakeTurns: however long callers look at the state, the owner goes on
// with its own work in between, nobody's turn is left out, and the counters tell.
func TestLooksTakeTurns(t *testing.T) {
	b := newIdleBench(t, "c1")
	b.l.Step(b.at(), Watched{store.Batch{Rev: 1, Reset: true}})
	c := &Controller{loop: b.l}
	looks := make([]int, 8)
	longest := int64(0)
	for n := range looks {
		c.waiters = append(c.waiters, &waiter{met: make(chan struct{}), cond: func(v rpc.View) bool {
			busy(maxLooks / 2)
			looks[n]++
			longest = v.Counters[LongestStep]
			return looks[n] == 2 && n != 3
		}})
	}
	for turns := 0; len(c.waiters) > 1; turns++ {
		before := sum(looks)
		if more := c.notify(); !more && before == 0 || sum(looks)-before > 4 {
			t.Fatalf("%d looks in a turn, more is %v", sum(looks)-before, more)
		}
		for _, n := range looks {
			if n < looks[0]-1 || turns > 100 {
				t.Fatalf("looks %v after %d turns", looks, turns)
			}
		}
	}
	if looks[3] < 2 || longest < maxLooks.Microseconds() {
		t.Errorf("looks %v, longest %d us", looks, longest)
	}
}

func sum(ns []int) (total int) {
	for _, n := range ns {
		total += n
	}
	return total
}
