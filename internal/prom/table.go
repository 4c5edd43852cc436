package prom

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/controllerd/controllerd/internal/durations"
)

// Kind is the type of a metric.
type Kind string

// The kinds of a Metric.
const (
	Gauge     Kind = "gauge"
	Counter   Kind = "counter"
	Histogram Kind = "histogram"
)

// Metric is one row of a table: a family of metrics that is read from a
// snapshot T.
type Metric[T any] struct {
	Name   string
	Kind   Kind
	Labels []string
	Help   string // one sentence, without a full stop
	Read   func(T, Emit)
}

// Emit hands over the values of one family, each with one value per label.
type Emit struct {
	to   chan<- prometheus.Metric
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// Value emits a gauge or a counter.
func (e Emit) Value(v float64, labels ...string) {
	e.to <- prometheus.MustNewConstMetric(e.desc, e.kind, v, labels...)
}

// Durations emits a histogram, in seconds.
func (e Emit) Durations(h *durations.Histogram, labels ...string) {
	buckets := make(map[float64]uint64, len(durations.Bounds))
	for i, bound := range durations.Bounds {
		buckets[bound.Seconds()] = h.UpTo(i)
	}
	e.to <- prometheus.MustNewConstHistogram(e.desc, h.Count(), h.Sum.Seconds(), buckets, labels...)
}

// One makes a Read of a single value.
func One[T any](value func(T) float64) func(T, Emit) {
	return func(from T, e Emit) { e.Value(value(from)) }
}

// Collector collects a table. look makes the snapshot of one scrape; it may be
// called by several scrapes at once.
func Collector[T any](table []Metric[T], look func() T) prometheus.Collector {
	c := &collector[T]{table: table, look: look}
	for _, m := range table {
		c.descs = append(c.descs, prometheus.NewDesc(m.Name, m.Help, m.Labels, nil))
	}
	return c
}

type collector[T any] struct {
	table []Metric[T]
	descs []*prometheus.Desc
	look  func() T
}

// Describe implements prometheus.Collector.
func (c *collector[T]) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector[T]) Collect(to chan<- prometheus.Metric) {
	from := c.look()
	for i, m := range c.table {
		e := Emit{to: to, desc: c.descs[i], kind: prometheus.GaugeValue}
		if m.Kind == Counter {
			e.kind = prometheus.CounterValue
		}
		m.Read(from, e)
	}
}

// Markdown is a table for people.
func Markdown[T any](table []Metric[T]) string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, m := range table {
		labels := "-"
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind, labels, m.Help)
	}
	return b.String()
}
