package election

import (
	"context"
	"time"

	"github.com/controllerd/controllerd/store"
)

// CallTimeout bounds one call of the store.
const CallTimeout = 3 * time.Second

// Do runs one action against the store, and posts the answer. It does not
// wait: what is called runs in a goroutine of its own, started by spawn. Begin
// and Stop need no call.
func Do(ctx context.Context, s store.Store, a Action, spawn func(func()), post func(Event)) {
	call := func(timeout time.Duration, fn func(context.Context) Event) {
		spawn(func() {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			post(fn(ctx))
		})
	}
	switch a := a.(type) {
	case Grant:
		call(CallTimeout, func(ctx context.Context) Event {
			lease, err := s.Grant(ctx, a.TTL)
			return Granted{Sent: a.Sent, Lease: lease, Err: err}
		})
	case Renew:
		call(a.Timeout, func(ctx context.Context) Event {
			ttl, err := s.Renew(ctx, a.Lease)
			return Renewed{Lease: a.Lease, Sent: a.Sent, TTL: ttl, Err: err}
		})
	case Probe:
		call(CallTimeout, func(ctx context.Context) Event {
			read, err := s.Get(ctx, a.Keys...)
			return Probed{Sent: a.Sent, Read: read, Err: err}
		})
	case Commit:
		call(CallTimeout, func(ctx context.Context) Event {
			result, err := s.Commit(ctx, a.Txn)
			return Committed{Commit: a, Result: result, Err: err}
		})
	case AwaitTurn:
		call(a.Timeout, func(ctx context.Context) Event {
			rev, err := s.AwaitTurn(ctx, a.Prefix, a.Lease, a.Value)
			return TurnCame{Lease: a.Lease, Rev: rev, Err: err}
		})
	case Revoke:
		call(CallTimeout, func(ctx context.Context) Event {
			// A lease that could not be revoked expires by itself.
			_ = s.Revoke(ctx, a.Lease)
			return Revoked{Lease: a.Lease}
		})
	}
}
