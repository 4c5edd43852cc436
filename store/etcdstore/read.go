package etcdstore

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/controllerd/controllerd/store"
)

// pageKeys is how many keys List asks for at once. etcd counts the keys that
// remain for each page, so small pages are slow: 500,000 keys take 9 s in
// pages of 1,000.
const pageKeys = 10_000

// Get reads keys in one read-only transaction of linearizable ranges.
func (s *Store) Get(ctx context.Context, keys ...string) (store.Snapshot, error) {
	keys, err := store.ReadSet(keys)
	if err != nil {
		return store.Snapshot{}, err
	}
	ops := make([]clientv3.Op, len(keys))
	for i, k := range keys {
		ops[i] = clientv3.OpGet(k)
	}
	resp, err := s.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return store.Snapshot{}, fmt.Errorf("get %d keys: %w", len(keys), classify(err))
	}
	snap := store.Snapshot{Rev: store.Rev(resp.Header.Revision)}
	for _, r := range resp.Responses {
		for _, kv := range r.GetResponseRange().GetKvs() {
			snap.KVs = append(snap.KVs, kvOf(kv))
		}
	}
	return snap, nil
}

// List reads a prefix in pages of one revision. If that revision is compacted
// meanwhile it begins again at a new one.
func (s *Store) List(ctx context.Context, prefix string, keysOnly bool) (store.Snapshot, error) {
	for {
		snap, err := s.listOnce(ctx, prefix, keysOnly)
		if err == nil {
			return snap, nil
		}
		if !compacted(err) {
			return store.Snapshot{}, fmt.Errorf("list %q: %w", prefix, classify(err))
		}
	}
}

func (s *Store) listOnce(ctx context.Context, prefix string, keysOnly bool) (store.Snapshot, error) {
	var snap store.Snapshot
	from, end := rangeOf(prefix)
	convert := kvOf
	if keysOnly {
		convert = keyOf
	}
	for {
		// Without a revision the first page reads the newest one.
		opts := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(pageKeys), clientv3.WithRev(int64(snap.Rev))}
		if keysOnly {
			opts = append(opts, clientv3.WithKeysOnly())
		}
		resp, err := s.client.Get(ctx, from, opts...)
		if err != nil {
			return store.Snapshot{}, err
		}
		if snap.Rev == 0 {
			snap.Rev = store.Rev(resp.Header.Revision)
			snap.KVs = make([]store.KV, 0, resp.Count)
		}
		for _, kv := range resp.Kvs {
			snap.KVs = append(snap.KVs, convert(kv))
		}
		if !resp.More {
			return snap, nil
		}
		from = snap.KVs[len(snap.KVs)-1].Key + "\x00"
	}
}

// rangeOf is the range of keys with a prefix, as etcd wants it.
func rangeOf(prefix string) (from, end string) {
	if prefix == "" {
		return "\x00", "\x00"
	}
	return prefix, clientv3.GetPrefixRangeEnd(prefix)
}

func kvOf(kv *mvccpb.KeyValue) store.KV {
	out := keyOf(kv)
	out.Value, out.Lease = kv.Value, store.LeaseID(kv.Lease)
	return out
}

// keyOf leaves out the value, and the lease, which etcd since 3.7 does not tell
// of a read without values.
func keyOf(kv *mvccpb.KeyValue) store.KV {
	return store.KV{
		Key:       string(kv.Key),
		CreateRev: store.Rev(kv.CreateRevision),
		ModRev:    store.Rev(kv.ModRevision),
	}
}
