// Command bench measures what an operator waits for, each beside a bare etcd
// client that does the same work in etcd, in the same run. It prints a table for
// each row and keeps the tables in docs/BENCHMARKS.md:
//
//	go run ./internal/bench [-run ROW] [-scale 0.1]
//
// A table of another scale than 1 is not kept: it shows that a row runs, not
// what it costs.
//
// It owns the processes that it starts: etcd and the daemons, over loopback. The
// brokers and the bare clients are in this process, but for a watch and a list of
// etcd, for which it starts itself. Clocks start when a call or a signal is sent,
// and stop at what a broker, a caller or an etcd watch of its own saw.
package main
