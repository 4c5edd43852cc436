package etcdstore_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/controllerd/controllerd/internal/etcdserver"
	"github.com/controllerd/controllerd/internal/etcdtest"
	"github.com/controllerd/controllerd/internal/netproxy"
	"github.com/controllerd/controllerd/store/etcdstore"
)

// A client that was given one member finds the others.
func TestFollow(t *testing.T) {
	m := etcdtest.StartMembers(t, 3)
	client := etcdtest.Dial(t, m.Endpoint(1))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go etcdstore.Follow(ctx, client, false, func([]string) {})
	want := []string{m.Endpoint(1), "http://" + m.Endpoint(0), "http://" + m.Endpoint(2)}
	await(t, "all members are found", func() bool {
		found := client.Endpoints()
		slices.Sort(found[1:])
		slices.Sort(want[1:])
		return slices.Equal(found, want)
	})
}

// Not every address that a member tells is one: another cluster may answer
// there.
func TestFollowNobodyElse(t *testing.T) {
	other := etcdtest.Start(t)
	proxy, err := netproxy.Start(other.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	c := etcdtest.Start(t, func(c *etcdserver.Config) { c.Advertise = proxy.Addr() })
	client := c.Client(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go etcdstore.Follow(ctx, client, false, func([]string) {})
	await(t, "it was looked twice", func() bool { return proxy.Dials() >= 2 })
	if found := client.Endpoints(); !slices.Equal(found, []string{c.Endpoint()}) {
		t.Errorf("endpoints %v", found)
	}
}

// await polls a condition.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx, tick := timeout(t, patience), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
