package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/sim"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// ledger is all that the witness has seen.
type ledger struct {
	keys  cluster.Keys
	began time.Time

	mu      sync.Mutex
	changed chan struct{} // closed and replaced with each change
	image   *cluster.Image
	claims  []claim
	changes []change             // of the prefix, in order of revision
	writes  map[store.Rev]*write // those that etcd applied
	failed  []*write             // those whose conditions did not hold
	sent    []*command
	heldTxn *write
	heldCmd *command
	checker *sim.Checker // of what the watch and the brokers' logs say
}

// claim is one term as etcd shows it.
type claim struct {
	rev    store.Rev
	epoch  cluster.Epoch
	daemon string
	since  time.Time // seen
}

// change is one change of a key, and the epochs of the partition records that
// changed with it.
type change struct {
	rev     store.Rev
	key     string
	deleted bool
	epochs  []cluster.Epoch
}

// write is one transaction of a daemon that writes.
type write struct {
	daemon   string
	guard    store.Rev // of the claim that it names; 0: none
	mints    bool      // it takes the seat
	answered bool
	applied  bool
	rev      store.Rev
	unmet    []string // keys of the conditions that did not hold
}

// command is one command of a daemon to a broker.
type command struct {
	broker   int
	sender   string
	epoch    cluster.Epoch
	states   int // of partitions, in a LeaderAndIsr
	answered bool
	refusal  pb.Refusal
}

func newLedger(keys cluster.Keys) *ledger {
	return &ledger{
		keys:    keys,
		began:   time.Now(),
		checker: sim.NewChecker(keys, sim.Bounds{}),
		changed: make(chan struct{}),
		image:   cluster.NewImage(keys),
		writes:  map[store.Rev]*write{},
	}
}

// update changes the ledger and wakes those who wait.
func (l *ledger) update(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn()
	close(l.changed)
	l.changed = make(chan struct{})
}

// await waits until cond holds. It is called under the lock.
func (l *ledger) await(ctx context.Context, what string, cond func() bool) error {
	for {
		l.mu.Lock()
		ok, changed := cond(), l.changed
		l.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waited for %s in vain", what)
		}
	}
}

// watched takes in one batch of the watch, change by change, so that the image
// is one of each revision.
func (l *ledger) watched(b store.Batch) {
	l.update(func() {
		l.checker.Watched(time.Since(l.began), b)
		for _, c := range b.Changes {
			events := l.image.Apply(store.Batch{Rev: c.KV.ModRev, Changes: []store.Change{c}})
			l.changes = append(l.changes, change{
				rev: c.KV.ModRev, key: strings.TrimPrefix(c.KV.Key, l.keys.Prefix()), deleted: c.Deleted, epochs: recordEpochs(events),
			})
			l.noteClaim()
		}
	})
}

// recordEpochs are the controller epochs in the partition records that changed,
// each once.
func recordEpochs(events []cluster.Event) []cluster.Epoch {
	var out []cluster.Epoch
	for _, ev := range events {
		if p, ok := ev.(cluster.PartitionChanged); ok && p.New != nil && !slices.Contains(out, p.New.ControllerEpoch) {
			out = append(out, p.New.ControllerEpoch)
		}
	}
	return out
}

func (l *ledger) noteClaim() {
	c := l.image.Controller
	if c == nil || c.ModRev != l.image.EpochRev || len(l.claims) > 0 && l.last().rev == c.ModRev {
		return
	}
	l.claims = append(l.claims, claim{rev: c.ModRev, epoch: l.image.Epoch, daemon: c.Record.GetId(), since: time.Now()})
}

// last is the newest claim.
func (l *ledger) last() claim {
	if len(l.claims) == 0 {
		return claim{}
	}
	return l.claims[len(l.claims)-1]
}

// claimOf is the claim won at a revision, the zero claim if there is none.
func (l *ledger) claimOf(rev store.Rev) claim {
	for _, c := range l.claims {
		if c.rev == rev {
			return c
		}
	}
	return claim{}
}
