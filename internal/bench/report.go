package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// figure is one line of a table: what was measured, beside the bare client.
type figure struct {
	what string
	unit unit      // of the values; default: seconds
	ours []float64 // one value for each round
	bare []float64 // nil: there is nothing to compare with
	// Targets; 0: none. The worst round must stay below the one. The median must
	// be at most times, or at least least times, the bare median.
	below, times, least float64
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return s[len(s)/2]
}

// target is the figure's target in words.
func (f figure) target() string {
	switch {
	case f.below > 0:
		return "below " + f.unit.write(f.below)
	case f.times > 0:
		return fmt.Sprintf("at most %g times", f.times)
	case f.least > 0:
		return fmt.Sprintf("at least %g times", f.least)
	}
	return "-"
}

// met says whether the target is.
func (f figure) met() string {
	ok := true
	switch {
	case f.below > 0:
		ok = f.unit.worst(f.ours) < f.below
	case f.times > 0:
		ok = f.ratio() <= f.times
	case f.least > 0:
		ok = f.ratio() >= f.least
	default:
		return "-"
	}
	if ok {
		return "yes"
	}
	return "**no**"
}

func (f figure) ratio() float64 { return median(f.ours) / median(f.bare) }

// section is what docs/BENCHMARKS.md says about a row.
func section(r row, figures []figure, machine string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s\n\n`make bench RUN=%s` · %s\n\n", r.name, strings.TrimSpace(r.what), r.name, machine)
	b.WriteString("| measured | median | worst | bare median | bare worst | ratio | target | met |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|\n")
	for _, f := range figures {
		bare := "- | - | -"
		if f.bare != nil {
			bare = fmt.Sprintf("%s | %s | %.2f", f.unit.write(median(f.bare)), f.unit.write(f.unit.worst(f.bare)), f.ratio())
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n",
			f.what, f.unit.write(median(f.ours)), f.unit.write(f.unit.worst(f.ours)), bare, f.target(), f.met())
	}
	return b.String()
}

const header = `# Benchmarks

Written by ` + "`make bench`" + `; ` + "`make bench RUN=row`" + ` writes one row anew. Five rounds after a warm-up. etcd, with fsync
on, and each daemon are processes over TCP loopback; the brokers and the bare etcd clients share one process. *Bare* is an
etcd client that does the same work in etcd without anything around it, in the same run; the ratio is that of the medians.
A target in seconds or bytes holds for the worst round.

`

// updateFile puts the section of one row into the file and leaves the others.
func updateFile(file, name, text string) error {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(file, []byte(updated(string(old), name, text)), 0o644)
}

// updated is the file with one section replaced or added, in the order of rows.
func updated(old, name, text string) string {
	const mark = "## "
	sections := map[string]string{}
	for _, s := range strings.Split("\n"+old, "\n"+mark)[1:] {
		title, _, _ := strings.Cut(s, "\n")
		sections[title] = mark + strings.TrimRight(s, "\n") + "\n"
	}
	sections[name] = strings.TrimRight(text, "\n") + "\n"
	parts := []string{}
	for _, r := range rows {
		if s := sections[r.name]; s != "" {
			parts = append(parts, s)
		}
	}
	return header + strings.Join(parts, "\n")
}
