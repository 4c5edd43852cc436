package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

const (
	// provable is how long a standby must have seen a term to prove the death of
	// its holder.
	provable          = 5500 * time.Millisecond
	controllerKilled  = 300 * time.Millisecond
	longTTL, shortTTL = time.Minute, leaseTTL
)

var controllerKillRow = row{
	name: "controllerkill",
	what: `
The active daemon is killed by SIGKILL, with two daemons, three brokers and 10,000 partitions: from sending the signal until
a broker has obeyed a command of the next epoch, and until an AlterPartition that was outstanding all the time is committed
under it. With the default lease TTL of 5 s, with one of 60 s, and with 5 s without proofs of death. Of the time 200 ms are
the window in which every new connection must be refused. Bare: a client that holds a connection to a process which is killed
finds it broken, is refused once, frees the seat and takes it; for the last line, as in freeze.`,
	run: controllerKill,
}

func controllerKill(ctx context.Context, b *bench) ([]figure, error) {
	var figures []figure
	for _, ttl := range []time.Duration{shortTTL, longTTL} {
		ours, bare, err := killsOf(ctx, b, (*world).bareKill, "--lease-ttl", ttl.String())
		if err != nil {
			return nil, err
		}
		figures = append(figures,
			figure{what: fmt.Sprintf("TTL %v: until a broker obeys", ttl), ours: ours[0], bare: bare},
			figure{what: fmt.Sprintf("TTL %v: until the AlterPartition is committed", ttl), ours: ours[1], bare: bare},
			figure{what: fmt.Sprintf("TTL %v: until both", ttl), ours: ours[2], bare: bare, below: controllerKilled.Seconds()})
	}
	ours, bare, err := killsOf(ctx, b, (*world).bareFreeze, "--no-death-probe")
	if err != nil {
		return nil, err
	}
	return append(figures, figure{what: fmt.Sprintf("TTL %v, no proof: until both", shortTTL), ours: ours[2], bare: bare}), nil
}

// killsOf measures kills of daemons with those flags.
func killsOf(ctx context.Context, b *bench, bareKill func(*world, context.Context) ([]float64, error), flags ...string) (ours [][]float64, bare []float64, err error) {
	w, err := newWorld(ctx, b, 2, flags...)
	if err != nil {
		return nil, nil, err
	}
	defer w.close()
	if err := w.populate(ctx, 3, 10, b.scaled(1000, 1)); err != nil {
		return nil, nil, err
	}
	ours, err = measure(ctx, fmt.Sprint("kill of the active, ", flags), w.killActive)
	if err != nil {
		return nil, nil, err
	}
	if err := w.checkOrder(); err != nil {
		return nil, nil, err
	}
	bare, err = bareKill(w, ctx)
	return ours, bare, err
}

// killActive kills the active daemon, starts it again, and lets the other one
// hand over to it: a proof of death has to follow a term that ended otherwise.
func (w *world) killActive(ctx context.Context) ([]time.Duration, error) {
	if err := pause(ctx, provable); err != nil {
		return nil, err
	}
	old, epoch, err := w.active(ctx)
	if err != nil {
		return nil, err
	}
	alter, err := w.startAlter(ctx)
	if err != nil {
		return nil, err
	}
	defer alter.stop()
	if err := pause(ctx, settling); err != nil {
		return nil, err
	}
	committed := alter.under(epoch + 1)
	began := time.Now()
	w.daemons[old].kill()
	obeyed, err := w.awaitCommand(ctx, epoch+1)
	if err != nil {
		return nil, err
	}
	var altered outcome
	select {
	case altered = <-committed:
	case <-ctx.Done():
		return nil, fmt.Errorf("waited for an AlterPartition of epoch %d in vain", epoch+1)
	}
	alter.stop()
	command := obeyed.Sub(began)
	took := []time.Duration{command, altered.at.Sub(began), max(command, altered.at.Sub(began))}
	return took, errors.Join(altered.err, w.bringBack(ctx, old))
}

// bringBack starts a daemon that was killed, and gives the seat to it.
func (w *world) bringBack(ctx context.Context, id string) error {
	if err := w.endDaemon(ctx, id); err != nil {
		return err
	}
	if err := w.startDaemon(ctx, id); err != nil {
		return err
	}
	other, epoch, err := w.active(ctx)
	if err != nil {
		return err
	}
	if err := pause(ctx, settling); err != nil { // the other has to see it too
		return err
	}
	admin := pb.NewAdminServiceClient(w.conns[other])
	if _, err := admin.TransferController(ctx, &pb.TransferControllerRequest{Successor: id, Reason: "bench"}); err != nil {
		return fmt.Errorf("hand over to %s: %w", id, err)
	}
	if _, err := w.awaitCommand(ctx, epoch+1); err != nil {
		return err
	}
	return w.settle(ctx)
}

// holdAddress is the whole of a process that listens until it is killed.
func holdAddress(ctx context.Context, address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		defer c.Close()
	}
}

// held is a process that listens, and a connection to it.
type held struct {
	process *process
	conn    net.Conn
}

func (b *bench) startHeld(ctx context.Context) (*held, error) {
	address, err := freeAddr()
	if err != nil {
		return nil, err
	}
	p, err := b.startSelf("hold", "-hold", address)
	if err != nil {
		return nil, err
	}
	for {
		if c, err := net.Dial("tcp", address); err == nil {
			return &held{p, c}, nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			p.kill()
			return nil, fmt.Errorf("connect to %s: %w", address, err)
		}
	}
}

func (h *held) close() {
	h.process.kill()
	_ = h.conn.Close()
}

// awaitDeath returns when the connection broke and another one was refused.
func (h *held) awaitDeath() error {
	if _, err := h.conn.Read(make([]byte, 1)); err == nil {
		return errors.New("a process that only listens says something")
	}
	for { // its listener may close after the connection
		c, err := net.Dial("tcp", h.conn.RemoteAddr().String())
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			return nil
		case err == nil:
			_ = c.Close()
		case !errors.Is(err, syscall.ECONNRESET):
			return err
		}
	}
}

// bareKill is what a bare client does that sees the holder of the seat die.
func (w *world) bareKill(ctx context.Context) ([]float64, error) {
	c, err := w.newContender(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return measureOne(ctx, "bare kill", func(ctx context.Context) (time.Duration, error) {
		h, err := w.b.startHeld(ctx)
		if err != nil {
			return 0, err
		}
		defer h.close()
		if err := c.grant(ctx); err != nil {
			return 0, err
		}
		if err := c.claim(ctx); err != nil {
			return 0, err
		}
		seat, err := c.client.Get(ctx, bareSeat)
		if err != nil {
			return 0, err
		}
		if err := pause(ctx, settling); err != nil {
			return 0, err
		}
		began := time.Now()
		go h.process.kill()
		if err := h.awaitDeath(); err != nil {
			return 0, err
		}
		if err := c.free(ctx, seat.Kvs[0].ModRevision); err != nil {
			return 0, err
		}
		if err := c.claim(ctx); err != nil {
			return 0, err
		}
		took := time.Since(began)
		_, err = c.client.Revoke(ctx, c.lease)
		return took, err
	})
}

// free deletes the seat, if it is as it was at that revision.
func (c *contender) free(ctx context.Context, rev int64) error {
	resp, err := c.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(bareSeat), "=", rev)).
		Then(clientv3.OpDelete(bareSeat), clientv3.OpPut(bareTerm, "x")).
		Commit()
	if err == nil && !resp.Succeeded {
		err = errors.New("somebody else holds the bare seat")
	}
	return err
}
