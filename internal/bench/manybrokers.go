package main

import (
	"context"
	"fmt"
	"time"

	"github.com/controllerd/controllerd/cluster"
)

const (
	manyBrokers = 1000
	resting     = 5 * time.Second // in which CPU is counted
)

var manyBrokersRow = row{
	name: "brokers1000",
	what: `
1,000 brokers with sessions of 10 s and a listener each, in one process, and two daemons. Registered: from starting them at
once until all are registered and have obeyed a command on their stream; bare, one client that grants as many leases and
puts as many pairs of keys at once. Metadata: from sending a request for a topic of one partition until the last of them has
obeyed what it says; bare, from sending a put until the last of as many watches of one client shows it. Renewals: what the
two daemons together and etcd use of a core when nothing happens, in 5 s; bare, etcd when one client renews as many leases as
often.`,
	run: brokers1000,
}

func brokers1000(ctx context.Context, b *bench) ([]figure, error) {
	w, err := newWorld(ctx, b, 2)
	if err != nil {
		return nil, err
	}
	defer w.close()
	n := b.scaled(manyBrokers, 3)
	registered, err := measureOne(ctx, "registered", func(ctx context.Context) (time.Duration, error) {
		took, end, err := w.register(ctx, n)
		if err != nil {
			return 0, err
		}
		return took, end(ctx)
	})
	if err != nil {
		return nil, err
	}
	_, end, err := w.register(ctx, n)
	if err != nil {
		return nil, err
	}
	metadata, err := w.metadataSeries(ctx)
	if err != nil {
		return nil, err
	}
	used, err := measureValues(ctx, "renewals", w.rested)
	if err != nil {
		return nil, err
	}
	if err := end(ctx); err != nil {
		return nil, err
	}
	bare, err := w.bareBrokers(ctx, n)
	if err != nil {
		return nil, err
	}
	return []figure{
		{what: "registered, streams open", ours: registered, bare: bare.registered},
		{what: "metadata, until the last broker", ours: metadata, bare: bare.told},
		{what: "renewals, the daemons", unit: ofCore, ours: used[0]},
		{what: "renewals, etcd", unit: ofCore, ours: used[1], bare: bare.used},
	}, nil
}

// register starts n brokers, and returns how long it took until all have heard
// from the active daemon. They end in order when end is called.
func (w *world) register(ctx context.Context, n int) (took time.Duration, end func(context.Context) error, err error) {
	_, epoch, err := w.active(ctx)
	if err != nil {
		return 0, nil, err
	}
	running, stop := context.WithCancel(ctx)
	end = func(ctx context.Context) error {
		stop()
		for id, n := range w.nodes {
			_ = n.Wait()
			delete(w.nodes, id)
		}
		err := w.await(ctx, "the end of all brokers", func(im *cluster.Image) bool { return len(im.Brokers) == 0 })
		if err != nil {
			return err
		}
		return pause(ctx, settling)
	}
	began := time.Now()
	for id := range n {
		if _, err := w.launchNode(running, cluster.BrokerID(id+1), never); err != nil {
			stop()
			return 0, nil, err
		}
	}
	last, err := w.awaitAll(ctx, "the first command", func(n *node) time.Time { return n.first[epoch] })
	if err != nil {
		stop()
		return 0, nil, err
	}
	return last.Sub(began), end, pause(ctx, settling)
}

// metadataSeries is how long it takes until all brokers know of a new topic.
func (w *world) metadataSeries(ctx context.Context) ([]float64, error) {
	admin, err := w.admin(ctx)
	if err != nil {
		return nil, err
	}
	topics := topicsOf(rounds+1, 1, 0)
	return measureOne(ctx, "metadata", func(ctx context.Context) (time.Duration, error) {
		if err := pause(ctx, 2*settling); err != nil {
			return 0, err
		}
		topic := topics[0]
		topics = topics[1:]
		w.countCalls()
		began := time.Now()
		if err := create(ctx, admin, topic); err != nil {
			return 0, err
		}
		last, err := w.awaitAll(ctx, "metadata", func(n *node) time.Time { return n.told })
		return last.Sub(began), err
	})
}

// rested is what the daemons and etcd use of a core when nothing happens.
func (w *world) rested(ctx context.Context) ([]float64, error) {
	before, err := w.used()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := pause(ctx, resting); err != nil {
		return nil, err
	}
	after, err := w.used()
	if err != nil {
		return nil, err
	}
	for i := range after {
		after[i] = (after[i] - before[i]) / time.Since(began).Seconds()
	}
	return after, nil
}

// used is what all daemons, and etcd, have used of a core so far.
func (w *world) used() ([]float64, error) {
	var daemons float64
	for id, p := range w.daemons {
		s, err := p.cpu()
		if err != nil {
			return nil, fmt.Errorf("CPU of daemon %s: %w", id, err)
		}
		daemons += s
	}
	etcd, err := w.etcd.cpu()
	return []float64{daemons, etcd}, err
}
