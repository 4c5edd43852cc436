package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/controllerd/controllerd/internal/records"
	"github.com/controllerd/controllerd/store"
)

func newDebugDump(d *direct) *cobra.Command {
	return &cobra.Command{
		Use:   "dump [PREFIX...]",
		Short: "Show the records of a cluster as they are stored",
		Long: `Show the records of a cluster as they are stored, all of them or those whose keys
begin with a prefix, as they were at one revision of etcd.

JSON has one object a line, for jq; YAML one document for each key. "value" is the
record, null if the key is unknown or its value is none; then "raw" has the bytes
in base64. "error" says why daemons count the key as a fault. Fields of a newer
version are in "unknown_fields", in base64. A table has a line for each partition.`,
		Example: `  controllerd debug dump
  controllerd debug dump topics/ brokers/
  controllerd debug dump topics/orders -o json | jq .value
  controllerd debug dump partitions/ -o json | jq -c '.value.partitions[] | select(.leader == -1)'`,
		RunE: func(cmd *cobra.Command, prefixes []string) error {
			if err := utf8Args(prefixes...); err != nil {
				return err
			}
			return d.with(cmd.Context(), func(ctx context.Context, s store.Store) error {
				return d.dump(ctx, s, cmd.OutOrStdout(), prefixes)
			})
		},
	}
}

// dump shows all keys that begin with one of the prefixes. They are read as
// one range, so that they are of one revision.
func (d *direct) dump(ctx context.Context, s store.Store, w io.Writer, prefixes []string) error {
	if len(prefixes) == 0 {
		prefixes = []string{""}
	}
	wanted := make([]string, len(prefixes))
	for i, p := range prefixes {
		wanted[i] = d.key(p)
	}
	snap, err := s.List(ctx, common(wanted), false)
	if err != nil {
		return err
	}
	snap.KVs = slices.DeleteFunc(snap.KVs, func(kv store.KV) bool {
		return !slices.ContainsFunc(wanted, func(p string) bool { return strings.HasPrefix(kv.Key, p) })
	})
	if len(snap.KVs) == 0 {
		return fmt.Errorf("no key begins with %s", strings.Join(wanted, " or "))
	}
	headers := !d.noHeaders
	for part := range slices.Chunk(snap.KVs, dumpPart) {
		if err := d.writePart(w, snap.Rev, part, headers); err != nil {
			return err
		}
		headers = false
	}
	return nil
}

// dumpPart is how many keys a table lines up: a dump may have many.
const dumpPart = 1000

func (d *direct) writePart(w io.Writer, rev store.Rev, kvs []store.KV, headers bool) error {
	t := table{head: []string{"KEY", "CREATED", "MODIFIED", "LEASE", "VALUE"}}
	for _, kv := range kvs {
		v := d.recordOf(rev, kv)
		var err error
		switch d.format {
		case "json":
			err = writeJSONLine(w, v)
		case "yaml":
			if _, err = io.WriteString(w, "---\n"); err == nil {
				err = writeYAML(w, v)
			}
		default:
			t.rows = append(t.rows, v.rows()...)
		}
		if err != nil {
			return err
		}
	}
	if t.rows == nil {
		return nil
	}
	return t.write(w, headers)
}

// common is what all of the strings begin with.
func common(all []string) string {
	first, last := slices.Min(all), slices.Max(all)
	n := 0
	for n < min(len(first), len(last)) && first[n] == last[n] {
		n++
	}
	return first[:n]
}

// recordView is one key in a dump.
type recordView struct {
	Revision       int64           `json:"revision"` // at which etcd was read
	Key            string          `json:"key"`
	Kind           string          `json:"kind"` // empty: unknown
	CreateRevision int64           `json:"create_revision"`
	ModRevision    int64           `json:"mod_revision"`
	Lease          string          `json:"lease"` // in hexadecimal, as etcdctl shows it; empty: none
	Value          json.RawMessage `json:"value"`
	Raw            []byte          `json:"raw"` // null if there is a value
	Error          string          `json:"error"`
	UnknownFields  []unknownView   `json:"unknown_fields"`
}

type unknownView struct {
	Path   string `json:"path"`
	Fields []byte `json:"fields"`
}

func (d *direct) recordOf(rev store.Rev, kv store.KV) recordView {
	e := records.Read(d.keys(), kv)
	v := recordView{
		Revision: int64(rev), Key: d.name(kv.Key), Kind: e.Kind,
		CreateRevision: int64(kv.CreateRev), ModRevision: int64(kv.ModRev), Lease: leaseOf(kv),
		Value: e.JSON, UnknownFields: []unknownView{},
	}
	if e.Record == nil {
		v.Raw = append([]byte{}, kv.Value...)
	}
	if e.Fault != nil {
		v.Error = e.Fault.Error()
	}
	for _, u := range e.Unknown {
		v.UnknownFields = append(v.UnknownFields, unknownView(u))
	}
	return v
}

func leaseOf(kv store.KV) string {
	if kv.Lease == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", uint64(kv.Lease))
}

// rawShown is how many bytes of an unreadable value a table shows.
const rawShown = 32

// rows are a row for the key, or for each partition of a block.
func (v *recordView) rows() [][]string {
	row := func(value string) []string {
		return []string{v.Key, str(v.CreateRevision), str(v.ModRevision), v.Lease, value}
	}
	var note strings.Builder
	if v.Error != "" {
		fmt.Fprintf(&note, " (%s)", v.Error)
	}
	for _, u := range v.UnknownFields {
		fmt.Fprintf(&note, " (%d bytes of unknown fields in %s)", len(u.Fields), orRecord(u.Path))
	}
	if v.Value == nil {
		return [][]string{row(fmt.Sprintf("unreadable, %d bytes: %x%s%s", len(v.Raw), v.Raw[:min(len(v.Raw), rawShown)], ellipsis(v.Raw), note.String()))}
	}
	var block struct {
		Partitions []json.RawMessage `json:"partitions"`
	}
	if v.Kind != "partitions" || json.Unmarshal(v.Value, &block) != nil || len(block.Partitions) == 0 {
		return [][]string{row(string(v.Value) + note.String())}
	}
	var out [][]string
	for i, p := range block.Partitions {
		if out = append(out, row(string(p))); i == 0 {
			out[0][4] += note.String()
		}
	}
	return out
}

func orRecord(path string) string {
	if path == "" {
		return "the record"
	}
	return path
}

func ellipsis(raw []byte) string {
	if len(raw) > rawShown {
		return "..."
	}
	return ""
}
