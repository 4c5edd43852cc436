package controller

import (
	"context"
	"time"

	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/rpc"
)

// attend holds a connection to a peer, if there is one, instead of to any
// other, and posts what may prove its death.
func (c *Controller) attend(ctx context.Context, p election.Peer) {
	c.unattend()
	if p == (election.Peer{}) {
		return
	}
	ctx, c.unattend = context.WithCancel(ctx)
	said := false
	c.wg.Go(func() {
		rpc.Attend(ctx, p.Endpoint, p.Nonce, func(address string, since time.Duration) {
			if !said {
				c.log.Warn("the active controller is gone: its connection broke, and its address refuses new ones", "address", address)
				said = true
			}
			c.post(ctx, Elected{election.Refused{Peer: p, Address: address, Since: since}})
		})
	})
}
