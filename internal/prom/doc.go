// Package prom turns a table of metrics, each with the function that reads its
// value from a snapshot, into a collector for Prometheus, and into a table for
// people. A scrape makes one snapshot; nothing is counted between scrapes.
package prom
