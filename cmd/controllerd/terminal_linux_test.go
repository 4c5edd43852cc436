package main

import (
	"context"
	"strings"
	"testing"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/etcdtest"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// TestAssent: what destroys is asked for at a terminal, word by word.
func TestAssent(t *testing.T) {
	w := newWorld(t, 1, 2)
	w.topic("orders", 3, 2)
	w.topic("payments", 1, 2)
	there := func() int { return len(decode[topicsView](t, w.cli("topic", "list", "-o", "json")).Topics) }
	both := []string{"topic", "delete", "orders", "payments", w.server()}

	for typed, says := range map[string]string{
		"no\n":             `topic "orders" is not deleted: its name was not typed`,
		"\n":               `topic "orders" is not deleted: its name was not typed`,
		"\x04":             `topic "orders" is not deleted: its name was not typed`, // the end of the input
		"orders\norders\n": `topic "payments" is not deleted: its name was not typed`,
	} {
		x := openTerminal(t)
		x.types(t, typed)
		r := x.cli(t.Context(), both...).want(t, exitFailed)
		if !strings.Contains(r.stderr, says) {
			t.Errorf("%q: %s", typed, r.stderr)
		}
		x.awaits(t, "Topic orders has 3 partitions. To delete it and its data, type orders: ")
	}
	x := openTerminal(t)
	ctx, interrupt := context.WithCancel(t.Context())
	done := make(chan result, 1)
	go func() { done <- x.cli(ctx, both...) }()
	x.awaits(t, "type orders: ")
	interrupt()
	if r := (<-done).want(t, exitFailed); r.stderr != "Error: interrupted\n" {
		t.Error(r.stderr)
	}
	if n := there(); n != 2 {
		t.Fatalf("%d topics are left", n)
	}
	x = openTerminal(t)
	x.types(t, "orders\npayments\n")
	x.cli(t.Context(), both...).want(t, exitOK)
	if n := there(); n != 0 {
		t.Errorf("%d topics are left", n)
	}
}

// TestBar: a bar is drawn on a terminal, and nothing is left of it.
func TestBar(t *testing.T) {
	w := newWorld(t, 1, 2)
	w.broken[1].Store(true)
	x := openTerminal(t)
	r := x.cli(t.Context(), "topic", "create", "orders", "--partitions", "3", "--replication-factor", "2", "--wait", "--timeout", "3s", w.server()).
		want(t, exitUnfinished)
	want := "Error: topic orders is created, but in time: broker 1 has yet to confirm 3 replicas\n"
	if r.stderr != want || len(r.lines()) != 2 {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	eventually(t, "the bar is gone", func() bool { return strings.HasSuffix(x.screen(), "\r\x1b[K") })
	x.awaits(t, "\r\x1b[K["+strings.Repeat("#", 15)+strings.Repeat(".", 15)+"] 3/6 broker 1 has yet to")
}

// TestRecoverAssent: what recover would do is shown, and done if the name of the
// cluster is typed.
func TestRecoverAssent(t *testing.T) {
	etcd := etcdtest.Start(t)
	client := etcd.Client(t)
	if _, err := client.Put(t.Context(), testKeys.Cluster(), string(cluster.Encode(&pb.ClusterRecord{Uuid: "u", Format: 1}))); err != nil {
		t.Fatal(err)
	}
	args := []string{"recover", "--etcd-endpoints=" + etcd.Endpoint(), "--cluster=test", "--epoch-above=7"}
	x := openTerminal(t)
	x.types(t, "yes\n")
	rev := revision(t, client)
	if r := x.cli(t.Context(), args...).want(t, exitFailed); !strings.Contains(r.stderr, "nothing is written") {
		t.Error(r.stderr)
	}
	x.awaits(t, "the controller epoch would rise to 8")
	x.awaits(t, "To raise the epochs of cluster test, type test: ")
	wantNothingWritten(t, etcd, rev)
	x = openTerminal(t)
	x.types(t, "test\n")
	if r := x.cli(t.Context(), args...).want(t, exitOK); !strings.HasPrefix(r.stdout, "recovered: the next term is above epoch 8") {
		t.Error(r.stdout)
	}
}
