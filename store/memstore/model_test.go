package memstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/memstore"
)

var always = []store.Cond{store.Missing("never/written")}

func do(t *testing.T, m *memstore.Model, ops ...store.Op) {
	t.Helper()
	if res, err := m.Txn(store.Txn{If: always, Then: ops}); err != nil || !res.Succeeded {
		t.Fatal(res, err)
	}
}

func grant(t *testing.T, m *memstore.Model, now, ttl time.Duration) store.LeaseID {
	t.Helper()
	l, err := m.Grant(now, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return l.ID
}

// Leases that are due together end one after the other, the earliest first,
// each at a revision of its own, unless it has no keys.
func TestExpire(t *testing.T) {
	m := memstore.NewModel()
	late := grant(t, m, time.Second, 5*time.Second)
	early := grant(t, m, 0, 5*time.Second)
	empty := grant(t, m, 0, 5*time.Second)
	alive := grant(t, m, 0, time.Minute)
	do(t, m, store.PutLeased("a", nil, late), store.PutLeased("b", nil, early), store.PutLeased("c", nil, early), store.PutLeased("d", nil, alive))
	begin := m.Rev()

	if at, ok := m.NextExpiry(); at != 5*time.Second || !ok {
		t.Errorf("next expiry %v, %v", at, ok)
	}
	if gone := m.Expire(5*time.Second - 1); len(gone) != 0 {
		t.Errorf("expired too early: %v", gone)
	}
	gone := m.Expire(10 * time.Second)
	if got, want := fmt.Sprint(gone), fmt.Sprint([]store.LeaseID{early, empty, late}); got != want {
		t.Errorf("expired %s, want %s", got, want)
	}
	batch, err := m.ChangesSince("", begin)
	if err != nil {
		t.Fatal(err)
	}
	var history []string
	for _, c := range batch.Changes {
		history = append(history, fmt.Sprintf("%s%d %v", c.KV.Key, c.KV.ModRev-begin, c.Deleted))
	}
	if got, want := fmt.Sprint(history), "[b1 true c1 true a2 true]"; got != want {
		t.Errorf("history %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(m.Leases()), fmt.Sprint([]store.LeaseID{alive}); got != want {
		t.Errorf("leases %s, want %s", got, want)
	}
}

// A lease that is due but not revoked yet takes keys, and refuses renewal by
// ending.
func TestOverdueLease(t *testing.T) {
	m := memstore.NewModel()
	id := grant(t, m, 0, 5*time.Second)
	if _, err := m.Renew(5*time.Second-1, id); err != nil {
		t.Fatal(err)
	}
	do(t, m, store.PutLeased("a", nil, id))
	if _, err := m.Renew(time.Minute, id); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("renewed: %v", err)
	}
	if kvs := m.List("", true).KVs; len(kvs) != 0 {
		t.Errorf("left: %v", kvs)
	}
}

func TestChangesSince(t *testing.T) {
	m := memstore.NewModel()
	do(t, m, store.Put("p/a", nil)) // 2
	do(t, m, store.Put("q", nil))   // 3
	for _, c := range []struct {
		prefix  string
		after   store.Rev
		rev     store.Rev
		changes int
	}{
		{"", 0, 3, 2}, {"p/", 0, 2, 1}, {"p/", 2, 3, 0}, {"", 3, 3, 0}, {"", 4, 0, 0},
	} {
		b, err := m.ChangesSince(c.prefix, c.after)
		if err != nil || b.Rev != c.rev || len(b.Changes) != c.changes {
			t.Errorf("%q after %d: %+v, %v", c.prefix, c.after, b, err)
		}
	}
	if err := m.Compact(3); err != nil {
		t.Fatal(err)
	}
	if _, err := m.ChangesSince("", 2); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("after compaction: %v", err)
	}
	if _, err := m.ChangesSince("", 3); err != nil {
		t.Errorf("at the compaction: %v", err)
	}
}
