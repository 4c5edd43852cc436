package records

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Change is one value of a record that differs.
type Change struct {
	Path          string // such as partitions[3].leader
	Before, After string // as JSON, empty: none
}

// Changes are the values in which two records differ, in order of path as the
// records have them; nil: there is no record.
func Changes(before, after json.RawMessage) []Change {
	var out []Change
	compare("", decode(before), decode(after), &out)
	return out
}

func decode(raw json.RawMessage) any {
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	_ = dec.Decode(&v) // nothing, or what Format has made
	return v
}

func compare(path string, before, after any, out *[]Change) {
	b, a := parts(before), parts(after)
	if b == nil && a == nil {
		if was, is := text(before), text(after); was != is {
			*out = append(*out, Change{path, was, is})
		}
		return
	}
	names := slices.Concat(slices.Collect(maps.Keys(b)), slices.Collect(maps.Keys(a)))
	slices.SortFunc(names, func(x, y part) int {
		if x.index != y.index {
			return x.index - y.index
		}
		return bytes.Compare([]byte(x.name), []byte(y.name))
	})
	for _, n := range slices.Compact(names) {
		compare(n.under(path), b[n], a[n], out)
	}
}

// part names a value within an object, or by its place in a list of objects.
type part struct {
	index int
	name  string
}

func (p part) under(path string) string {
	switch {
	case p.name == "":
		return fmt.Sprintf("%s[%d]", path, p.index)
	case path == "":
		return p.name
	}
	return path + "." + p.name
}

// parts takes objects and lists of objects apart; other lists are one value.
func parts(v any) map[part]any {
	out := map[part]any{}
	switch v := v.(type) {
	case map[string]any:
		for name, x := range v {
			out[part{name: name}] = x
		}
	case []any:
		for i, x := range v {
			if _, object := x.(map[string]any); !object {
				return nil
			}
			out[part{index: i}] = x
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func text(v any) string {
	if v == nil {
		return ""
	}
	b, _ := json.Marshal(v) // it was JSON
	return string(b)
}
