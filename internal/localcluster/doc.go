// Package localcluster runs daemons and brokers in this process, on loopback,
// against a real etcd: for the dev command, tests and benchmarks.
//
// It owns what it started. A killed part vanishes as a killed process would:
// nothing is resigned, deleted or revoked, and its connections are cut.
package localcluster
