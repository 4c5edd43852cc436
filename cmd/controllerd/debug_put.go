package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/records"
	"github.com/controllerd/controllerd/store"
)

// put is what debug put was told.
type put struct {
	*direct
	file       string
	ifRevision int64
	force      bool
	dryRun     bool
}

func newDebugPut(d *direct) *cobra.Command {
	p := &put{direct: d}
	cmd := &cobra.Command{
		Use:   "put KEY [JSON]",
		Short: "Write one record by hand",
		Long: `Write one record by hand, as JSON in the form of debug dump's "value": the second
argument, --file, or else standard input. Fields that are not given are empty.

It is for repairs and tests. Daemons see what is written as if one of them had
written it, and act on it at once. Nothing is written if the key was written since
it was read, or since --if-revision; if daemons would not read the record; or if it
would have no effect. A key keeps its lease, a record the fields of a newer version.

Writing "controller" or "controller_epoch" ends the term that runs.`,
		Example: `  controllerd debug dump topics/orders -o json | jq '.value.partitions_wanted = 24 | .value' |
    controllerd debug put topics/orders
  controllerd debug put nodes/7 '{"node_uuid": "b1c4"}' --if-revision 0 --dry-run`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := utf8Args(args...); err != nil {
				return err
			}
			if cmd.Flags().Changed("if-revision") {
				if p.ifRevision < 0 {
					return usagef("--if-revision is %d, want 0 or more", p.ifRevision)
				}
			} else {
				p.ifRevision = asRead
			}
			key := p.key(args[0])
			record, err := p.parse(cmd.InOrStdin(), key, args[1:])
			if err != nil {
				return err
			}
			return p.with(cmd.Context(), func(ctx context.Context, s store.Store) error {
				return p.run(ctx, s, cmd.OutOrStdout(), key, record)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.file, "file", "", "read the record from this `file`")
	f.Int64Var(&p.ifRevision, "if-revision", 0, "write only if this is the key's mod `revision`, 0: if there is no such key (default: as it is read now)")
	f.BoolVar(&p.force, "force", false, "write also what daemons would not read, or what would have no effect")
	f.BoolVar(&p.dryRun, "dry-run", false, "say what would change, and write nothing")
	return cmd
}

// asRead stands for the revision that is read.
const asRead = -1

// parse reads the record from where it was given.
func (p *put) parse(stdin io.Reader, key string, args []string) (proto.Message, error) {
	if _, _, err := p.keys().RecordOf(key); err != nil {
		return nil, usagef("key %q: %w", p.name(key), err)
	}
	var data []byte
	var err error
	switch {
	case len(args) > 0 && p.file != "":
		return nil, usagef("the record is given twice: as an argument and with --file")
	case len(args) > 0:
		data = []byte(args[0])
	case p.file != "":
		data, err = os.ReadFile(p.file)
	default:
		data, err = io.ReadAll(io.LimitReader(stdin, maxAnswer))
	}
	if err != nil {
		return nil, fmt.Errorf("read the record: %w", err)
	}
	record, err := records.Parse(p.keys(), key, data)
	if err != nil {
		return nil, usagef("record of %s: %w", p.name(key), err)
	}
	return record, nil
}

// run compares the record with what is stored, and writes it.
func (p *put) run(ctx context.Context, s store.Store, w io.Writer, key string, record proto.Message) error {
	old, beside, err := p.read(ctx, s, key)
	if err != nil {
		return err
	}
	if p.ifRevision != asRead && p.ifRevision != int64(old.ModRev) {
		return fmt.Errorf("%s has mod revision %d, not %d: nothing was written", p.name(key), old.ModRev, p.ifRevision)
	}
	had := records.Read(p.keys(), old)
	if old.ModRev == 0 { // what is no value at all reads as an empty record
		had.Record, had.JSON = nil, nil
	}
	records.KeepUnknown(had.Record, record)
	kv := old
	kv.Value, kv.ModRev = cluster.Encode(record), math.MaxInt64
	v := &putView{
		Key: p.name(key), Kind: had.Kind, Before: had.JSON, After: records.Format(record), Lease: leaseOf(old),
		ModRevision: int64(old.ModRev), Changes: []changeView{},
	}
	if old.ModRev > 0 && had.Record == nil {
		v.BeforeRaw = append([]byte{}, old.Value...)
	}
	for _, c := range records.Changes(v.Before, v.After) {
		v.Changes = append(v.Changes, changeView(c))
	}
	fault := p.keys().Unreadable(kv, beside)
	if fault == nil {
		fault = p.keys().Useless(kv, beside)
	}
	if fault != nil {
		if v.Error = fault.Error(); !p.force {
			return fmt.Errorf("%s: %w: nothing was written, --force writes it all the same", p.name(key), fault)
		}
	}
	if p.dryRun || old.ModRev > 0 && string(kv.Value) == string(old.Value) {
		return p.show(w, v)
	}
	if v.ModRevision, err = p.commit(ctx, s, old, store.KV{Key: key, Value: kv.Value}); err != nil {
		return err
	}
	v.Written = true
	return p.show(w, v)
}

// read reads a key, one that does not exist as a value that is empty, and the
// topics, if the rules of its record look at them.
func (p *put) read(ctx context.Context, s store.Store, key string) (old store.KV, beside []store.KV, err error) {
	snap, err := s.Get(ctx, key)
	if err != nil {
		return store.KV{}, nil, err
	}
	old = store.KV{Key: key}
	for _, kv := range snap.KVs {
		old = kv
	}
	if name := p.name(key); strings.HasPrefix(name, "topics/") || strings.HasPrefix(name, "partitions/") {
		topics, err := s.List(ctx, p.keys().Topic(""), false)
		return old, topics.KVs, err
	}
	return old, nil, nil
}

// commit writes the key if it is still as it was read, and returns the
// revision.
func (p *put) commit(ctx context.Context, s store.Store, old, kv store.KV) (int64, error) {
	op := store.Put(kv.Key, kv.Value)
	if old.ModRev > 0 {
		op = store.PutKeepLease(kv.Key, kv.Value)
	}
	result, err := s.Commit(ctx, store.Txn{If: []store.Cond{store.ModRevIs(kv.Key, old.ModRev)}, Then: []store.Op{op}})
	if err != nil {
		return 0, maybeWritten{err}
	}
	if !result.Succeeded {
		return 0, fmt.Errorf("%s was written by somebody else since it was read: nothing was written", p.name(kv.Key))
	}
	return int64(result.Rev), nil
}

// maybeWritten is an error of a write.
type maybeWritten struct{ error }

func (e maybeWritten) Unwrap() error { return e.error }

// putView is what debug put has changed.
type putView struct {
	Key         string          `json:"key"`
	Kind        string          `json:"kind"`
	Before      json.RawMessage `json:"before"`     // null: no such key, or unreadable
	BeforeRaw   []byte          `json:"before_raw"` // in base64; null if there is a record, or no such key
	After       json.RawMessage `json:"after"`
	Changes     []changeView    `json:"changes"`
	Error       string          `json:"error"` // what speaks against the record, with --force
	Written     bool            `json:"written"`
	ModRevision int64           `json:"mod_revision"` // of the key, 0: there is none
	Lease       string          `json:"lease"`
}

type changeView struct {
	Path   string `json:"path"`
	Before string `json:"before"`
	After  string `json:"after"`
}

func (v *putView) table() table {
	what := "not written"
	switch {
	case v.Written:
		what = fmt.Sprintf("written at revision %d", v.ModRevision)
	case len(v.Changes) == 0:
		what = "is so already"
	}
	t := table{title: []string{v.Key + ": " + what}, head: []string{"FIELD", "BEFORE", "AFTER"}}
	if v.Error != "" {
		t.title = append(t.title, "against the rules: "+v.Error)
	}
	for _, c := range v.Changes {
		t.rows = append(t.rows, []string{c.Path, c.Before, c.After})
	}
	if t.rows == nil {
		t.head = nil
	}
	return t
}
