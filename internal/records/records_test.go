package records

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

var keys = cluster.KeysOf("test")

// kinds are a key of each kind.
var kinds = map[string]string{
	"cluster": keys.Cluster(), "controller": keys.Controller(), "controller_epoch": keys.ControllerEpoch(),
	"candidate": keys.Candidate(7), "term": keys.Term(3), "broker": keys.Broker(1), "node": keys.Node(1),
	"topic": keys.Topic("t"), "partitions": keys.Block(cluster.BlockID{Topic: cluster.TopicID{1}, Index: 2}),
	"tombstone": keys.Tombstone(cluster.TopicID{1}), "recovery": keys.Recovery(),
}

// newer is a field of a newer version.
var newer = protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 5)

// fill gives every field of a message a value of its own, and itself and the
// messages in it a field that nobody knows.
func fill(m protoreflect.Message, n int) {
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		n++
		switch {
		case f.IsMap():
			m.Mutable(f).Map().Set(protoreflect.ValueOfString("k").MapKey(), protoreflect.ValueOfString("<v>&"))
		case f.IsList() && f.Message() != nil:
			for range 2 {
				n++
				fill(m.Mutable(f).List().AppendMutable().Message(), n)
			}
		case f.IsList():
			m.Mutable(f).List().Append(valueOf(f, n))
		default:
			m.Set(f, valueOf(f, n))
		}
	}
	m.SetUnknown(newer)
}

func valueOf(f protoreflect.FieldDescriptor, n int) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(n)) // some of them unknown
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(-n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1<<60 + int64(n))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0, 0xff, byte(n)})
	}
	return protoreflect.ValueOfString(strings.Repeat("ü", n))
}

