package records

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/store"
)

// Entry is one key as people can read it.
type Entry struct {
	store.KV
	Kind    string          // empty: no key of the layout
	Record  proto.Message   // nil: the value is none
	JSON    json.RawMessage // of the record, compact
	Fault   error           // why daemons count the key as a fault, nil: they do not
	Unknown []Unknown       // fields of a newer version
}

// Read reads one key of a cluster.
func Read(keys cluster.Keys, kv store.KV) Entry {
	e := Entry{KV: kv, Fault: keys.Unreadable(kv, nil)}
	kind, record, err := keys.RecordOf(kv.Key)
	if err != nil {
		return e
	}
	e.Kind = kind
	if proto.Unmarshal(kv.Value, record) == nil {
		e.Record, e.JSON, e.Unknown = record, Format(record), unknownIn(record)
	}
	return e
}

// Format is a record as compact JSON, the same each time.
func Format(record proto.Message) json.RawMessage {
	loose, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(record)
	var compact bytes.Buffer
	if err == nil {
		err = json.Compact(&compact, loose) // protojson varies its blanks on purpose
	}
	if err != nil {
		panic(fmt.Sprintf("format %T: %v", record, err)) // only a string that is not UTF-8, which Unmarshal lets nobody have
	}
	return compact.Bytes()
}

// Parse reads the record of a key from JSON. Unknown fields, fields that are
// named twice and what follows the record are errors.
func Parse(keys cluster.Keys, key string, data []byte) (proto.Message, error) {
	_, record, err := keys.RecordOf(key)
	if err != nil {
		return nil, err
	}
	if err := protojson.Unmarshal(data, record); err != nil {
		return nil, errors.New(plain(err))
	}
	return record, nil
}

// plain drops what protobuf puts in front, with a blank that varies.
func plain(err error) string {
	rest, _ := strings.CutPrefix(err.Error(), "proto:")
	return strings.TrimLeftFunc(rest, unicode.IsSpace)
}
