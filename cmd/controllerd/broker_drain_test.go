package main

import (
	"strings"
	"testing"

	"github.com/controllerd/controllerd/rpc"
)

func TestBrokerDrain(t *testing.T) {
	w := newFollowing(t, 1, 3)
	w.cli("topic", "create", "orders", "--assignment", "0,1", "--assignment", "1,0", "--wait").want(t, exitOK)
	w.cli("topic", "create", "lone", "--assignment", "0", "--wait").want(t, exitOK)
	wantLines(t, w.cli("broker", "drain", "0", "--dry-run").want(t, exitOK).lines(), "broker 0 would drain, it leads 2 partitions")
	wantLines(t, w.cli("broker", "drain", "0", "--wait", "--reason", "its disk is slow").want(t, exitOK).lines(), "broker 0 drains, it leads 1 partitions")
	b := decode[brokersView](t, w.cli("broker", "list", "-o", "json")).Brokers[0]
	if b.State != "draining" || b.DrainReason != "its disk is slow" || b.Drained == "" || b.Leaders != 1 {
		t.Errorf("%+v", b)
	}
	wantLines(t, w.cli("broker", "drain", "0").want(t, exitOK).lines(), "broker 0 drains, it leads 1 partitions; it was so already")
	v := decode[drainedView](t, w.cli("broker", "drain", "1", "--dry-run", "-o", "json"))
	if v.Remaining != 2 || len(v.Partitions) != 2 || v.Leaders != 2 {
		t.Errorf("%+v", v)
	}
	if r := w.cli("broker", "drain", "1", "--wait", "--timeout", "500ms").want(t, exitUnfinished); !strings.Contains(r.stdout, "nobody else can lead 2 of them") {
		t.Error(r.stdout)
	}
	w.cli("broker", "drain", "1", "--cancel").want(t, exitOK)
	wantLines(t, w.cli("broker", "drain", "0", "--cancel").want(t, exitOK).lines(), "broker 0 drains no more, it leads 1 partitions")
	w.await(w.daemons[0], "broker 0 is in sync again", func(v rpc.View) bool { return v.Image.HealthOfAll().UnderReplicated == 0 })
	w.cli("elect", "preferred", "orders", "--wait").want(t, exitOK)
	for bad, code := range map[string]int{
		"": exitUsage, "x": exitUsage, "-1": exitUsage, "0 1": exitUsage, "0 --wait --cancel": exitUsage, "0 --wait --dry-run": exitUsage, "99": exitFailed,
	} {
		w.cli(append([]string{"broker", "drain"}, strings.Fields(bad)...)...).want(t, code)
	}
}
