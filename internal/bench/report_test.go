package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func ms(n ...float64) []float64 {
	for i := range n {
		n[i] /= 1000
	}
	return n
}

func TestFigure(t *testing.T) {
	cases := []struct {
		name        string
		f           figure
		target, met string
	}{
		{"every round is fast enough", figure{ours: ms(1, 9, 3), below: 0.01}, "below 10 ms", "yes"},
		{"one round is not", figure{ours: ms(1, 10, 3), below: 0.01}, "below 10 ms", "**no**"},
		{"the medians compare well", figure{ours: ms(1, 90, 4), bare: ms(2, 2, 50), times: 2}, "at most 2 times", "yes"},
		{"the medians do not", figure{ours: ms(1, 90, 5), bare: ms(2, 2, 50), times: 2}, "at most 2 times", "**no**"},
		{"as many a second", figure{unit: perSecond, ours: []float64{1, 5, 9}, bare: []float64{2, 5, 6}, least: 1}, "at least 1 times", "yes"},
		{"fewer a second", figure{unit: perSecond, ours: []float64{9, 4, 1}, bare: []float64{5, 5, 5}, least: 1}, "at least 1 times", "**no**"},
		{"small enough", figure{unit: bytes, ours: []float64{399, 1}, below: 400}, "below 400 bytes", "yes"},
		{"too large", figure{unit: bytes, ours: []float64{400, 1}, below: 400}, "below 400 bytes", "**no**"},
		{"no target", figure{ours: ms(1)}, "-", "-"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.f.target() != c.target || c.f.met() != c.met {
				t.Errorf("target %q met %q, want %q %q", c.f.target(), c.f.met(), c.target, c.met)
			}
		})
	}
}

func TestUnits(t *testing.T) {
	for _, c := range []struct {
		u     unit
		want  string
		worst float64
	}{
		{seconds, "2.5 s", 2.5}, {perSecond, "2/s", 1}, {bytes, "2 bytes", 2.5}, {ofCore, "250.0 % of a core", 2.5},
	} {
		if got := c.u.write(2.5); got != c.want {
			t.Errorf("2.5 in unit %d is written %q, want %q", c.u, got, c.want)
		}
		if got := c.u.worst([]float64{1, 2.5, 2}); got != c.worst {
			t.Errorf("the worst in unit %d is %v, want %v", c.u, got, c.worst)
		}
	}
	if got := rates(10, []float64{2, 5}); !slices.Equal(got, []float64{5, 2}) {
		t.Errorf("10 things in 2 s and in 5 s: %v a second", got)
	}
}

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		4321 * time.Millisecond: "4.32 s", 102125231: "102 ms", 951661: "952 µs", 25 * time.Millisecond: "25 ms", 12: "12ns",
	} {
		if got := brief(d); got != want {
			t.Errorf("brief(%d) = %q, want %q", d, got, want)
		}
	}
}

func TestSection(t *testing.T) {
	got := section(row{name: "r", what: "\nWhat."}, []figure{
		{what: "a", ours: ms(3, 1, 2), bare: ms(1, 1, 1), times: 2}, {what: "b", ours: ms(7)},
	}, "machine")
	want := "## r\n\nWhat.\n\n`make bench RUN=r` · machine\n" + `
| measured | median | worst | bare median | bare worst | ratio | target | met |
|---|---|---|---|---|---|---|---|
| a | 2 ms | 3 ms | 1 ms | 1 ms | 2.00 | at most 2 times | yes |
| b | 7 ms | 7 ms | - | - | - | - | - |
`
	if got != want {
		t.Errorf("section:\n%s", got)
	}
}

// A row that is written anew leaves the others, in the order of rows.
func TestUpdated(t *testing.T) {
	one := updated("", "freeze", "## freeze\n\nfirst\n")
	two := updated(one, "handover", "## handover\n\nsecond\n")
	three := updated(two, "freeze", "## freeze\n\nthird\n")
	want := header + "## handover\n\nsecond\n\n## freeze\n\nthird\n"
	if three != want {
		t.Errorf("file:\n%s", three)
	}
	if again := updated(three, "freeze", "## freeze\n\nthird\n"); again != three {
		t.Errorf("the same again:\n%s", again)
	}
	if strings.Count(header, "# ") != 1 {
		t.Error("the header looks like a section")
	}
}
