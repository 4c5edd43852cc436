package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	prefix   = "herd/"
	leaseTTL = 120              // seconds, longer than a trial
	limit    = 60 * time.Second // of a trial
	maxOps   = 128              // of a transaction, etcd's default
	inFlight = 16               // transactions of one node
	page     = 1000             // keys of one read
	dialing  = 10 * time.Second
)

// size is how large a trial is.
type size struct {
	candidates int // nodes, of which the first leads everything and dies
	partitions int
	replicas   int // of a partition, the first on the first node
}

// result is what a trial has shown.
type result struct {
	scheme *scheme
	size   size
	cost   cost
	took   time.Duration // until all partitions had a leader again
}

// node is one candidate.
type node struct {
	id     int
	client *clientv3.Client
	lease  clientv3.LeaseID
}

// trial is one death of the node that leads everything.
type trial struct {
	size
	endpoint string
	nodes    []*node
	wg       sync.WaitGroup // what the others run
	left     atomic.Int64   // partitions without a leader
	done     chan struct{}  // closed when none is left
	failed   chan error     // what has ended one of them
}

// run measures one scheme.
func run(ctx context.Context, endpoint string, s *scheme, n size) (r result, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t := &trial{size: n, endpoint: endpoint, done: make(chan struct{}), failed: make(chan error, 1)}
	defer func() {
		cancel()
		t.wg.Wait()
		for _, x := range t.nodes {
			err = errors.Join(err, x.client.Close())
		}
	}()
	if err := t.open(ctx); err != nil {
		return r, err
	}
	t.left.Store(int64(n.partitions))
	if err := s.prepare(ctx, t); err != nil {
		return r, fmt.Errorf("prepare: %w", err)
	}
	before, err := settled(ctx, endpoint)
	if err != nil {
		return r, err
	}
	begun := time.Now()
	if _, err := t.nodes[1].client.Revoke(ctx, t.nodes[0].lease); err != nil {
		return r, fmt.Errorf("revoke the lease of the first node: %w", err)
	}
	select {
	case <-t.done:
	case err := <-t.failed:
		return r, err
	case <-ctx.Done():
		return r, fmt.Errorf("%d partitions have no leader yet: %w", t.left.Load(), ctx.Err())
	}
	took := time.Since(begun)
	after, err := settled(ctx, endpoint)
	return result{s, n, after.minus(before), took}, err
}

// open connects all nodes to an etcd without old keys, each with a session.
func (t *trial) open(ctx context.Context) error {
	for i := range t.candidates {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{t.endpoint}, DialTimeout: dialing})
		if err != nil {
			return err
		}
		t.nodes = append(t.nodes, &node{id: i, client: client})
	}
	if _, err := t.nodes[0].client.Delete(ctx, prefix, clientv3.WithPrefix()); err != nil {
		return fmt.Errorf("delete what is left: %w", err)
	}
	for _, x := range t.nodes {
		lease, err := x.client.Grant(ctx, leaseTTL)
		if err != nil {
			return fmt.Errorf("grant a lease: %w", err)
		}
		x.lease = lease.ID
	}
	return nil
}

// led notes that partitions have got a leader.
func (t *trial) led(n int) {
	if t.left.Add(int64(-n)) == 0 {
		close(t.done)
	}
}

// start runs fn for one of the nodes until the trial ends.
func (t *trial) start(ctx context.Context, fn func() error) {
	t.wg.Go(func() {
		if err := fn(); err != nil && ctx.Err() == nil {
			select {
			case t.failed <- err:
			default:
			}
		}
	})
}

// put writes one key for each partition, led by a node, in large transactions.
func (t *trial) put(ctx context.Context, x *node, guard []clientv3.Cmp, opts ...clientv3.OpOption) error {
	room := make(chan struct{}, inFlight)
	errs := make(chan error, t.partitions/(maxOps-1)+1)
	chunks := 0
	for from := 0; from < t.partitions; from += maxOps - 1 {
		to := min(from+maxOps-1, t.partitions)
		var ops []clientv3.Op
		for p := from; p < to; p++ {
			ops = append(ops, clientv3.OpPut(partition(p), name(x), opts...))
		}
		room <- struct{}{}
		chunks++
		go func() {
			resp, err := x.client.Txn(ctx).If(guard...).Then(ops...).Commit()
			if err == nil && !resp.Succeeded {
				err = errors.New("the seat is lost")
			}
			if err == nil && x.id != 0 {
				t.led(to - from)
			}
			<-room
			errs <- err
		}()
	}
	var err error
	for range chunks {
		err = errors.Join(err, <-errs)
	}
	return err
}

func partition(p int) string { return fmt.Sprintf("%spartitions/%06d", prefix, p) }

func name(x *node) string { return fmt.Sprint("node-", x.id) }
