package main

import (
	"strings"
	"testing"

	"github.com/controllerd/controllerd/rpc"
)

func TestElect(t *testing.T) {
	w := newWorld(t, 1, 3)
	w.cli("topic", "create", "orders", "--assignment", "0,1,2", "--assignment", "1,2,0").want(t, exitOK)
	w.cli("topic", "create", "lone", "--assignment", "2", "--wait").want(t, exitOK)

	r := w.cli("elect", "leader", "2", "orders/0", "--wait", "--reason", "b0 is slow").want(t, exitOK)
	wantLines(t, r.lines(), "1 elected, 0 failed, 0 need none", "PARTITION LEADER BEFORE", "orders/0 2 0")
	v := decode[topicDetailView](t, w.cli("topic", "describe", "orders", "-o", "json"))
	if p := v.Partitions[0]; p.Leader != 2 || p.Cause != "designated_election" || p.Reason != "b0 is slow" {
		t.Errorf("%+v", p)
	}
	if r := w.cli("topic", "describe", "orders").want(t, exitOK); !strings.Contains(r.stdout, "designated_election: b0 is slow") {
		t.Error(r.stdout)
	}
	dry := decode[electedView](t, w.cli("elect", "preferred", "--all", "--dry-run", "-o", "json"))
	if !dry.DryRun || dry.Elected != 1 || dry.NotNeeded != 2 || len(dry.Results) != 1 || dry.Results[0].Leader != 0 || dry.Results[0].PreviousLeader != 2 {
		t.Errorf("%+v", dry)
	}
	wantLines(t, w.cli("elect", "preferred", "orders", "lone/0").want(t, exitOK).lines(),
		"1 elected, 0 failed, 2 need none", "PARTITION LEADER BEFORE", "orders/0 0 2")

	w.brokers[2].Kill()
	w.await(w.daemons[0], "the lone partition has no leader", func(v rpc.View) bool { return v.Image.HealthOfAll().Offline == 1 })
	wantLines(t, w.cli("elect", "unclean", "--all", "--yes").want(t, exitFailed).lines(), "0 elected, 1 failed, 2 need none")
	r = w.cli("elect", "leader", "2", "orders/0", "orders/7", "none/0").want(t, exitFailed)
	wantLines(t, linesOf(r.stderr),
		"Error: none/0: UNKNOWN_TOPIC_OR_PARTITION: The topic does not exist.",
		"Error: orders/0: ELIGIBLE_LEADERS_NOT_AVAILABLE: broker 2 is not live",
		"Error: orders/7: UNKNOWN_TOPIC_OR_PARTITION: The partition does not exist.")

	for _, bad := range []string{
		"preferred", "preferred orders --all", "preferred orders orders/0", "preferred orders/x", "preferred orders/-1", "unclean orders/0",
		"leader 1", "leader x orders/0", "leader -- -1 orders/0", "leader 99999999999 orders/0", "unclean",
	} {
		w.cli(append([]string{"elect"}, strings.Fields(bad)...)...).want(t, exitUsage)
	}
	w.cli("elect", "preferred", "orders", "--reason", strings.Repeat("x", 129)).want(t, exitFailed)
	w.cli("elect", "preferred", "orders/0", "orders/0").want(t, exitFailed)
}
