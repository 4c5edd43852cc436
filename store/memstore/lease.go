package memstore

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/controllerd/controllerd/store"
)

type lease struct {
	ttl      time.Duration
	deadline time.Duration
	keys     map[string]bool
}

// attach moves a key from one lease to another; 0 is none.
func (m *Model) attach(key string, from, to store.LeaseID) {
	if l := m.leases[from]; l != nil {
		delete(l.keys, key)
	}
	if l := m.leases[to]; l != nil {
		l.keys[key] = true
	}
}

// Grant makes a lease. Like etcd it counts in whole seconds.
func (m *Model) Grant(now, ttl time.Duration) (store.Lease, error) {
	if m.NoSpace {
		return store.Lease{}, fmt.Errorf("grant lease: %w: %w", store.ErrNoSpace, store.ErrUnknown)
	}
	ttl = max((ttl + time.Second - 1).Truncate(time.Second), m.MinTTL)
	m.lastLease++
	m.leases[m.lastLease] = &lease{ttl: ttl, deadline: now + ttl, keys: map[string]bool{}}
	return store.Lease{ID: m.lastLease, TTL: ttl}, nil
}

// Renew starts a lease's TTL again. One whose deadline has passed is revoked:
// etcd answers only after that too.
func (m *Model) Renew(now time.Duration, id store.LeaseID) (time.Duration, error) {
	l := m.leases[id]
	if l == nil || l.deadline <= now {
		m.Revoke(id)
		return 0, fmt.Errorf("renew lease %x: %w", id, store.ErrLeaseNotFound)
	}
	l.deadline = now + l.ttl
	return l.ttl, nil
}

// Revoke ends a lease and deletes its keys at one revision. A lease that is
// gone is no error.
func (m *Model) Revoke(id store.LeaseID) {
	l := m.leases[id]
	if l == nil {
		return
	}
	rev := m.rev + 1
	for _, key := range slices.Sorted(maps.Keys(l.keys)) {
		m.delete(key, rev)
	}
	delete(m.leases, id)
}

// Expire revokes the leases whose deadline has come, one after the other, and
// returns them. Until it is called they are as alive as in an etcd that is
// late to revoke: they may be put under, but not renewed.
func (m *Model) Expire(now time.Duration) []store.LeaseID {
	var due []store.LeaseID
	for id, l := range m.leases {
		if l.deadline <= now {
			due = append(due, id)
		}
	}
	slices.SortFunc(due, func(a, b store.LeaseID) int {
		return cmp.Or(cmp.Compare(m.leases[a].deadline, m.leases[b].deadline), cmp.Compare(a, b))
	})
	for _, id := range due {
		m.Revoke(id)
	}
	return due
}

// NextExpiry is the deadline of the lease that expires next, if there is one.
func (m *Model) NextExpiry() (at time.Duration, ok bool) {
	for _, l := range m.leases {
		if !ok || l.deadline < at {
			at, ok = l.deadline, true
		}
	}
	return at, ok
}

// Leases are the leases that stand, in order of their ids.
func (m *Model) Leases() []store.LeaseID { return slices.Sorted(maps.Keys(m.leases)) }
