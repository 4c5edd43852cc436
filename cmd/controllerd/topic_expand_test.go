package main

import (
	"strings"
	"testing"
)

func TestTopicExpand(t *testing.T) {
	w := newWorld(t, 2, 3)
	w.topic("orders", 2, 2)
	w.topic("payments", 1, 1)
	wantLines(t, w.cli("topic", "expand", "orders", "--partitions", "5", "--dry-run").want(t, exitOK).lines(), "TOPIC PARTITIONS MADE", "orders 5 2")
	wantLines(t, w.cli("topic", "expand", "orders", "--partitions", "5", "--wait", "--reason", "more consumers").want(t, exitOK).lines(),
		"TOPIC PARTITIONS MADE", "orders 5 [25]")
	v := decode[topicDetailView](t, w.cli("topic", "describe", "orders", "-o", "json"))
	if len(v.Partitions) != 5 || v.Partitions[4].Cause != "expanded" || len(v.Partitions[4].Replicas) != 2 {
		t.Errorf("%+v", v.Partitions)
	}
	w.cli("topic", "expand", "orders", "--partitions", "7", "--assignment", "2,0:1,2", "--wait").want(t, exitOK)
	v = decode[topicDetailView](t, w.cli("topic", "describe", "orders", "-o", "json"))
	if len(v.Partitions) != 7 || v.Partitions[5].Leader != 2 || join(v.Partitions[6].Replicas) != "1,2" {
		t.Errorf("%+v", v.Partitions)
	}
	for bad, want := range map[string]string{
		"orders --partitions 7":                         "INVALID_PARTITIONS",
		"orders --partitions 0":                         "INVALID_PARTITIONS",
		"orders --partitions 2000000":                   "INVALID_PARTITIONS",
		"orders --partitions 200000":                    "POLICY_VIOLATION",
		"none --partitions 7":                           "UNKNOWN_TOPIC_OR_PARTITION",
		"orders orders --partitions 9":                  "INVALID_REQUEST",
		"orders --partitions 8 --assignment 1":          "INVALID_REPLICA_ASSIGNMENT",
		"orders --partitions 8 --assignment 1,1":        "INVALID_REPLICA_ASSIGNMENT",
		"orders --partitions 8 --assignment 1,9":        "INVALID_REPLICA_ASSIGNMENT",
		"orders --partitions 8 --assignment 1,2:2,0":    "INVALID_REPLICA_ASSIGNMENT",
		"orders payments --partitions 6 --assignment 1": "INVALID_REPLICA_ASSIGNMENT",
	} {
		if r := w.cli(append([]string{"topic", "expand"}, strings.Fields(bad)...)...).want(t, exitFailed); !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %s", bad, r.stderr)
		}
	}
	w.cli("topic", "expand", "orders").want(t, exitUsage)
	w.cli("topic", "expand", "--partitions", "3").want(t, exitUsage)
	w.cli("topic", "expand", "orders", "--partitions", "9", "--assignment", "x").want(t, exitUsage)
	w.cli("topic", "expand", "orders", "--partitions", "9", "--wait", "--dry-run").want(t, exitUsage)
	if v := decode[topicDetailView](t, w.cli("topic", "describe", "orders", "-o", "json")); v.PartitionsWanted != 7 {
		t.Errorf("%d partitions are wanted", v.PartitionsWanted)
	}
}
