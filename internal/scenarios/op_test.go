package scenarios

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/controllerd/controllerd/cluster"
)

// The lease is revoked at any moment of a busy life. Each time there is a
// working controller again, and no goroutine waits for another for ever.
func TestOP3LeaseRevokedUnderLoad(t *testing.T) {
	// Not parallel: it counts goroutines.
	w := newWorld(t)
	ids := []string{"a", "b", "c"}
	daemons := map[string]*daemon{}
	addresses := map[string]string{}
	for _, id := range ids {
		daemons[id] = w.daemon(id)
		addresses[id] = daemons[id].Endpoint
		w.candidateLease(id, 0)
	}
	w.active(1, soon)
	brokers := w.startBrokers(3)
	id := w.create("orders", 30, 3)
	w.converged(soon)
	base := w.resources()

	stopLoad := w.load(brokers, id)
	for round := range longOr(200, 30) {
		e := w.epoch()
		pass(time.Duration(rand.Int64N(int64(100 * time.Millisecond))))
		restarted := ids[rand.IntN(len(ids))]
		var stopping sync.WaitGroup
		if round%5 == 0 { // it may be the active, and the lease the one that it is giving up
			stopping.Go(daemons[restarted].stop)
		}
		w.revoke(w.seatLease())
		stopping.Wait()
		if round%5 == 0 {
			daemons[restarted] = w.daemon(restarted, listen(addresses[restarted]))
		}
		w.active(e+1, limit)
		w.create(fmt.Sprint("round-", round), 2, 3)
	}
	stopLoad()
	w.converged(limit)
	for _, id := range ids {
		w.candidateLease(id, 0)
	}
	w.backTo(base, 150) // more daemons have spoken with each other than at first
}

// load keeps the controllers busy: new topics, changes of ISRs, a broker that
// comes and goes, questions.
func (w *world) load(brokers []*node, topic cluster.TopicID) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	stopCreating := w.keepCreating("load", 8, 3)
	running.Go(func() {
		for i := int32(0); ctx.Err() == nil; i = (i + 1) % 30 {
			_, _ = w.shrink(ctx, brokers, cluster.PartitionID{Topic: topic, Index: i})
		}
	})
	running.Go(func() {
		for ctx.Err() == nil {
			b := w.broker(3)
			select {
			case <-b.Registered():
			case <-ctx.Done():
			}
			b.kill()
		}
	})
	stop = func() {
		cancel()
		stopCreating()
		running.Wait()
	}
	w.t.Cleanup(stop)
	return stop
}
