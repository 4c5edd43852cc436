package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/controllerd/controllerd/store"
)

// Grant makes a lease; etcd counts in whole seconds and has a minimum of 1.5
// election timeouts. The client repeats a grant whose reply was lost, so each
// call may leave leases behind that expire by themselves.
func (s *Store) Grant(ctx context.Context, ttl time.Duration) (store.Lease, error) {
	resp, err := s.client.Grant(ctx, wholeSeconds(ttl))
	if err != nil {
		return store.Lease{}, fmt.Errorf("grant lease: %w", classify(err))
	}
	return store.Lease{ID: store.LeaseID(resp.ID), TTL: seconds(resp.TTL)}, nil
}

// Renew starts the lease's TTL again.
func (s *Store) Renew(ctx context.Context, id store.LeaseID) (time.Duration, error) {
	resp, err := s.client.KeepAliveOnce(ctx, clientv3.LeaseID(id))
	if err != nil {
		return 0, fmt.Errorf("renew lease %x: %w", id, classify(err))
	}
	return seconds(resp.TTL), nil
}

// Revoke ends a lease and deletes its keys.
func (s *Store) Revoke(ctx context.Context, id store.LeaseID) error {
	_, err := s.client.Revoke(ctx, clientv3.LeaseID(id))
	if err = classify(err); err != nil && !errors.Is(err, store.ErrLeaseNotFound) {
		return fmt.Errorf("revoke lease %x: %w", id, err)
	}
	return nil
}

func seconds(ttl int64) time.Duration { return time.Duration(ttl) * time.Second }

// wholeSeconds rounds up: a lease is at least as long as was asked.
func wholeSeconds(ttl time.Duration) int64 {
	return int64((ttl + time.Second - 1) / time.Second)
}
