package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/election"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/memstore"
)

// rpcCall is one call of a broker or an operator to a daemon.
type rpcCall struct {
	server *simDaemon
	until  time.Duration
	ended  bool
	reply  func(resp any, err error) // once; later ones are nothing
}

// expired reports whether the server should stop working for the caller.
func (c *rpcCall) expired() bool { return c.ended || c.server.w.now >= c.until }

// serverGone tells the caller that the connection broke.
func (c *rpcCall) serverGone() { c.reply(nil, errUnreachable) }

// ask makes a call over a link from a process, nil for an operator, to the
// daemon of that index.
func (w *World) ask(from *process, l *link, to int, timeout time.Duration, serve func(*simDaemon, *rpcCall), done func(any, error)) {
	answered := false
	answer := func(d time.Duration, resp any, err error) {
		fn := func() {
			if !answered {
				answered = true
				done(resp, err)
			}
		}
		if from == nil {
			w.after(d, fn)
		} else {
			from.after(d, nil, fn)
		}
	}
	answer(timeout, nil, errLate)
	if l.broken() {
		answer(w.latency(), nil, errUnreachable)
		return
	}
	if !w.passes(l.in) { // in and out are the daemon's
		return
	}
	c := &rpcCall{until: w.now + timeout}
	w.after(w.latency(), func() {
		d := w.daemons[to]
		if d == nil || d.dead {
			answer(w.latency(), nil, errUnreachable)
			return
		}
		c.server = d
		c.reply = func(resp any, err error) {
			if c.ended {
				return
			}
			c.ended = true
			d.calls = slices.DeleteFunc(d.calls, func(o *rpcCall) bool { return o == c })
			if w.passes(l.out) {
				answer(w.latency(), resp, err)
			}
		}
		d.calls = append(d.calls, c)
		d.after(0, nil, func() { serve(d, c) })
	})
}

// registering is one Register at a daemon, as the service of package rpc does
// it.
type registering struct {
	*rpcCall
	d     *simDaemon
	r     *pb.RegisterRequest
	lease store.Lease
}

func (d *simDaemon) register(c *rpcCall, r *pb.RegisterRequest) {
	g := &registering{rpcCall: c, d: d, r: r}
	d.await(time.Minute, func(rpc.View) bool { return true }, g.next)
}

func (g *registering) next() {
	if g.expired() {
		g.giveUp(errLate)
		return
	}
	if !g.d.loop.Whole() {
		g.d.await(time.Minute, func(rpc.View) bool { return true }, g.next)
		return
	}
	v := g.d.loop.View()
	step := rpc.DecideRegister(v, g.r, g.lease.ID, g.d.w.wallMs())
	switch {
	case step.Err != nil:
		g.giveUp(step.Err)
	case step.Done != nil:
		if step.Done.Lease == g.lease.ID {
			g.lease.ID = 0 // it is needed
		}
		g.giveUp(nil)
		g.reply(&pb.RegisterResponse{
			ClusterUuid: v.ClusterUUID, BrokerEpoch: int64(step.Done.Epoch), Lease: int64(step.Done.Lease),
			SessionTtlMs: g.r.GetSessionTtlMs(), ControllerEpoch: int64(v.Image.Epoch),
		}, nil)
	case step.Grant && g.lease.ID == 0:
		g.grant()
	default:
		g.commit(step)
	}
}

// giveUp lets a lease go that was not needed, and says why if there is an
// error.
func (g *registering) giveUp(err error) {
	if g.lease.ID != 0 {
		g.d.revoke(g.lease.ID, func() {})
	}
	if err != nil {
		g.reply(nil, err)
	}
}

func (g *registering) grant() {
	ttl := time.Duration(g.r.GetSessionTtlMs()) * time.Millisecond
	call(g.d, election.CallTimeout, func(m *memstore.Model) (store.Lease, error) { return m.Grant(g.d.w.now, ttl) },
		func(l store.Lease, err error) {
			if err != nil {
				g.giveUp(errDaemonTooBusy)
				return
			}
			g.lease = l
			g.next()
		})
}

func (g *registering) commit(step rpc.Registration) {
	g.d.txn(step.Txn, func(res store.Result, err error) {
		if err != nil {
			g.giveUp(errDaemonTooBusy)
			return
		}
		shown := func(v rpc.View) bool { return v.Image.Rev >= res.Rev }
		if !res.Succeeded {
			shown = func(v rpc.View) bool { return v.Image.Reached(res.Rev, res.Found, absent(step.Txn.If, res.Found)) }
		}
		wait := func() { g.d.await(g.until-g.d.w.now, shown, g.next) }
		if res.Succeeded && step.Revoke != 0 {
			g.d.revoke(step.Revoke, wait)
		} else {
			wait()
		}
	})
}

func absent(conds []store.Cond, found []store.KV) []string {
	var out []string
	for _, c := range conds {
		if !slices.ContainsFunc(found, func(kv store.KV) bool { return kv.Key == c.Key }) {
			out = append(out, c.Key)
		}
	}
	return out
}

// renew serves a RenewSession.
func (d *simDaemon) renew(c *rpcCall, r *pb.RenewSessionRequest) {
	const limit = 3 * time.Second
	lease := store.LeaseID(r.GetLease())
	d.await(limit, func(v rpc.View) bool { return v.Image.Rev >= store.Rev(r.GetBrokerEpoch()) }, func() {
		im := d.loop.Image()
		resp := &pb.RenewSessionResponse{ControllerEpoch: int64(im.Epoch)}
		if err := rpc.CheckRenewal(im, r); err != nil {
			c.reply(nil, err)
			return
		}
		call(d, limit, func(m *memstore.Model) (time.Duration, error) { return m.Renew(d.w.now, lease) },
			func(_ time.Duration, lost error) {
				switch {
				case errors.Is(lost, store.ErrLeaseNotFound):
					c.reply(nil, rpc.Error(cluster.StaleBrokerEpoch, nil, "lease is gone"))
				case lost != nil:
					c.reply(nil, errDaemonTooBusy)
				default:
					c.reply(resp, nil)
				}
			})
	})
}

// decide serves a call that only the active decides: a standby passes it on
// once.
func (d *simDaemon) decide(c *rpcCall, r rpc.Request, passOn bool) {
	answered := d.asking(r)
	d.submit(r, func(a rpc.Answer) {
		answered(a)
		to := d.activeIndex()
		if rpc.ReasonOf(a.Err) != cluster.NotController || !passOn || to < 0 {
			c.reply(a.Response, a.Err)
			return
		}
		d.w.ask(&d.process, &link{}, to, c.until-d.w.now, func(next *simDaemon, c *rpcCall) { next.decide(c, r, false) }, c.reply)
	})
}

// activeIndex is where the daemon believes the active one, -1: nowhere.
func (d *simDaemon) activeIndex() int {
	c := d.loop.Image().Controller
	return slices.IndexFunc(d.w.daemons[:], func(o *simDaemon) bool {
		return o != nil && c != nil && o.endpoint == c.Record.GetEndpoint()
	})
}