// TestRoundTrip: what is shown of a record of any kind is read back as the
// same record, all its fields included.
func TestRoundTrip(t *testing.T) {
	for kind, key := range kinds {
		t.Run(kind, func(t *testing.T) {
			name, record, err := keys.RecordOf(key)
			if err != nil || name != kind {
				t.Fatalf("%s is a key of kind %q: %v", key, name, err)
			}
			fill(record.ProtoReflect(), 0)
			e := Read(keys, store.KV{Key: key, Value: cluster.Encode(record), ModRev: 1})
			if e.Record == nil || e.Kind != kind || !json.Valid(e.JSON) || len(e.Unknown) == 0 || e.Unknown[0].Path != "" {
				t.Fatalf("read as %+v", e)
			}
			back, err := Parse(keys, key, e.JSON)
			if err != nil {
				t.Fatal(err)
			}
			if proto.Equal(back, record) {
				t.Error("the fields of a newer version came through JSON")
			}
			KeepUnknown(e.Record, back)
			if !proto.Equal(back, record) || string(cluster.Encode(back)) != string(cluster.Encode(record)) {
				t.Errorf("%s\nis read back as\n%s", e.JSON, Format(back))
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ key, json, want string }{
		{keys.Topic("t"), `{"partitions": 3}`, `unknown field "partitions"`},
		{keys.Topic("t"), `{"block_size": 3, "block_size": 4}`, "duplicate field"},
		{keys.Topic("t"), `{"block_size": 3} {}`, "unexpected token"},
		{keys.Topic("t"), `{"block_size": 2147483648}`, "invalid value for int32"},
		{keys.Topic("t"), `{"topic_id": "?"}`, "invalid value for bytes"},
		{keys.Topic("t"), ``, "unexpected"},
		{keys.Topic("t"), `null`, "unexpected token null"},
		{keys.Topic("t"), "{\"request_id\": \"\xff\"}", "UTF-8"},
		{keys.Topic("a/b"), `{}`, "unknown key"},
		{"/elsewhere/topics/t", `{}`, "unknown key"},
	} {
		if m, err := Parse(keys, tt.key, []byte(tt.json)); err == nil || !strings.Contains(err.Error(), tt.want) || strings.HasPrefix(err.Error(), "proto") {
			t.Errorf("%s: %v, %v, want %q", tt.json, m, err, tt.want)
		}
	}
}

// TestReadGarbage: a value that is no record, and one that is but breaks a
// rule.
func TestReadGarbage(t *testing.T) {
	if e := Read(keys, store.KV{Key: keys.Topic("t"), Value: []byte("garbage"), ModRev: 1}); e.Record != nil || e.JSON != nil || e.Fault == nil {
		t.Errorf("garbage: %+v", e)
	}
	if e := Read(keys, store.KV{Key: keys.Topic("t"), Value: cluster.Encode(&pb.TopicRecord{BlockSize: 1}), ModRev: 1}); e.JSON == nil || e.Fault == nil {
		t.Errorf("without an id: %+v", e)
	}
	if e := Read(keys, store.KV{Key: keys.Prefix() + "x", ModRev: 1}); e.Kind != "" || e.Record != nil || e.Fault == nil {
		t.Errorf("unknown key: %+v", e)
	}
}

// TestKeepUnknown: messages in lists are told apart by their first field, not
// by their place.
func TestKeepUnknown(t *testing.T) {
	old := &pb.PartitionBlock{Partitions: []*pb.PartitionRecord{{Partition: 1}, {Partition: 2}}}
	old.Partitions[1].ProtoReflect().SetUnknown(newer)
	m := &pb.PartitionBlock{Partitions: []*pb.PartitionRecord{{Partition: 2, Leader: 5}, {Partition: 3}}}
	KeepUnknown(old, m)
	if len(m.Partitions[0].ProtoReflect().GetUnknown()) == 0 || len(m.Partitions[1].ProtoReflect().GetUnknown()) > 0 {
		t.Errorf("kept: %v", m)
	}
	KeepUnknown(nil, m)
}

func TestChanges(t *testing.T) {
	before := `{"a": 1, "ids": [1, 2], "same": {}, "p": [{"n": 1, "x": "y"}, {"n": 2}], "m": {"k": "v"}}`
	after := `{"a": 1, "ids": [2], "same": {}, "p": [{"n": 1, "x": "z"}], "m": {}}`
	var got []string
	for _, c := range Changes(json.RawMessage(before), json.RawMessage(after)) {
		got = append(got, c.Path+": "+c.Before+" -> "+c.After)
	}
	want := `ids: [1,2] -> [2]; m.k: "v" -> ; p[0].x: "y" -> "z"; p[1].n: 2 -> `
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("%s\nwant %s", s, want)
	}
	if got := Changes(nil, json.RawMessage(`{"a": 1}`)); len(got) != 1 || got[0] != (Change{"a", "", "1"}) {
		t.Errorf("of a new record: %v", got)
	}
	if got := Changes(json.RawMessage(before), json.RawMessage(before)); got != nil {
		t.Errorf("of the same: %v", got)
	}
}

// FuzzRead: any value of any key is shown without harm, and what is shown of a
// record stands for the whole record.
func FuzzRead(f *testing.F) {
	for _, key := range kinds {
		_, record, _ := keys.RecordOf(key)
		fill(record.ProtoReflect(), 0)
		f.Add(strings.TrimPrefix(key, keys.Prefix()), cluster.Encode(record))
	}
	f.Fuzz(func(t *testing.T, name string, value []byte) {
		key := keys.Prefix() + name
		e := Read(keys, store.KV{Key: key, Value: value, CreateRev: 1, ModRev: 1, Lease: 1})
		if e.Record == nil {
			if e.Fault == nil {
				t.Errorf("%s: %x is no record and no fault", key, value)
			}
			return
		}
		back, err := Parse(keys, key, e.JSON)
		if err != nil {
			t.Fatalf("%s: %s: %v", key, e.JSON, err)
		}
		if len(Changes(e.JSON, Format(back))) > 0 {
			t.Errorf("%s: %s became %s", key, e.JSON, Format(back))
		}
	})
}
