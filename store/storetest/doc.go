// Package storetest is the one suite that every store.Store must pass: what
// holds in the simulation, on memstore, holds on etcd only because both pass
// it.
//
// Run checks the promises of store.Store one by one. Compare gives two stores
// the same random operations and wants the same answers. Neither tests what a
// network does to a store.
package storetest
