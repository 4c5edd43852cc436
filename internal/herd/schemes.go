package main

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// scheme is a way of electing. prepare lets the first node lead everything and
// the others stand by, and returns when they do.
type scheme struct {
	name    string
	prepare func(ctx context.Context, t *trial) error
}

var schemes = []*scheme{
	{"every replica", prepareReplicas},
	{"one key", prepareRace},
	{"queue", prepareQueue},
}

const seat = prefix + "controller"

// prepareReplicas has every replica of every partition contend for itself: each
// watches the key of its partition, and tries to make it when it is gone. Keys
// hang on the leases of the leaders.
func prepareReplicas(ctx context.Context, t *trial) error {
	if err := t.put(ctx, t.nodes[0], nil, clientv3.WithLease(t.nodes[0].lease)); err != nil {
		return err
	}
	begun := make(chan struct{})
	contenders := 0
	for p := range t.partitions {
		for i := range t.replicas - 1 {
			x := t.nodes[1+(p*(t.replicas-1)+i)%(t.candidates-1)]
			contenders++
			t.start(ctx, func() error {
				return onDelete(ctx, x, partition(p), begun, func() error {
					rev, err := take(ctx, x, partition(p))
					if rev != 0 {
						t.led(1)
					}
					return err
				})
			})
		}
	}
	return t.await(ctx, begun, contenders)
}

// prepareRace has all nodes contend for one key; the winner finds a leader for
// every partition.
func prepareRace(ctx context.Context, t *trial) error {
	first := t.nodes[0]
	if rev, err := take(ctx, first, seat); err != nil || rev == 0 {
		return fmt.Errorf("the first node does not get the seat: %w", err)
	}
	if err := t.put(ctx, first, nil); err != nil {
		return err
	}
	begun := make(chan struct{})
	for _, x := range t.nodes[1:] {
		t.start(ctx, func() error {
			return onDelete(ctx, x, seat, begun, func() error {
				rev, err := take(ctx, x, seat)
				if err != nil || rev == 0 {
					return err
				}
				return t.takeOver(ctx, x, clientv3.Compare(clientv3.ModRevision(seat), "=", rev))
			})
		})
	}
	return t.await(ctx, begun, t.candidates-1)
}

// prepareQueue has all nodes queue for the seat, each behind the one before it,
// by etcd's own election.
func prepareQueue(ctx context.Context, t *trial) error {
	for _, x := range t.nodes {
		session, err := concurrency.NewSession(x.client, concurrency.WithLease(x.lease), concurrency.WithContext(ctx))
		if err != nil {
			return fmt.Errorf("session: %w", err)
		}
		e := concurrency.NewElection(session, seat)
		if x.id == 0 {
			if err := e.Campaign(ctx, name(x)); err != nil {
				return err
			}
			if err := t.put(ctx, x, nil); err != nil {
				return err
			}
			session.Orphan()
			continue
		}
		t.start(ctx, func() error {
			if err := e.Campaign(ctx, name(x)); err != nil {
				return err
			}
			return t.takeOver(ctx, x, clientv3.Compare(clientv3.CreateRevision(e.Key()), "=", e.Rev()))
		})
		if err := t.inLine(ctx, x); err != nil { // one after the other, so that each waits for the one before it
			return err
		}
	}
	return nil
}

// inLine waits until a node's key is in the queue.
func (t *trial) inLine(ctx context.Context, x *node) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := x.client.Get(ctx, fmt.Sprintf("%s/%x", seat, x.lease))
		if err != nil || resp.Count > 0 {
			return err
		}
		select {
		case <-tick.C:
		case err := <-t.failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// await waits until so many watches have begun.
func (t *trial) await(ctx context.Context, begun <-chan struct{}, watches int) error {
	for range watches {
		select {
		case <-begun:
		case err := <-t.failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// onDelete watches a key and calls fn each time that it is deleted.
func onDelete(ctx context.Context, x *node, key string, begun chan<- struct{}, fn func() error) error {
	for resp := range x.client.Watch(ctx, key, clientv3.WithCreatedNotify()) {
		if err := resp.Err(); err != nil {
			return err
		}
		if resp.Created {
			select {
			case begun <- struct{}{}:
			case <-ctx.Done():
			}
		}
		for _, ev := range resp.Events {
			if ev.Type != clientv3.EventTypeDelete {
				continue
			}
			if err := fn(); err != nil {
				return err
			}
		}
	}
	return nil
}

// take makes a key, on the node's lease, if there is none. It returns its
// revision, 0 if somebody else was faster.
func take(ctx context.Context, x *node, key string) (rev int64, err error) {
	resp, err := x.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, name(x), clientv3.WithLease(x.lease))).Commit()
	if err != nil || !resp.Succeeded {
		return 0, err
	}
	return resp.Header.Revision, nil
}

// takeOver is the work of a new controller: it reads all partitions and writes
// who leads each, guarded by its seat.
func (t *trial) takeOver(ctx context.Context, x *node, guard clientv3.Cmp) error {
	end := clientv3.GetPrefixRangeEnd(prefix + "partitions/")
	for key, more := prefix+"partitions/", true; more; {
		resp, err := x.client.Get(ctx, key, clientv3.WithRange(end), clientv3.WithLimit(page))
		if err != nil {
			return err
		}
		if more = resp.More; more {
			key = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
		}
	}
	return t.put(ctx, x, []clientv3.Cmp{guard})
}
