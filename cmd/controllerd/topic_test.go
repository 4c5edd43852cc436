package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"sigs.k8s.io/yaml"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

const (
	idPattern   = `[A-Za-z0-9_-]{22}`
	timePattern = `20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`
)

// wantLines compares lines with patterns, each of a whole line.
func wantLines(t *testing.T, got []string, patterns ...string) {
	t.Helper()
	ok := len(got) == len(patterns)
	for i := range min(len(got), len(patterns)) {
		ok = ok && regexp.MustCompile("^(?:"+patterns[i]+")$").MatchString(got[i])
	}
	if !ok {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(patterns, "\n"))
	}
}

func TestTopics(t *testing.T) {
	w := newWorld(t, 2, 3)

	r := w.cli("topic", "create", "orders", "--partitions", "4", "--replication-factor", "3", "--config", "retention.ms=1000",
		"--config", "note=a=b", "--block-size", "3", "--wait").want(t, exitOK)
	wantLines(t, r.lines(), "NAME PARTITIONS REPLICAS ID", "orders 4 3 "+idPattern)
	w.topic("a.b", 1, 1)

	t.Run("list", func(t *testing.T) {
		list := w.cli("topic", "list").want(t, exitOK)
		wantLines(t, list.lines(), "NAME PARTITIONS REPLICAS OFFLINE UNDER-REPLICATED UNKNOWN ID",
			"a.b 1 1 0 0 0 "+idPattern, "orders 4 3 0 0 0 "+idPattern)
		wantLines(t, w.cli("topic", "list", "--no-headers").want(t, exitOK).lines(), list.lines()[1], list.lines()[2])
		v := decode[topicsView](t, w.cli("topic", "list", "-o", "json"))
		if len(v.Topics) != 2 || v.Topics[1].Name != "orders" || v.Topics[1].ReplicationFactor != 3 || v.Revision == 0 ||
			!strings.HasSuffix(list.lines()[2], v.Topics[1].TopicID) {
			t.Errorf("json: %+v", v)
		}
	})
	t.Run("describe", func(t *testing.T) {
		r := w.cli("topic", "describe", "orders").want(t, exitOK)
		row := func(i int) string {
			return fmt.Sprintf(`%d [012] 0 0 [012],[012],[012] [012],[012],[012] created %s`, i, timePattern)
		}
		wantLines(t, r.lines(), "Topic orders, id "+idPattern+", 4 partitions, replication factor 3: 0 offline, 0 under-replicated, 0 unknown",
			"Settings: note=a=b retention.ms=1000", "PARTITION LEADER LE PE REPLICAS ISR CAUSE SINCE", row(0), row(1), row(2), row(3))
		wantLines(t, w.cli("topic", "describe", "orders", "--no-headers").want(t, exitOK).lines(), row(0), row(1), row(2), row(3))
	})
	t.Run("describe as json and yaml", func(t *testing.T) {
		v := decode[topicDetailView](t, w.cli("topic", "describe", "orders", "-o", "json"))
		p := v.Partitions[3]
		if v.Config["retention.ms"] != "1000" || v.Config["note"] != "a=b" || len(v.Partitions) != 4 || p.Partition != 3 ||
			p.Leader != p.Replicas[0] || len(p.ISR) != 3 || p.Recovery != "recovered" || p.ControllerEpoch != 1 || p.DecidedRevision == 0 {
			t.Errorf("json: %+v", v)
		}
		var y topicDetailView
		if err := yaml.UnmarshalStrict([]byte(w.cli("topic", "describe", "orders", "-o", "yaml").want(t, exitOK).stdout), &y); err != nil {
			t.Fatal(err)
		}
		if y.Partitions[3].Changed != p.Changed || y.Topic != v.Topic {
			t.Errorf("yaml: %+v, json: %+v", y, v)
		}
	})
	t.Run("empty lists are not null", func(t *testing.T) {
		r := w.cli("topic", "describe", "a.b", "-o", "json").want(t, exitOK)
		for _, field := range []string{`"config": {}`, `"unknown": []`, `"adding": []`, `"removing": []`, `"target": []`, `"leader_epoch": 0`} {
			if !strings.Contains(r.stdout, field) {
				t.Errorf("no %s in:\n%s", field, r.stdout)
			}
		}
	})
	t.Run("several", func(t *testing.T) {
		r := w.cli("topic", "create", "new", "orders", "in valid", "new", "--partitions", "1", "--replication-factor", "3", "-o", "json").
			want(t, exitFailed)
		wantLines(t, linesOf(r.stderr), `Error: INVALID_REQUEST: .*"new".* more than once`, `Error: TOPIC_ALREADY_EXISTS: topic "orders" exists`,
			`Error: INVALID_TOPIC_EXCEPTION: topic name "in valid" .*`, `Error: INVALID_REQUEST: .*"new".* more than once`)
		r.code, r.stderr = exitOK, ""
		v := decode[createdView](t, r)
		if len(v.Topics) != 4 || v.Topics[0].Error != "INVALID_REQUEST" || v.Topics[0].TopicID != "" || v.Topics[1].Error != "TOPIC_ALREADY_EXISTS" || v.Topics[1].TopicID != "" {
			t.Errorf("json: %+v", v)
		}
	})
}

