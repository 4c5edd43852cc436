package main

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/etcdtest"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// debug runs a debug command on the world's etcd.
func (w *world) debug(args ...string) result { return debugOn(w.etcd, args...) }

func debugOn(etcd *etcdtest.Cluster, args ...string) result {
	return cli(append([]string{"debug"}, append(args, "--etcd-endpoints="+etcd.Endpoint(), "--cluster=test")...)...)
}

// dump reads a dump as JSON.
func dumped(t *testing.T, r result) []recordView {
	t.Helper()
	var out []recordView
	dec := json.NewDecoder(strings.NewReader(r.want(t, exitOK).stdout))
	dec.DisallowUnknownFields()
	for dec.More() {
		var v recordView
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// TestDebugRoundTrip: every kind of record that a cluster writes is shown, and
// written back it is the same.
func TestDebugRoundTrip(t *testing.T) {
	w := newWorld(t, 1, 2)
	w.topic("deleted", 2, 2)
	w.topic("kept", 2, 1, "--config", "a=<b>")
	w.brokers[1].Kill() // so that its tombstone stays
	w.cli("topic", "delete", "deleted", "--yes").want(t, exitOK)
	w.await(w.daemons[0], "only the dead broker has not confirmed", func(v rpc.View) bool {
		tombstones := slices.Collect(maps.Values(v.Image.Tombstones))
		return len(tombstones) == 1 && len(tombstones[0].Record.GetHolders()) == 1
	})
	all := dumped(t, w.debug("dump", "-o", "json"))
	kinds := map[string]int{}
	for i, v := range all {
		kinds[v.Kind]++
		leased := v.Kind == "controller" || v.Kind == "candidate" || v.Kind == "broker"
		if string(v.Value) == "null" || v.Error != "" || v.Raw != nil || v.Revision != all[0].Revision || (v.Lease != "") != leased || v.ModRevision < v.CreateRevision ||
			i > 0 && v.Key <= all[i-1].Key {
			t.Errorf("dumped: %+v", v)
		}
		if v.Kind == "broker" || v.Kind == "partitions" {
			continue // which may change meanwhile
		}
		p := decode[putView](t, w.debug("put", v.Key, string(v.Value), "-o", "json"))
		if p.Written || len(p.Changes) > 0 || !bytes.Equal(p.Before, p.After) {
			t.Errorf("put back: %+v", p)
		}
	}
	for _, kind := range []string{"cluster", "controller", "controller_epoch", "candidate", "term", "broker", "node", "topic", "partitions", "tombstone"} {
		if kinds[kind] == 0 {
			t.Errorf("no %s in %v", kind, kinds)
		}
	}
	id, err := cluster.TopicIDFrom(topicIn(t, all, "topics/kept").GetTopicId())
	if err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"partitions/" + id.Hex() + "/", "partitions/" + id.String(), "/controllerd/test/partitions/" + id.Hex() + "/0"} {
		if got := dumped(t, w.debug("dump", prefix, "-o", "json")); len(got) != 1 || got[0].Key != "partitions/"+id.Hex()+"/0" {
			t.Errorf("dump %s: %+v", prefix, got)
		}
	}
	lines := w.debug("dump", "topics/", "partitions/"+id.String(), "--no-headers").want(t, exitOK).lines()
	rev := `\d+ \d+ - `
	wantLines(t, lines, `partitions/.*/0 `+rev+`{"partition":0,.*}`, `partitions/.*/0 `+rev+`{"partition":1,.*}`, `topics/kept `+rev+`{"topic_id":.*}`)
	docs := strings.Split(strings.TrimPrefix(w.debug("dump", "topics/", "cluster", "-o", "yaml").want(t, exitOK).stdout, "---\n"), "---\n")
	var v recordView
	if err := yaml.UnmarshalStrict([]byte(docs[0]), &v); err != nil || len(docs) != 2 || v.Key != "cluster" {
		t.Errorf("yaml: %v, %q", err, docs)
	}
}

// topicIn finds a topic's record in a dump.
func topicIn(t *testing.T, all []recordView, key string) *pb.TopicRecord {
	t.Helper()
	i := slices.IndexFunc(all, func(v recordView) bool { return v.Key == key })
	if i < 0 {
		t.Fatalf("no %s", key)
	}
	var r struct {
		TopicID []byte `json:"topic_id"`
	}
	if err := json.Unmarshal(all[i].Value, &r); err != nil {
		t.Fatal(err)
	}
	return &pb.TopicRecord{TopicId: r.TopicID}
}

// TestDebugPutWanted: a record written by hand with a higher count is
// completed, and so is one that nobody but a hand has made.
func TestDebugPutWanted(t *testing.T) {
	w := newWorld(t, 2, 3)
	w.topic("orders", 2, 2)
	before := dumped(t, w.debug("dump", "topics/orders", "-o", "json"))[0]
	more := regexp.MustCompile(`"partitions_wanted":2`).ReplaceAllString(string(before.Value), `"partitions_wanted":40`)
	file := filepath.Join(t.TempDir(), "record.json")
	if err := os.WriteFile(file, []byte(more), 0o600); err != nil {
		t.Fatal(err)
	}
	dry := w.debug("put", "topics/orders", "--file", file, "--dry-run").want(t, exitOK)
	wantLines(t, dry.lines(), "topics/orders: not written", "FIELD BEFORE AFTER", "partitions_wanted 2 40")
	r := w.debug("put", "topics/orders", "--file", file).want(t, exitOK)
	wantLines(t, r.lines(), `topics/orders: written at revision \d+`, "FIELD BEFORE AFTER", "partitions_wanted 2 40")
	byHand := `{"topic_id": "AAAAAAAAAAAAAAAAAAAAAQ==", "partitions_wanted": 3, "replication_factor": 2, "block_size": 2}`
	if v := decode[putView](t, w.debug("put", "topics/by-hand", byHand, "-o", "json")); string(v.Before) != "null" || !v.Written || len(v.Changes) != 14 {
		t.Errorf("a new record: %+v", v)
	}
	for name, partitions := range map[string]int32{"orders": 40, "by-hand": 3} {
		for _, d := range w.daemons {
			w.await(d, name+" is completed", func(v rpc.View) bool {
				topic := v.Image.Topics[name]
				return topic != nil && topic.Made() == partitions
			})
		}
		v := decode[topicDetailView](t, w.cli("topic", "describe", name, "-o", "json"))
		if len(v.Partitions) != int(partitions) || len(v.Unknown) > 0 || v.Topic.Offline > 0 || len(v.Partitions[partitions-1].ISR) != 2 {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// TestDebugPut: what is refused, what is kept, and what --force is for.
func TestDebugPut(t *testing.T) {
	etcd := etcdtest.Start(t)
	client, keys := etcd.Client(t), cluster.KeysOf("test")
	store := func(key string, value []byte, opts ...clientv3.OpOption) {
		t.Helper()
		if _, err := client.Put(context.Background(), keys.Prefix()+key, string(value), opts...); err != nil {
			t.Fatal(err)
		}
	}
	get := func(key string) (string, int64) {
		t.Helper()
		resp, err := client.Get(context.Background(), keys.Prefix()+key)
		if err != nil {
			t.Fatal(err)
		}
		if len(resp.Kvs) == 0 {
			return "", 0
		}
		return string(resp.Kvs[0].Value), resp.Kvs[0].Lease
	}
	lease, err := client.Grant(context.Background(), 60)
	if err != nil {
		t.Fatal(err)
	}
	broker := &pb.BrokerRecord{NodeUuid: "u", Nonce: "n", Rack: "a", Endpoints: []*pb.Endpoint{{Listener: "l", Address: "h:1"}}}
	newer := []byte{0xba, 0x3e, 0x01, 0x07} // field 999
	broker.ProtoReflect().SetUnknown(newer)
	broker.Endpoints[0].ProtoReflect().SetUnknown(newer)
	store("brokers/1", cluster.Encode(broker), clientv3.WithLease(lease.ID))
	store("nodes/1", []byte("garbage"))
	store("nonsense", nil)
	topic := cluster.Encode(&pb.TopicRecord{TopicId: make([]byte, 16), BlockSize: 16})
	store("topics/t", topic)

	t.Run("dump of garbage", func(t *testing.T) {
		all := dumped(t, debugOn(etcd, "dump", "-o", "json"))
		if len(all) != 4 || string(all[1].Raw) != "garbage" || string(all[1].Value) != "null" || all[1].Error == "" || all[2].Kind != "" || all[2].Error != "unknown key" {
			t.Errorf("%+v", all)
		}
		if u := all[0].UnknownFields; len(u) != 2 || u[0].Path != "" || u[1].Path != "endpoints[0]" || !bytes.Equal(u[1].Fields, newer) {
			t.Errorf("unknown fields: %+v", u)
		}
		wantLines(t, debugOn(etcd, "dump", "--no-headers").want(t, exitOK).lines(),
			`brokers/1 2 2 [0-9a-f]{16} {.*} \(4 bytes of unknown fields in the record\) \(4 bytes of unknown fields in endpoints\[0\]\)`,
			`nodes/1 3 3 - unreadable, 7 bytes: 67617262616765 \(.+\)`, `nonsense 4 4 - unreadable, 0 bytes: \(unknown key\)`, `topics/t .*`)
	})
	t.Run("keeps lease and unknown fields", func(t *testing.T) {
		json := `{"node_uuid": "u", "nonce": "n", "rack": "b", "endpoints": [{"listener": "x", "address": "h:2"}, {"listener": "l", "address": "h:3"}]}`
		debugOn(etcd, "put", "brokers/1", json).want(t, exitOK)
		broker.Rack, broker.Endpoints[0].Address = "b", "h:3"
		broker.Endpoints = append([]*pb.Endpoint{{Listener: "x", Address: "h:2"}}, broker.Endpoints...)
		got := &pb.BrokerRecord{}
		value, on := get("brokers/1")
		if err := proto.Unmarshal([]byte(value), got); err != nil || !proto.Equal(got, broker) || on != int64(lease.ID) {
			t.Errorf("on lease %x: %v, %v", on, got, err)
		}
	})
	t.Run("refusals", func(t *testing.T) {
		before := etcd.Client(t)
		rev := revision(t, before)
		for _, tt := range []struct {
			code int
			want string
			args []string
		}{
			{exitUsage, `key "nope": unknown key`, []string{"put", "nope", "{}"}},
			{exitUsage, `key "topics/a/b": unknown key`, []string{"put", "topics/a/b", "{}"}},
			{exitUsage, `key "brokers/01": unknown key`, []string{"put", "brokers/01", "{}"}},
			{exitUsage, `unknown field "x"`, []string{"put", "topics/t", `{"x": 1}`}},
			{exitUsage, "record of topics/t", []string{"put", "topics/t", "["}},
			{exitUsage, "given twice", []string{"put", "topics/t", "{}", "--file", "x"}},
			{exitUsage, "--if-revision is -1", []string{"put", "topics/t", "{}", "--if-revision", "-1"}},
			{exitUsage, "accepts between 1 and 2 arg(s)", []string{"put"}},
			{exitFailed, "no such file", []string{"put", "topics/t", "--file", "/nowhere/x"}},
			{exitFailed, "0 bytes instead of 16", []string{"put", "topics/t", "{}"}},
			{exitFailed, `belongs to topic "t"`, []string{"put", "topics/u", `{"topic_id": "AAAAAAAAAAAAAAAAAAAAAA==", "block_size": 1}`}},
			{exitFailed, "without a lease", []string{"put", "brokers/2", `{"node_uuid": "u", "nonce": "n"}`}},
			{exitFailed, "has mod revision 5, not 0", []string{"put", "topics/t", "{}", "--if-revision", "0"}},
			{exitFailed, "has mod revision 0, not 7", []string{"put", "topics/new", "{}", "--if-revision", "7"}},
			{exitFailed, "limit of a transaction", []string{"put", "nodes/2", `{"node_uuid": "` + strings.Repeat("x", 1<<21) + `"}`}},
			{exitFailed, "no key begins with /controllerd/test/none", []string{"dump", "none"}},
		} {
			if r := debugOn(etcd, tt.args...).want(t, tt.code); !strings.Contains(r.stderr, tt.want) || r.stdout != "" {
				t.Errorf("%.80q: %.200s, want %q", tt.args, r.stderr, tt.want)
			}
		}
		if now := revision(t, before); now != rev {
			t.Errorf("revision %d became %d", rev, now)
		}
	})
	t.Run("repair and force", func(t *testing.T) {
		v := decode[putView](t, debugOn(etcd, "put", "nodes/1", `{"node_uuid": "u"}`, "-o", "json"))
		if string(v.BeforeRaw) != "garbage" || string(v.Before) != "null" || !v.Written || v.Error != "" {
			t.Errorf("repaired: %+v", v)
		}
		r := debugOn(etcd, "put", "topics/t", "{}", "--force").want(t, exitOK)
		if value, _ := get("topics/t"); value != "" || !strings.Contains(r.stdout, "against the rules: ") {
			t.Errorf("forced: %q\n%s", value, r.stdout)
		}
	})
	t.Run("somebody else", func(t *testing.T) {
		d := &direct{cluster: "test"}
		p := &put{direct: d, ifRevision: asRead}
		old, _, err := p.read(t.Context(), etcd.Store(t), keys.Node(1))
		if err != nil {
			t.Fatal(err)
		}
		store("nodes/1", []byte{})
		if _, err := p.commit(t.Context(), etcd.Store(t), old, old); err == nil || !strings.Contains(err.Error(), "written by somebody else") {
			t.Error(err)
		}
	})
}

func revision(t *testing.T, client *clientv3.Client) int64 {
	t.Helper()
	resp, err := client.Get(context.Background(), "x")
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

// TestDebugUsage: what needs no etcd.
func TestDebugUsage(t *testing.T) {
	for args, want := range map[string]string{
		"dump --cluster A":                `cluster name "A"`,
		"dump --timeout 0s":               "timeout 0s is not positive",
		"dump --etcd-endpoints=":          "no endpoints of etcd given",
		"dump --etcd-endpoints u:p@h:1":   "has a user name in it",
		"dump --etcd-cert c":              "--etcd-cert and --etcd-key go together",
		"dump --etcd-user u":              "--etcd-user without a password",
		"dump --etcd-password p":          "unknown flag: --etcd-password",
		"dump -o xml":                     "want one of table, json, yaml",
		"dump \xff":                       "is not UTF-8",
		"put topics/t {} --if-revision x": "invalid argument",
		"nope":                            `unknown command "nope"`,
	} {
		if r := cli(append([]string{"debug"}, strings.Fields(args)...)...).want(t, exitUsage); !strings.Contains(r.stderr, want) {
			t.Errorf("debug %s: %s, want %q", args, r.stderr, want)
		}
	}
	away := "--etcd-endpoints=127.0.0.1:1 --timeout=100ms"
	for _, args := range []string{"dump", "put nodes/1 {}"} {
		if r := cli(strings.Fields("debug "+args+" "+away)...).want(t, exitAway); r.stderr != "Error: no answer from etcd at 127.0.0.1:1 in time\n" {
			t.Errorf("debug %s: %s", args, r.stderr)
		}
	}
}
