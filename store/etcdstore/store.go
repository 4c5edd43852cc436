package etcdstore

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/controllerd/controllerd/store"
)

// Store is a store.Store on etcd. It is safe for concurrent use.
type Store struct {
	client *clientv3.Client
}

var _ store.Store = (*Store)(nil)

// New makes a Store on a client, which the caller closes afterwards.
func New(client *clientv3.Client) *Store { return &Store{client: client} }
