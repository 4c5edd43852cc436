// Package memstore is etcd as a value: its revisions, transactions, leases,
// history, compaction and limits, without its disk and its network.
//
// Model is pure and takes the time as an argument, for the simulation. Store
// puts a Model behind store.Store, for tests of whole packages; it starts no
// goroutine and blocks only on channels and timers, so it works in a bubble of
// testing/synctest.
//
// What it promises it promises because the conformance suite in store/storetest
// passes on it and on a real etcd, and because a seeded run compares the two
// answer by answer. It does not promise etcd's bad days: lost replies, silent
// watches and slow members are put around it by whoever wants them.
package memstore
