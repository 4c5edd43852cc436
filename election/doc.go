// Package election decides when a daemon holds the seat of the active
// controller, and keeps the lease under it.
//
// It owns the Candidate, a pure machine from images and answers of the store
// to calls of the store, and the Keeper of its lease. It promises that a term
// begins only when the image shows the claim, that it is over, for this
// process, before the store can let the lease go, and that a candidate always
// contends again. It does not promise that nobody else believes to be active
// at the same time: a lease is a hint, the epoch is the fence.
//
// Run drives a Candidate against a Store on its own, for programs that need
// only to know when they are active.
package election
