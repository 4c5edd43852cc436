package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/controllerd/controllerd/broker"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// TestWaitForTopics: a creation is waited for until every live broker has
// confirmed it, a deletion until every broker has.
func TestWaitForTopics(t *testing.T) {
	w := newWorld(t, 2, 3)
	create := []string{"topic", "create", "orders", "--partitions", "6", "--replication-factor", "3", "--reason", "TICKET-7"}
	_, standby := w.roles()
	r := cli(append(create, "--wait", "-o", "json", "--server", standby.Endpoint)...)
	if v := decode[createdView](t, result{r.args, r.code, r.stdout, ""}); v.Topics[0].Partitions != 6 {
		t.Errorf("%+v", v)
	}
	v := decode[topicDetailView](t, w.cli("topic", "describe", "orders", "-o", "json"))
	for _, p := range v.Partitions {
		if p.Leader < 0 {
			t.Errorf("partition %d has no leader", p.Partition)
		}
	}
	if len(v.Unconfirmed) != 0 || !v.FromActive || v.CreateReason != "TICKET-7" || v.Created == "" || v.PartitionsWanted != 6 {
		t.Errorf("%+v", v)
	}
	if lines := w.cli("topic", "describe", "orders").want(t, exitOK).lines(); !strings.HasSuffix(lines[1], ": TICKET-7") {
		t.Errorf("%q", lines[:3])
	}

	w.broken[2].Store(true)
	late := w.cli("topic", "create", "late", "--partitions", "2", "--replication-factor", "3", "--wait", "--timeout", "3s").want(t, exitUnfinished)
	if late.stderr != "Error: topic late is created, but in time: broker 2 has yet to confirm 2 replicas\n" {
		t.Error(late.stderr)
	}
	lines := w.cli("topic", "describe", "late").want(t, exitOK).lines()
	if lines[1] != "Broker 2 has yet to confirm 2 replicas" {
		t.Errorf("%q", lines[:3])
	}
	w.broken[2].Store(false)
	if r := w.cli(append(create, "--if-not-exists", "--wait")...); r.code != exitOK {
		t.Errorf("it exists: %+v", r)
	}

	w.brokers[2].Kill()
	gone := w.cli("topic", "delete", "orders", "--yes", "--wait", "--timeout", "3s", "--reason", "TICKET-8").want(t, exitUnfinished)
	if gone.stderr != "Error: deleted: orders, but in time: brokers 2 may still hold replicas of orders\n" {
		t.Error(gone.stderr)
	}
	rows := w.cli("topic", "list", "--deleted").want(t, exitOK).lines()
	wantLines(t, rows, "NAME PARTITIONS BROKERS DELETED EPOCH ID REASON", "orders 6 2 "+timePattern+" 1 "+idPattern+" TICKET-8")
	b, err := broker.Start(context.Background(), broker.Config{
		ID: 2, NodeUUID: "node-2", Rack: "rack-2", Daemons: w.endpoints(), Handler: nop{&w.failed[2], &w.broken[2]},
		SessionTTL: rpc.MinSessionTTL, Logger: quietly,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Kill)
	if r := w.cli("topic", "delete", "late", "--yes", "--wait", "--timeout", "20s"); r.code != exitOK {
		t.Errorf("everybody is there: %+v", r)
	}
	eventually(t, "the broker that came back has confirmed", func() bool {
		return len(decode[tombstonesView](t, w.cli("topic", "list", "--deleted", "-o", "json")).Topics) == 0
	})
}

// tombstones is a daemon that answers with the next of some pages.
type tombstones struct {
	pb.AdminServiceClient
	pages []*pb.ListTombstonesResponse
}

func (d *tombstones) ListTombstones(context.Context, *pb.ListTombstonesRequest, ...grpc.CallOption) (*pb.ListTombstonesResponse, error) {
	page := d.pages[0]
	d.pages = d.pages[1:]
	return page, nil
}

// TestErased: a daemon that has not seen the deletion yet proves nothing.
func TestErased(t *testing.T) {
	held := func(brokers ...int32) []*pb.TombstoneSummary {
		return []*pb.TombstoneSummary{{Topic: "a", Brokers: brokers}}
	}
	d := &tombstones{pages: []*pb.ListTombstonesResponse{
		{Revision: 6}, {Revision: 7, Tombstones: held(1, 2, 3)}, {Revision: 9, Tombstones: held(2)}, {Revision: 10},
	}}
	look := topicsErased([][]byte{{1}}, 7)
	for _, want := range []outlook{
		{0, 0, "the daemon that answers has not seen it yet"},
		{0, 3, "brokers 1,2,3 may still hold replicas of a"},
		{2, 3, "brokers 2 may still hold replicas of a"},
		{3, 3, ""},
	} {
		if got, err := look(t.Context(), d); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
}

func TestServed(t *testing.T) {
	v := &topicDetailView{PartitionsWanted: 3, Partitions: []partitionView{{Leader: 1, Replicas: []int32{1, 2}}, {Leader: -1, Replicas: []int32{3, 2}}}}
	v.Unconfirmed = []unconfirmedView{{Broker: 2, Replicas: 2}, {Broker: 3, Replicas: 1}}
	want := outlook{1, 4, "2 partitions have no leader, broker 2 has yet to confirm 2 replicas, broker 3 has yet to confirm 1 replicas, no active controller answers"}
	if got := servedOf(v); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestWaitForTheSeat(t *testing.T) {
	w := newWorld(t, 2, 0)
	first, second := w.roles()
	r := w.cli("controller", "resign", "--wait", "-o", "json")
	v := decode[resignedView](t, result{r.args, r.code, r.stdout, ""})
	if v.Epoch != 1 || v.NextEpoch != 2 || v.NextController != second.ID {
		t.Errorf("%+v", v)
	}
	w.await(second, "the first stands by again", func(v rpc.View) bool { return len(v.Image.Candidates) == 2 })
	got := w.cli("controller", "transfer", first.ID, "--wait=false").want(t, exitOK)
	if got.stdout != "the controller of epoch 2 gave up its seat\n" {
		t.Error(got.stdout)
	}
	eventually(t, "it follows", func() bool {
		return decode[statusView](t, w.cli("controller", "status", "-o", "json")).ControllerID == first.ID
	})
}

// TestAwait: whoever waits hears what is missing, and is told when the time is
// over, or an interrupt comes.
func TestAwait(t *testing.T) {
	c := &client{servers: []string{deaf(t)}, timeout: time.Second}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	root := newRoot()
	root.SetContext(t.Context())
	err := await(ctx, root, c, "it is done", termAfter(1, nil))
	if !isUnfinished(err) || !strings.HasPrefix(err.Error(), "it is done, but in time: cannot reach 127.0.0.1:") {
		t.Error(err)
	}
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	root.SetContext(interrupted)
	if err := await(interrupted, root, c, "it is done", termAfter(1, nil)); err != errInterrupted {
		t.Error(err)
	}
}

// TestProgressLines: where there is no terminal a line is written now and then,
// and none about what is quick.
func TestProgressLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := newProgress(&out)
		for i := range int64(100) {
			p.update(i, 100, "partitions")
			<-time.After(100 * time.Millisecond)
		}
		p.update(7, 0, "of who knows how\nmany")
		p.end()
		want := "30/100 partitions\n80/100 partitions\n"
		if out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
		<-time.After(time.Minute)
		p.update(7, 0, "of who knows how\nmany")
		if got := strings.TrimPrefix(out.String(), want); got != `7 of who knows how\nmany`+"\n" {
			t.Errorf("got %q", got)
		}
	})
}
