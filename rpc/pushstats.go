package rpc

import "github.com/controllerd/controllerd/internal/durations"

// PushStats count since the process began.
type PushStats struct {
	Sent    int64 // partition states in LeaderAndIsr commands
	Applied int64
	Already int64
	Failed  int64 // results of any other kind
	Refused int64 // whole commands, by the gate of a broker
	// Refusals are Refused by reason.
	Refusals Refusals
	// AckTime is for how long commands wait for the answer of a gate.
	AckTime durations.Histogram
	Encoded int64 // bodies of metadata, each for all brokers
	// Streams that began with everything, and that went on where an earlier
	// one had ended.
	FullSyncs, Resumed int64
	// Of the former, those that named a point of a history that etcd does not
	// hold, and a point from before what is remembered.
	Foreign, Forgotten int64
	// Mismatched counts brokers that held something else than they were told.
	Mismatched int64
	// WentOffline counts replicas whose storage failed, each time, and Strays
	// those that a full sync did not name.
	WentOffline, Strays int64
	// DeathsProven counts brokers that were taken for dead because they refused
	// connections, DeathsDamped refusals that proved nothing: another broker
	// refused too, or one was taken for dead shortly before.
	DeathsProven, DeathsDamped int64
}
