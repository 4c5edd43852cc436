package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/controllerd/controllerd/internal/etcdtest"
)

// TestShape: what grows with partitions, and what with candidates.
func TestShape(t *testing.T) {
	endpoint := etcdtest.Start(t, etcdtest.NoFsync()).Endpoint()
	costs := map[string]map[size]cost{}
	small, wide, large := size{3, 40, 3}, size{9, 40, 3}, size{3, 400, 3}
	for _, s := range schemes {
		costs[s.name] = map[size]cost{}
		for _, n := range []size{small, wide, large} {
			r, err := run(context.Background(), endpoint, s, n)
			if err != nil {
				t.Fatalf("%s, %+v: %v", s.name, n, err)
			}
			if r.took <= 0 {
				t.Errorf("%s, %+v took %v", s.name, n, r.took)
			}
			costs[s.name][n] = r.cost
		}
	}
	// A busy machine may let a call be repeated.
	within := func(scheme string, n size, requests, events float64) {
		t.Helper()
		got := costs[scheme][n]
		for what, v := range map[string][2]float64{"requests": {got.Requests, requests}, "events": {got.Events, events}} {
			if v[0] < v[1] || v[0] > v[1]*1.2+2 {
				t.Errorf("%s, %+v: %v %s, want %v", scheme, n, v[0], what, v[1])
			}
		}
	}
	for _, n := range []size{small, wide, large} {
		others := float64(n.partitions * (n.replicas - 1)) // that try, and hear of the end of the old leader and of the new one
		within("every replica", n, others, 2*others)
		writes := float64((n.partitions + maxOps - 2) / (maxOps - 1))
		within("one key", n, float64(n.candidates-1)+1+writes, 2*float64(n.candidates-1))
		within("queue", n, 2+1+writes, 1) // looks twice who is before it, reads, writes
	}
}

func TestMeasure(t *testing.T) {
	endpoint := etcdtest.Start(t, etcdtest.NoFsync()).Endpoint()
	var out bytes.Buffer
	if err := measure(t.Context(), &out, endpoint, "2,4", "10", 2, 1); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(out.String(), head)
	for i, want := range []string{"2 | every replica", "2 | one key", "2 | queue", "4 | every replica", "4 | one key", "4 | queue"} {
		if rows := strings.Split(table, "\n"); len(rows) != 7 || !strings.HasPrefix(rows[i], "| 10 | "+want+" | ") {
			t.Fatalf("row %d, want %s, of\n%s", i, want, table)
		}
	}
	for _, bad := range [][3]string{{"", "3", "10"}, {endpoint, "2", "10"}, {endpoint, "3,x", "10"}, {endpoint, "3", "0"}} {
		if err := measure(t.Context(), &out, bad[0], bad[1], bad[2], 3, 1); err == nil {
			t.Errorf("%q is measured", bad)
		}
	}
}
