package etcdstore

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/controllerd/controllerd/store"
)

// AwaitTurn campaigns in an election of etcd's concurrency package, whose keys
// are the queue. Its client is one of its own that ends with ctx: so a wait
// that is given up leaves the key where it is, which the package would delete,
// and nothing but the owner renews the lease, which a session would keep alive
// whatever becomes of the owner.
func (s *Store) AwaitTurn(ctx context.Context, prefix string, lease store.LeaseID, value []byte) (store.Rev, error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	client := clientv3.NewCtxClient(ctx)
	client.KV, client.Watcher, client.Lease = s.client.KV, s.client.Watcher, renewedElsewhere{}
	session, err := concurrency.NewSession(client, concurrency.WithLease(clientv3.LeaseID(lease)), concurrency.WithContext(ctx))
	if err != nil {
		return 0, fmt.Errorf("queue under %q: %w", prefix, classify(err))
	}
	defer session.Orphan()
	election := concurrency.NewElection(session, strings.TrimSuffix(prefix, "/"))
	if err := election.Campaign(ctx, string(value)); err != nil {
		return 0, fmt.Errorf("queue under %q: %w", prefix, classify(err))
	}
	return store.Rev(election.Rev()), nil
}

// renewedElsewhere is the lease of a session that renews nothing.
type renewedElsewhere struct{ clientv3.Lease }

// KeepAlive is silent until the context ends.
func (renewedElsewhere) KeepAlive(ctx context.Context, _ clientv3.LeaseID) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	silent := make(chan *clientv3.LeaseKeepAliveResponse)
	context.AfterFunc(ctx, func() { close(silent) })
	return silent, nil
}
