// Package metrics shows a daemon to Prometheus, and to load balancers: a table
// of metrics over the snapshot that its owner publishes, and the HTTP pages
// /metrics, /livez, /readyz, /leader and /version. A scrape never asks the
// owner, and takes time with the number of brokers only.
package metrics
