package main

import (
	"strings"
	"testing"

	"github.com/controllerd/controllerd/rpc"
)

func TestTopicDelete(t *testing.T) {
	w := newWorld(t, 2, 2)
	w.topic("orders", 3, 2)
	w.topic("kept", 1, 1)
	first := decode[topicsView](t, w.cli("topic", "list", "-o", "json")).Topics[1].TopicID

	if r := w.cli("topic", "delete", "orders").want(t, exitUsage); !strings.Contains(r.stderr, "there is no terminal to ask at: give --yes") {
		t.Error(r.stderr)
	}
	if v := decode[topicsView](t, w.cli("topic", "list", "-o", "json")); len(v.Topics) != 2 {
		t.Fatalf("topics: %+v", v.Topics)
	}
	w.cli("topic", "delete", "orders", "-y").want(t, exitOK)
	gone := func(v rpc.View) bool { return v.Image.Topics["orders"] == nil }
	for _, d := range w.daemons {
		w.await(d, "the topic is gone", gone)
	}
	w.topic("orders", 1, 1) // the name is free
	second := decode[topicsView](t, w.cli("topic", "list", "-o", "json")).Topics[1].TopicID
	if first == second {
		t.Errorf("both topics have the id %s", first)
	}

	r := w.cli("topic", "delete", "orders", "--yes", "--reason", "test").want(t, exitOK)
	wantLines(t, r.lines(), "DELETED ID", "orders "+second)
	for _, d := range w.daemons {
		w.await(d, "the topic is gone", gone)
	}
	w.cli("topic", "delete", "orders", "--yes").want(t, exitFailed)
	if v := decode[topicsView](t, w.cli("topic", "list", "-o", "json")); len(v.Topics) != 1 || v.Topics[0].Name != "kept" {
		t.Errorf("left: %+v", v.Topics)
	}
}

func TestTopicCreateOptions(t *testing.T) {
	w := newWorld(t, 1, 3)
	r := w.cli("topic", "create", "planned", "--partitions", "2", "--replication-factor", "3", "--dry-run").want(t, exitOK)
	wantLines(t, r.lines(), "NAME PARTITIONS REPLICAS ID", "planned 2 3 -")
	w.cli("topic", "create", "placed", "--assignment", "2,0:1,2", "--assignment", "0,1").want(t, exitOK)
	v := decode[topicDetailView](t, w.cli("topic", "describe", "placed", "-o", "json"))
	if len(v.Partitions) != 3 || v.Partitions[0].Replicas[0] != 2 || v.Partitions[1].Leader != 1 || v.Partitions[2].Replicas[1] != 1 {
		t.Errorf("placed: %+v", v.Partitions)
	}
	if v := decode[topicsView](t, w.cli("topic", "list", "-o", "json")); len(v.Topics) != 1 {
		t.Errorf("topics: %+v", v.Topics)
	}
	again := []string{"topic", "create", "placed", "--partitions", "1", "--replication-factor", "1"}
	w.cli(again...).want(t, exitFailed)
	there := decode[createdView](t, w.cli(append(again, "--if-not-exists", "-o", "json")...))
	if c := there.Topics[0]; c.TopicID != v.Topic.TopicID || c.Partitions != 3 || c.ReplicationFactor != 2 || c.Error != "" {
		t.Errorf("it exists: %+v", c)
	}
	huge := strings.Repeat("x", 100_000)
	for _, args := range [][]string{{"describe", huge}, {"delete", huge, "--yes"}, {"create", huge, huge, "--assignment", "0"}} {
		for _, line := range linesOf(w.cli(append([]string{"topic"}, args...)...).want(t, exitFailed).stderr) {
			if len(line) > longest+100 {
				t.Errorf("%s: an error of %d bytes", args[0], len(line))
			}
		}
	}
	for numbers, code := range map[string]int{"--partitions=-2": exitFailed, "--replication-factor=3": exitFailed, "--partitions=-1": exitOK, "--partitions=1": exitOK} {
		w.cli("topic", "create", "numbers", "--assignment", "1,2", "--dry-run", numbers).want(t, code)
	}
	for _, bad := range []string{"0,0", "0,1:2", "7", "0:"} {
		code := exitFailed
		if bad == "0:" {
			code = exitUsage
		}
		w.cli("topic", "create", "bad", "--assignment", bad).want(t, code)
	}
	w.cli("topic", "create", "huge", "--partitions", "100001", "--replication-factor", "1").want(t, exitFailed)
}
