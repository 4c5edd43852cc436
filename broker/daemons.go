package broker

import (
	"math/rand/v2"
	"slices"
	"time"
)

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// backoff is how long to wait after the n-th failure in a row, from 0: the
// second half of each delay is random, so that brokers do not come in step.
func backoff(n int, rng *rand.Rand) time.Duration {
	d := min(minBackoff<<min(n, 10), maxBackoff)
	return d/2 + time.Duration(rng.Int64N(int64(d/2)+1))
}

const (
	minAlterBackoff = 10 * time.Millisecond
	maxAlterBackoff = time.Second
)

// course is how attempts at an AlterPartition follow each other. A leader
// waits for them, and a failover of the controller is over within
// milliseconds, so they come faster than renewals.
type course struct {
	at      string // the daemon to ask, empty if any
	n       int    // pauses so far
	hurried bool   // the last attempt followed without a pause
	rng     *rand.Rand
}

// after is how long to wait after an attempt failed. A daemon that names the
// active one sends us there at once, but not twice in a row: two daemons may
// each believe that it is the other one.
func (c *course) after(err error) time.Duration {
	c.at = activeOf(err)
	if c.at != "" && !c.hurried {
		c.hurried = true
		return 0
	}
	c.hurried = false
	d := min(minAlterBackoff<<min(c.n, 10), maxAlterBackoff)
	c.n++
	return d/2 + time.Duration(c.rng.Int64N(int64(d/2)+1))
}

// daemons are those that can be asked, the one to ask next first.
type daemons struct {
	configured []string
	order      []string
	rng        *rand.Rand
}

func newDaemons(configured []string, rng *rand.Rand) *daemons {
	d := &daemons{configured: configured, rng: rng}
	d.learn(nil)
	return d
}

// current is the one to ask.
func (d *daemons) current() string { return d.order[0] }

// failed puts a daemon behind all others, unless another is asked already.
func (d *daemons) failed(addr string) {
	if d.order[0] == addr {
		d.order = append(d.order[1:], addr)
	}
}

// learn replaces what is known besides the configured daemons. The one that is
// asked stays, if it is still among them; the others come in random order.
func (d *daemons) learn(endpoints []string) {
	var asked string
	if len(d.order) > 0 {
		asked = d.order[0]
	}
	all := slices.Concat(d.configured, endpoints)
	slices.Sort(all)
	all = slices.DeleteFunc(slices.Compact(all), func(addr string) bool { return addr == "" })
	d.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if i := slices.Index(all, asked); i > 0 {
		all[0], all[i] = all[i], all[0]
	}
	d.order = all
}

func (d *daemons) knows(addr string) bool { return slices.Contains(d.order, addr) }
