// Package store is the vocabulary in which everything above it speaks about the
// replicated store: revisions, keys, guarded transactions, leases and watches.
//
// It owns no state and does no I/O. It promises that no write without a
// condition can be expressed: Txn.Validate refuses it, and every
// implementation of Store calls Validate first. It does not promise how fast a
// store answers, nor that an error means that nothing happened: see ErrUnknown.
package store
