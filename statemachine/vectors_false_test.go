package statemachine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// judged are what vectors expect that must be looked at wherever it stands: who
// leads, the ISR, epochs, errors, verdicts.
var judged = []string{
	"leader", "isr", "error", "valid", "complete", "triggers", "hasPreferredLeader", "replicas", "adding", "removing", "origin", "target", "reassigning",
	"topLevel", "partition", "elected", "order", "write", "stored", "leaderEpoch", "exactByReferenceCode", "p1Set", "p2Set",
}

// lenient are the kinds of vectors of which a part is told in prose, or of which
// steps are left out that are one write here.
var lenient = map[string]string{
	"reassign.walk": "the steps in between",
	"topicDeletion": "the states on the way, of which there are none here",
}

// TestVectorFalsified turns each expectation around in turn, and demands that the
// player notices: no check is one that cannot fail.
func TestVectorFalsified(t *testing.T) {
	all := players()
	turned := map[string]int{}
	for _, v := range vectors(t) {
		if _, partly := lenient[v.Kind]; partly || differences[v.Name].why != "" {
			continue
		}
		var expected any
		if err := json.Unmarshal(v.Expected, &expected); err != nil {
			t.Fatal(err)
		}
		for _, f := range falsehoods(expected, "") {
			raw, err := json.Marshal(f.value)
			if err != nil {
				t.Fatal(err)
			}
			wrong := v
			wrong.Expected = raw
			t.Run(v.Name+"/"+f.path, func(t *testing.T) {
				if got, want := all[v.Kind](t, wrong); got == want {
					t.Errorf("%s: nobody notices that %s is wrong in %s", v.Kind, f.path, raw)
				}
			})
			turned[v.Kind]++
		}
	}
	for kind := range all {
		if turned[kind] == 0 && lenient[kind] == "" {
			t.Logf("%s: nothing of it is turned around", kind)
		}
	}
}

// falsehood is an expectation of which one value is wrong.
type falsehood struct {
	path  string
	value any
}

// falsehoods are those of a value, each with one judged part turned around.
func falsehoods(x any, path string) []falsehood {
	var out []falsehood
	object, ok := x.(map[string]any)
	if !ok {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		with := func(v any) map[string]any {
			c := maps.Clone(object)
			c[name] = v
			return c
		}
		at := strings.TrimPrefix(path+"."+name, ".")
		if slices.Contains(judged, name) {
			if wrong, ok := falsified(object[name]); ok {
				out = append(out, falsehood{at, with(wrong)})
			}
			continue
		}
		for _, f := range falsehoods(object[name], at) {
			out = append(out, falsehood{f.path, with(f.value)})
		}
	}
	return out
}

// falsified is another value of the same type.
func falsified(x any) (any, bool) {
	switch x := x.(type) {
	case bool:
		return !x, true
	case float64:
		return x + 7, true
	case string:
		return "NOT_" + x, true
	case []any:
		if len(x) == 0 {
			return []any{77}, true
		}
		if _, number := x[0].(float64); number {
			return append(slices.Clone(x[:len(x)-1]), 77), true
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(x)) {
			if wrong, ok := falsified(x[name]); ok {
				c := maps.Clone(x)
				c[name] = wrong
				return c, true
			}
		}
	}
	return fmt.Sprint(x), false
}
