package main

import (
	"context"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/controller"
	"github.com/controllerd/controllerd/epoch"
	"github.com/controllerd/controllerd/internal/hook"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// tellTerms starts the hook once in each term of a daemon, until the context
// ends. A process that starts again cannot go on with a term, so no term has
// two processes that would run it.
func tellTerms(ctx context.Context, daemon *controller.Controller, hooks *hook.Runner) {
	if !hooks.Given() {
		return
	}
	var told epoch.Claim
	_ = daemon.Await(ctx, func(v rpc.View) bool {
		if v.Active && v.Claim != told {
			told = v.Claim
			hooks.Start(ctx, changeIn(v))
		}
		return false // so that no term is missed in between
	})
}

// changeIn is the change with which the current term has begun.
func changeIn(v rpc.View) hook.Change {
	var now, before *pb.TermRecord
	last := cluster.Epoch(0)
	for e, t := range v.Image.Terms {
		switch {
		case e == v.Claim.Epoch:
			now = t.Record
		case e < v.Claim.Epoch && e > last:
			last, before = e, t.Record
		}
	}
	c := changeOf(v.ClusterUUID, now, before)
	c.Epoch, c.Controller = int64(v.Claim.Epoch), v.Self // if the record of the term cannot be read
	return c
}

// changeOf is the change from one term to the next. before is nil if none is
// known.
func changeOf(uuid string, now, before *pb.TermRecord) hook.Change {
	c := hook.Change{
		ClusterUUID: uuid, Epoch: now.GetEpoch(), Controller: now.GetController(), Endpoint: now.GetEndpoint(), Began: timeOf(now.GetBeganMs()),
	}
	if before != nil {
		ended := termOf(before, false, 0)
		c.PreviousEpoch, c.PreviousController, c.PreviousCause, c.PreviousReason = ended.Epoch, ended.Controller, ended.Cause, ended.Reason
	}
	return c
}
