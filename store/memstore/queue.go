package memstore

import (
	"fmt"
	"strings"

	"github.com/controllerd/controllerd/store"
)

// Enqueue puts the key of a queue under its lease, unless it is there, and
// returns its create revision and the key that is the next older one under the
// prefix, empty if there is none; see store.Store.
func (m *Model) Enqueue(prefix string, lease store.LeaseID, value []byte) (store.Rev, string, error) {
	key := fmt.Sprintf("%s%x", prefix, uint64(lease))
	_, err := m.Txn(store.Txn{If: []store.Cond{store.Missing(key)}, Then: []store.Op{store.PutLeased(key, value, lease)}})
	if err != nil {
		return 0, "", err
	}
	own := m.keys[key].CreateRev
	return own, m.Older(prefix, own), nil
}

// Older is the newest of the keys under a prefix that were made before a
// revision, empty if there is none.
func (m *Model) Older(prefix string, rev store.Rev) string {
	var next store.KV
	for key, kv := range m.keys {
		if strings.HasPrefix(key, prefix) && kv.CreateRev < rev && kv.CreateRev > next.CreateRev {
			next = kv
		}
	}
	return next.Key
}
