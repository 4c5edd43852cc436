package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/controllerd/controllerd/broker"
)

const bareBrokerKeys = "/bare/brokers/"

// bareBrokers is what bare clients make of many brokers.
type bareBrokers struct{ registered, told, used []float64 }

func (w *world) bareBrokers(ctx context.Context, n int) (out bareBrokers, err error) {
	leases := make([]clientv3.LeaseID, n)
	out.registered, err = measureOne(ctx, "bare registered", func(ctx context.Context) (time.Duration, error) {
		for _, l := range leases { // of the round before
			if l != 0 {
				if _, err := w.client.Revoke(ctx, l); err != nil {
					return 0, err
				}
			}
		}
		if err := pause(ctx, settling); err != nil {
			return 0, err
		}
		return together(n, func(i int) (err error) {
			leases[i], err = w.bareRegister(ctx, i)
			return err
		})
	})
	if err != nil {
		return out, err
	}
	end := w.renewAll(ctx, leases)
	used, err := measureValues(ctx, "bare renewals", w.rested)
	end()
	if err != nil {
		return out, err
	}
	out.used = used[1]
	out.told, err = w.bareWatches(ctx, n)
	return out, err
}

// bareRegister grants a lease and puts a key with it and one without.
func (w *world) bareRegister(ctx context.Context, i int) (clientv3.LeaseID, error) {
	lease, err := w.client.Grant(ctx, int64(broker.DefaultSessionTTL/time.Second))
	if err != nil {
		return 0, err
	}
	key, node := fmt.Sprint(bareBrokerKeys, i), fmt.Sprint("/bare/nodes/", i)
	resp, err := w.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, "x", clientv3.WithLease(lease.ID)), clientv3.OpPut(node, "x")).
		Commit()
	if err == nil && !resp.Succeeded {
		err = errors.New("a bare broker is registered already")
	}
	return lease.ID, err
}

// renewAll renews leases as often as brokers do, until it is told to end.
func (w *world) renewAll(ctx context.Context, leases []clientv3.LeaseID) (end func()) {
	const every = broker.DefaultSessionTTL / 4
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, l := range leases {
		wg.Go(func() {
			for wait := rand.N(every); pause(ctx, wait) == nil; wait = every {
				_, _ = w.client.KeepAliveOnce(ctx, l)
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// bareWatches is how long it takes from a put until all of n watches show it.
func (w *world) bareWatches(ctx context.Context, n int) ([]float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := make(chan time.Time, n)
	for range n {
		watch := w.client.Watch(ctx, bareTerm, clientv3.WithCreatedNotify())
		<-watch
		go func() {
			for range watch {
				seen <- time.Now()
			}
		}()
	}
	return measureOne(ctx, "bare metadata", func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		if _, err := w.client.Put(ctx, bareTerm, "x"); err != nil {
			return 0, err
		}
		var last time.Time
		for range n {
			select {
			case last = <-seen:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		return last.Sub(began), pause(ctx, settling)
	})
}
