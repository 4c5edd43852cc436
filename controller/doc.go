// Package controller is one daemon: the single owner of the cluster's state,
// active or standby.
//
// It owns the Image, the plan in flight, and what happens when a term begins
// and ends. It promises that every decision is taken from one image and
// written under the claim's guard and the mod revisions of what was decided
// on, that the next plan is made only when all of the last one is settled, and
// that an answer goes out only when the image shows what it says, or, at the
// end of a term that is given up on purpose, when the store has. It does not
// promise atomicity across transactions of one plan.
//
// The Loop is pure: the simulation runs it in virtual time. Run drives it
// against a Store and real brokers; a Go program may embed it.
package controller
