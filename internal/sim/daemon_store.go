package sim

import (
	"context"
	"errors"
	"time"

	"github.com/controllerd/controllerd/controller"
	"github.com/controllerd/controllerd/election"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/memstore"
)

func (d *simDaemon) get(keys []string, done func(store.Snapshot, error)) {
	call(d, election.CallTimeout, func(m *memstore.Model) (store.Snapshot, error) { return m.Get(keys...) }, done)
}

// commit runs one transaction of the term.
func (d *simDaemon) commit(a controller.Commit, allowed bool) {
	if !allowed {
		d.post(controller.Committed{Chunk: a.Chunk, Err: rpc.ErrQuiet})
		return
	}
	cancel := d.txn(a.Txn, func(res store.Result, err error) {
		d.post(controller.Committed{Chunk: a.Chunk, Result: res, Err: err})
	})
	d.cancels = append(d.cancels, cancel)
}

func (d *simDaemon) txn(txn store.Txn, done func(store.Result, error)) (cancel func()) {
	return call(d, election.CallTimeout, func(m *memstore.Model) (store.Result, error) {
		res, err := m.Txn(txn)
		d.w.countFailed(txn, res, err)
		d.w.tracef("txn of %s: %s: succeeded %v at %d, %v", d.name, d.w.txnText(txn), res.Succeeded, res.Rev, err)
		return res, err
	}, done)
}

func (d *simDaemon) elect(a election.Action) {
	answer := func(ev election.Event) { d.post(controller.Elected{Event: ev}) }
	switch a := a.(type) {
	case election.Begin:
		d.cancels = nil
		d.w.tracef("%s: active, epoch %d", d.name, a.Claim.Epoch)
		d.w.noteGarbled("term begun over a garbled key", "")
	case election.Stop:
		d.w.tracef("%s: not active any more, epoch %d: %v %s", d.name, a.Claim.Epoch, a.Cause, a.End.Reason)
		if t := d.w.truth().Terms[a.Claim.Epoch]; t != nil && t.Record.GetEndCause() == pb.EndCause_END_CAUSE_PROVEN_DEAD {
			d.w.seen["active that lived and was taken for dead"]++
		}
		for _, cancel := range d.cancels {
			d.after(0, nil, cancel)
		}
		d.cancels = nil
	case election.Grant:
		call(d, election.CallTimeout, func(m *memstore.Model) (store.Lease, error) { return m.Grant(d.w.now, a.TTL) },
			func(l store.Lease, err error) { answer(election.Granted{Sent: a.Sent, Lease: l, Err: err}) })
	case election.Renew:
		call(d, a.Timeout, func(m *memstore.Model) (time.Duration, error) { return m.Renew(d.w.now, a.Lease) },
			func(ttl time.Duration, err error) {
				answer(election.Renewed{Lease: a.Lease, Sent: a.Sent, TTL: ttl, Err: err})
			})
	case election.Probe:
		d.get(a.Keys, func(read store.Snapshot, err error) { answer(election.Probed{Sent: a.Sent, Read: read, Err: err}) })
	case election.Commit:
		d.txn(a.Txn, func(res store.Result, err error) { answer(election.Committed{Commit: a, Result: res, Err: err}) })
	case election.AwaitTurn:
		d.awaitTurn(a, d.w.now+a.Timeout, answer)
	case election.Attend:
		d.attend(a.Peer)
	case election.Revoke:
		d.revoke(a.Lease, func() { answer(election.Revoked{Lease: a.Lease}) })
	}
}

// awaitTurn asks, again after each change, until nobody in the queue is older.
func (d *simDaemon) awaitTurn(a election.AwaitTurn, end time.Duration, answer func(election.Event)) {
	var older string
	call(d, min(election.CallTimeout, max(end-d.w.now, 0)), func(m *memstore.Model) (rev store.Rev, err error) {
		rev, older, err = m.Enqueue(a.Prefix, a.Lease, a.Value)
		return rev, err
	}, func(rev store.Rev, err error) {
		switch {
		case err == nil && older == "" || errors.Is(err, store.ErrLeaseNotFound):
			d.w.seen["turn in the queue"]++
			answer(election.TurnCame{Lease: a.Lease, Rev: rev, Err: err})
		case d.w.now >= end:
			answer(election.TurnCame{Lease: a.Lease, Err: context.DeadlineExceeded})
		case err != nil:
			d.after(d.w.upTo(100*time.Millisecond), nil, func() { d.awaitTurn(a, end, answer) })
		default:
			d.w.etcd.onDelete(older, end, func() { d.after(d.w.latency(), nil, func() { d.awaitTurn(a, end, answer) }) })
		}
	})
}

func (d *simDaemon) revoke(id store.LeaseID, done func()) {
	call(d, election.CallTimeout, func(m *memstore.Model) (struct{}, error) {
		m.Revoke(id)
		return struct{}{}, nil
	}, func(struct{}, error) { done() })
}
