package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/controllerd/controllerd/store"
)

func TestValidate(t *testing.T) {
	cond := []store.Cond{store.Missing("c")}
	put := store.Put("k", nil)
	cases := []struct {
		name string
		txn  store.Txn
		want error
	}{
		{"no operation", store.Txn{If: cond}, nil},
		{"one", store.Txn{If: cond, Then: []store.Op{put}}, nil},
		{"same key compared and written", store.Txn{If: []store.Cond{store.Missing("k"), store.ModRevIs("k", 0)}, Then: []store.Op{put}}, nil},
		{"empty", store.Txn{}, store.ErrUnguarded},
		{"no condition", store.Txn{Then: []store.Op{put}}, store.ErrUnguarded},
		{"two puts", store.Txn{If: cond, Then: []store.Op{put, put}}, store.ErrLimit},
		{"put and delete", store.Txn{If: cond, Then: []store.Op{put, store.Delete("k")}}, store.ErrLimit},
		{"empty key", store.Txn{If: cond, Then: []store.Op{store.Delete("")}}, store.ErrLimit},
		{"condition on an empty key", store.Txn{If: []store.Cond{store.ModRevIs("", 1)}}, store.ErrLimit},
		{"most conditions", store.Txn{If: slices.Repeat(cond, store.MaxConds)}, nil},
		{"too many conditions", store.Txn{If: slices.Repeat(cond, store.MaxConds+1)}, store.ErrLimit},
		{"most operations", store.Txn{If: cond, Then: puts(store.MaxOps)}, nil},
		{"too many operations", store.Txn{If: cond, Then: puts(store.MaxOps + 1)}, store.ErrLimit},
		{"too large", store.Txn{If: cond, Then: []store.Op{store.Put("k", make([]byte, store.MaxTxnBytes))}}, store.ErrLimit},
	}
	for _, c := range cases {
		err := c.txn.Validate()
		if !errors.Is(err, c.want) || (err != nil) != store.Refused(err) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func puts(n int) []store.Op {
	ops := make([]store.Op, n)
	for i := range ops {
		ops[i] = store.Put(fmt.Sprint(i), nil)
	}
	return ops
}

func TestReadSet(t *testing.T) {
	set, err := store.ReadSet([]string{"b", "a", "b"})
	if err != nil || !slices.Equal(set, []string{"a", "b"}) {
		t.Errorf("%v, %v", set, err)
	}
	for _, keys := range [][]string{nil, {"a", ""}} {
		if _, err := store.ReadSet(keys); !errors.Is(err, store.ErrLimit) {
			t.Errorf("%q: %v", keys, err)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, err := range []error{store.ErrUnguarded, store.ErrLimit, store.ErrBusy, store.ErrLeaseNotFound, store.ErrKeyNotFound} {
		if !store.Refused(fmt.Errorf("commit: %w", err)) {
			t.Errorf("%v leaves the outcome open", err)
		}
	}
	for _, err := range []error{nil, store.ErrUnknown, store.ErrNoSpace, store.ErrCompacted, errors.New("other")} {
		if store.Refused(err) {
			t.Errorf("%v counts as a refusal", err)
		}
	}
}
