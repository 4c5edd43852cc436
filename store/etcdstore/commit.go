package etcdstore

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/controllerd/controllerd/store"
)

// Commit sends the transaction once. Its else branch reads the compared keys,
// so a failure says what it met.
func (s *Store) Commit(ctx context.Context, txn store.Txn) (store.Result, error) {
	if err := txn.Validate(); err != nil {
		return store.Result{}, err
	}
	resp, err := s.client.Txn(ctx).If(compares(txn.If)...).Then(writes(txn.Then)...).Else(reads(txn.If)...).Commit()
	if err != nil {
		return store.Result{}, fmt.Errorf("commit transaction: %w", classify(err))
	}
	result := store.Result{Succeeded: resp.Succeeded, Rev: store.Rev(resp.Header.Revision)}
	if !resp.Succeeded {
		result.Found = found(resp)
	}
	return result, nil
}

func compares(conds []store.Cond) []clientv3.Cmp {
	cmps := make([]clientv3.Cmp, len(conds))
	for i, c := range conds {
		field := clientv3.ModRevision(c.Key)
		if c.Field == store.CreateRev {
			field = clientv3.CreateRevision(c.Key)
		}
		cmps[i] = clientv3.Compare(field, "=", int64(c.Rev))
	}
	return cmps
}

func writes(ops []store.Op) []clientv3.Op {
	out := make([]clientv3.Op, len(ops))
	for i, op := range ops {
		switch {
		case op.Kind == store.OpDelete:
			out[i] = clientv3.OpDelete(op.Key)
		case op.Kind == store.OpDeletePrefix:
			out[i] = clientv3.OpDelete(op.Key, clientv3.WithPrefix())
		case op.KeepLease:
			out[i] = clientv3.OpPut(op.Key, string(op.Value), clientv3.WithIgnoreLease())
		default:
			out[i] = clientv3.OpPut(op.Key, string(op.Value), clientv3.WithLease(clientv3.LeaseID(op.Lease)))
		}
	}
	return out
}

// reads is the else branch: the compared keys, each once. It also makes a
// transaction without writes linearizable, which for etcd one without any
// operation is not.
func reads(conds []store.Cond) []clientv3.Op {
	seen := make(map[string]bool, len(conds))
	var ops []clientv3.Op
	for _, c := range conds {
		if !seen[c.Key] {
			seen[c.Key] = true
			ops = append(ops, clientv3.OpGet(c.Key, clientv3.WithKeysOnly()))
		}
	}
	return ops
}

func found(resp *clientv3.TxnResponse) []store.KV {
	var kvs []store.KV
	for _, r := range resp.Responses {
		for _, kv := range r.GetResponseRange().GetKvs() {
			kvs = append(kvs, keyOf(kv))
		}
	}
	return kvs
}