func TestTopicRefusals(t *testing.T) {
	w := newWorld(t, 1, 3)
	w.topic("orders", 1, 1)
	w.topic("a.b", 1, 1)
	create := func(name string, partitions, replicas string, more ...string) []string {
		return append([]string{"topic", "create", name, "--partitions", partitions, "--replication-factor", replicas}, more...)
	}
	counts := fmt.Sprintf("want 1 to %d", cluster.MaxPartitions)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{create("orders", "1", "1"), `TOPIC_ALREADY_EXISTS: topic "orders" exists`},
		{create("a_b", "1", "1"), `INVALID_TOPIC_EXCEPTION: topic "a_b" collides with topic "a.b": they differ in '.' and '_' only`},
		{create("x", "0", "1"), `INVALID_PARTITIONS: 0 partitions, ` + counts},
		{create("x", "-1", "1"), `INVALID_PARTITIONS: -1 partitions, ` + counts},
		{create("x", "2147483647", "1"), `INVALID_PARTITIONS: 2147483647 partitions, ` + counts},
		{create("x", "1", "0"), `INVALID_REPLICATION_FACTOR: replication factor 0, want at least 1`},
		{create("x", "1", "-3"), `INVALID_REPLICATION_FACTOR: replication factor -3, want at least 1`},
		{create("x", "1", "4"), `INVALID_REPLICATION_FACTOR: replication factor 4 is more than the 3 live brokers`},
		{create("x", "1", "1", "--block-size", "-1"), `INVALID_REQUEST: block size -1, want 1 to 1024`},
		{create("x", "1", "1", "--config", "=v"), `INVALID_CONFIG: a setting has no name`},
		{create("", "1", "1"), `INVALID_TOPIC_EXCEPTION: topic name is empty`},
		{create("..", "1", "1"), `INVALID_TOPIC_EXCEPTION: topic name cannot be ".."`},
		{create("a/b", "1", "1"), `INVALID_TOPIC_EXCEPTION: topic name "a/b" contains something other than letters, digits, '.', '_' and '-'`},
		{create("größe", "1", "1"), `INVALID_TOPIC_EXCEPTION: topic name "größe" contains something other than letters, digits, '.', '_' and '-'`},
		{create(strings.Repeat("x", 250), "1", "1"), `INVALID_TOPIC_EXCEPTION: topic name is 250 characters long, the limit is 249`},
		{[]string{"topic", "describe", "nope"}, `UNKNOWN_TOPIC_OR_PARTITION: topic "nope" does not exist`},
		{[]string{"controller", "history", "--limit", "-1"}, `INVALID_REQUEST: limit -1 is negative`},
		{[]string{"controller", "resign", "--reason", strings.Repeat("x", 1025)}, `INVALID_REQUEST: reason of 1025 bytes, want at most 1024`},
	} {
		r := w.cli(tt.args...).want(t, exitFailed)
		if r.stderr != "Error: "+tt.want+"\n" || r.stdout != "" {
			t.Errorf("%q\nstderr: %swant:   Error: %s\nstdout: %s", tt.args, r.stderr, tt.want, r.stdout)
		}
	}
	if v := decode[topicsView](t, w.cli("topic", "list", "-o", "json")); len(v.Topics) != 2 {
		t.Errorf("topics after all: %+v", v.Topics)
	}
}

