// Command herd measures what three ways of electing cost an etcd when the node
// dies that leads everything: each replica contends for its partition, all
// nodes contend for one seat, or they queue for it. It prints a table.
//
//	scripts/herd [-candidates 3,9,27] [-partitions 100,1000,3000]
//
// The candidates are clients in this process, each with a connection of its own.
// What they cost is read from etcd's own metrics, so nobody else should use the
// etcd meanwhile. It writes below the prefix herd/ and deletes that again.
package main
