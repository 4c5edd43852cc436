// Package fencing is the protection of brokers from controllers that were
// replaced and do not know it yet.
//
// It owns the Stamp that every command carries, and the Gate: what a broker
// admits, what it refuses, and why. The Gate promises that after it admitted a
// command of some controller epoch it admits none of a lower one, that no
// command meant for another incarnation of the broker is admitted, and that
// the state held of a partition never goes back in leader epoch, nor in
// partition epoch within one. A command that it refuses changes nothing.
//
// It does not lock: the owner holds one lock around each call and the start of
// what the verdict asks for, because a handler that starts after a newer state
// was admitted would undo the order. It does not promise that a command of a
// controller that was replaced is refused before this broker has heard of the
// new one; until then the leader epochs bound what the old one can do.
package fencing