// TestTopicsOfTheDead: what has no leader and what cannot be read is shown as
// such.
func TestTopicsOfTheDead(t *testing.T) {
	w := newWorld(t, 1, 2)
	w.topic("t", 3, 1, "--block-size", "1")
	var keys cluster.Keys
	var id cluster.TopicID
	w.await(w.daemons[0], "topic", func(v rpc.View) bool { keys, id = v.Image.Keys, v.Image.Topics["t"].ID; return true })
	if _, err := w.etcd.Client(t).Delete(context.Background(), keys.Block(cluster.BlockID{Topic: id, Index: 1})); err != nil {
		t.Fatal(err)
	}
	for _, b := range w.brokers {
		b.Kill()
	}
	w.await(w.daemons[0], "all is lost", func(v rpc.View) bool {
		p := v.Image.Partition(cluster.PartitionID{Topic: id, Index: 0})
		q := v.Image.Partition(cluster.PartitionID{Topic: id, Index: 2})
		return len(v.Image.Brokers) == 0 && p.Leader == cluster.NoLeader && q.Leader == cluster.NoLeader
	})
	r := w.cli("topic", "describe", "t").want(t, exitOK)
	row := ` none 1 1 [01] [01] broker_down ` + timePattern
	wantLines(t, r.lines(), "Topic t, id "+idPattern+", 3 partitions, replication factor 1: 2 offline, 0 under-replicated, 1 unknown",
		"PARTITION LEADER LE PE REPLICAS ISR CAUSE SINCE", "0"+row, "1 unknown - - - - - -", "2"+row)
	v := decode[topicDetailView](t, w.cli("topic", "describe", "t", "-o", "json"))
	if v.Partitions[0].Leader != -1 || !slices.Equal(v.Unknown, []int32{1}) || v.Topic.Offline != 2 || v.Topic.Unknown != 1 {
		t.Errorf("json: %+v", v)
	}
	wantLines(t, w.cli("broker", "list").want(t, exitOK).lines(), "ID STATE EPOCH SESSION RESUME RACK LEADERS REPLICAS OFFLINE STRAYS CONTROL-ADDRESS NODE PROBLEM",
		`0 down - - - - 0 \d - - - node-0 -`, `1 down - - - - 0 \d - - - node-1 -`)
	status := decode[statusView](t, w.cli("controller", "status", "-o", "json"))
	if status.OfflinePartitions != 2 || status.UnknownPartitions != 1 || status.Brokers != 0 {
		t.Errorf("status: %+v", status)
	}
}

// TestPages: lists that take several pages are fetched whole.
func TestPages(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.topic("big", 20_001, 1)
	v := decode[topicDetailView](t, w.cli("topic", "describe", "big", "-o", "json"))
	if len(v.Partitions) != 20_001 || v.Partitions[20_000].Partition != 20_000 {
		t.Errorf("%d partitions", len(v.Partitions))
	}
}

// pages answers with what it holds, one page a call.
type pages struct {
	pb.AdminServiceClient
	answers []*pb.DescribeTopicResponse
	lists   []*pb.ListTopicsResponse
	asked   []int32
	tokens  []string
}

func (p *pages) ListTopics(_ context.Context, r *pb.ListTopicsRequest, _ ...grpc.CallOption) (*pb.ListTopicsResponse, error) {
	p.tokens = append(p.tokens, r.GetPageToken())
	next := p.lists[0]
	p.lists = p.lists[1:]
	return next, nil
}

func TestListPages(t *testing.T) {
	page := func(name, next string, rev int64) *pb.ListTopicsResponse {
		return &pb.ListTopicsResponse{Topics: []*pb.TopicSummary{{Name: name}}, NextPageToken: next, Revision: rev}
	}
	p := &pages{lists: []*pb.ListTopicsResponse{page("a", "1", 5), page("b", "2", 6), page("c", "", 7)}}
	v, err := listTopics(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.tokens, []string{"", "1", "2"}) || len(v.Topics) != 3 || v.Topics[2].Name != "c" || v.Revision != 5 {
		t.Errorf("asked for %q, got %+v", p.tokens, v)
	}
}

func (p *pages) DescribeTopic(_ context.Context, r *pb.DescribeTopicRequest, _ ...grpc.CallOption) (*pb.DescribeTopicResponse, error) {
	p.asked = append(p.asked, r.GetFromPartition())
	next := p.answers[0]
	p.answers = p.answers[1:]
	return next, nil
}

// TestDescribeAnotherTopic: pages of two topics that had the same name one
// after the other are not mixed.
func TestDescribeAnotherTopic(t *testing.T) {
	page := func(id byte, partition, next int32, rev int64) *pb.DescribeTopicResponse {
		return &pb.DescribeTopicResponse{
			Topic:      &pb.TopicSummary{Name: "t", TopicId: []byte(strings.Repeat(string(rune(id)), 16))},
			Partitions: []*pb.PartitionRecord{{Partition: partition}}, NextPartition: next, Revision: rev,
		}
	}
	p := &pages{answers: []*pb.DescribeTopicResponse{page('a', 0, 1, 5), page('b', 1, -1, 6), page('b', 0, 1, 7), page('b', 1, -1, 8)}}
	v, err := describeTopic(context.Background(), p, "t", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.asked, []int32{0, 1, 0, 1}) || len(v.Partitions) != 2 || v.Revision != 7 {
		t.Errorf("asked for %v, got %+v", p.asked, v)
	}
}
