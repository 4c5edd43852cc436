package main

import (
	"fmt"
	"slices"
	"time"
)

// unit is what the values of a figure are counted in.
type unit int

const (
	seconds   unit = iota
	perSecond      // the more the better
	bytes
	ofCore // CPU seconds a second
)

// worst is the value of the worst round.
func (u unit) worst(values []float64) float64 {
	if u == perSecond {
		return slices.Min(values)
	}
	return slices.Max(values)
}

// write is a value with its unit.
func (u unit) write(v float64) string {
	switch u {
	case perSecond:
		return fmt.Sprintf("%.0f/s", v)
	case bytes:
		return fmt.Sprintf("%.0f bytes", v)
	case ofCore:
		return fmt.Sprintf("%.1f %% of a core", 100*v)
	}
	return brief(time.Duration(v * float64(time.Second)))
}

// brief is a duration with three digits.
func brief(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
	case d >= time.Microsecond:
		return fmt.Sprintf("%.3g µs", float64(d)/float64(time.Microsecond))
	}
	return d.String()
}

// rates are how many of n things a second were done in rounds of so many
// seconds.
func rates(n int, took []float64) []float64 {
	out := make([]float64, len(took))
	for i, s := range took {
		out[i] = float64(n) / s
	}
	return out
}
