package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/controllerd/controllerd/cluster"
)

var freezeRow = row{
	name: "freeze",
	what: `
The active daemon is stopped by SIGSTOP at a random moment between two renewals of its lease, whose TTL is the default of
5 s, with two daemons, three brokers and 10,000 partitions: until a broker has obeyed a command of the next epoch. After it
is continued nothing of it is obeyed, or the row fails. Bare: a client stops renewing its lease at a random moment; the
other's watch shows that etcd has deleted the key, and one transaction takes the seat.`,
	run: freeze,
}

func freeze(ctx context.Context, b *bench) ([]figure, error) {
	w, err := newWorld(ctx, b, 2)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if err := w.populate(ctx, 3, 10, b.scaled(1000, 1)); err != nil {
		return nil, err
	}
	ours, err := measure(ctx, "freeze", w.freezeActive)
	if err != nil {
		return nil, err
	}
	if err := w.checkOrder(); err != nil {
		return nil, err
	}
	bare, err := w.bareFreeze(ctx)
	if err != nil {
		return nil, err
	}
	return []figure{{what: "until a broker obeys the next one", ours: ours[0], bare: bare, below: (leaseTTL + time.Second).Seconds()}}, nil
}

// betweenRenewals is a random part of the time between two renewals.
func betweenRenewals() time.Duration { return time.Duration(rand.Int64N(int64(leaseTTL / 4))) }

// freezeActive freezes the active daemon, and brings it back as a standby.
func (w *world) freezeActive(ctx context.Context) ([]time.Duration, error) {
	if err := pause(ctx, betweenRenewals()); err != nil {
		return nil, err
	}
	old, epoch, err := w.active(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := w.daemons[old].signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	obeyed, err := w.awaitCommand(ctx, epoch+1)
	if err != nil {
		return nil, err
	}
	if err := w.daemons[old].signal(syscall.SIGCONT); err != nil {
		return nil, err
	}
	err = w.await(ctx, "daemon "+old+" to stand by again", func(im *cluster.Image) bool { return endpointOf(im, old) != "" })
	if err != nil {
		return nil, err
	}
	if now, _, err := w.active(ctx); err != nil || now == old {
		return nil, fmt.Errorf("daemon %s is active (%w)", now, err)
	}
	return []time.Duration{obeyed.Sub(began)}, w.settle(ctx)
}

func (w *world) bareFreeze(ctx context.Context) ([]float64, error) {
	return measureOne(ctx, "bare freeze", func(ctx context.Context) (time.Duration, error) {
		holder, err := w.newContender(ctx)
		if err != nil {
			return 0, err
		}
		defer holder.close()
		other, err := w.newContender(ctx)
		if err != nil {
			return 0, err
		}
		defer other.close()
		if err := holder.claim(ctx); err != nil {
			return 0, err
		}
		done, err := other.claimWhenEmpty(ctx)
		if err != nil {
			return 0, err
		}
		if _, err := holder.client.KeepAliveOnce(ctx, holder.lease); err != nil {
			return 0, err
		}
		if err := pause(ctx, betweenRenewals()); err != nil {
			return 0, err
		}
		began := time.Now()
		stop := other.keep(ctx)
		taken := <-done
		stop()
		if taken.err != nil {
			return 0, taken.err
		}
		_, err = other.client.Revoke(ctx, other.lease) // which empties the seat
		return taken.at.Sub(began), err
	})
}

// keep renews the lease until it is told to stop.
func (c *contender) keep(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for pause(ctx, leaseTTL/4) == nil {
			_, _ = c.client.KeepAliveOnce(ctx, c.lease)
		}
	}()
	return func() { cancel(); <-ended }
}
