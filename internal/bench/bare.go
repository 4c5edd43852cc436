package main

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/controllerd/controllerd/store/etcdstore"
)

// The keys of the bare clients.
const (
	bareSeat   = "/bare/controller"
	bareEpoch  = "/bare/epoch"
	bareTerm   = "/bare/term"
	bareBlocks = "/bare/blocks/"
)

// contender is a bare client that holds or awaits the seat, with a lease of its
// own.
type contender struct {
	client *clientv3.Client
	lease  clientv3.LeaseID
}

func (w *world) newContender(ctx context.Context) (*contender, error) {
	client, err := etcdstore.Dial(etcdstore.Config{Endpoints: []string{w.addr}})
	if err != nil {
		return nil, err
	}
	c := &contender{client: client}
	return c, c.grant(ctx)
}

func (c *contender) close() { _ = c.client.Close() }

func (c *contender) grant(ctx context.Context) error {
	lease, err := c.client.Grant(ctx, int64(leaseTTL/time.Second))
	if err != nil {
		return err
	}
	c.lease = lease.ID
	return nil
}

// claim takes the empty seat and raises the epoch, as one transaction.
func (c *contender) claim(ctx context.Context) error {
	resp, err := c.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(bareSeat), "=", 0)).
		Then(clientv3.OpPut(bareSeat, "x", clientv3.WithLease(c.lease)), clientv3.OpPut(bareEpoch, "x"), clientv3.OpPut(bareTerm, "x")).
		Commit()
	if err == nil && !resp.Succeeded {
		err = fmt.Errorf("somebody holds the bare seat")
	}
	return err
}

// claimWhenEmpty claims the seat when its watch shows that it was left, and
// sends the time at which that was answered. It returns when it watches.
func (c *contender) claimWhenEmpty(ctx context.Context) (<-chan outcome, error) {
	done := make(chan outcome, 1)
	watch := c.client.Watch(ctx, bareSeat, clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	if r, ok := <-watch; !ok || r.Err() != nil {
		return nil, fmt.Errorf("watch the bare seat: %w", r.Err())
	}
	go func() {
		for r := range watch {
			if r.Err() != nil || len(r.Events) > 0 {
				err := r.Err()
				if err == nil {
					err = c.claim(ctx)
				}
				done <- outcome{time.Now(), err}
				return
			}
		}
		done <- outcome{err: context.Cause(ctx)}
	}()
	return done, nil
}

// outcome is when something was done, or why it was not.
type outcome struct {
	at  time.Time
	err error
}
