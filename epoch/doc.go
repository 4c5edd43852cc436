// Package epoch mints controller epochs and guards what is written under them.
//
// It owns the election transaction, the Claim that winning it gives, and the
// Guard that every later transaction of the term carries. It promises that no
// guarded transaction succeeds after the seat or the epoch key was written by
// anybody else, or deleted. It does not promise that a holder of a Claim is
// still active: a claim is proved by committing under it, never by looking at
// a clock.
package epoch
