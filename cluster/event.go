package cluster

import "github.com/controllerd/controllerd/store"

// Event is a difference between two images that a rule may care about. Events
// need not be delivered: what they say can be read from the image too.
type Event interface{ event() }

// BrokerUp is a broker that became live.
type BrokerUp struct{ Broker *Broker }

// BrokerDown is a broker that is not live any more.
type BrokerDown struct{ Broker *Broker }

// BrokerRestarted is a broker seen under two epochs with nothing in between.
type BrokerRestarted struct{ Old, New *Broker }

// BrokerChanged is a live broker whose record changed.
type BrokerChanged struct{ Old, New *Broker }

// TopicAdded is a topic that became visible.
type TopicAdded struct {
	Topic *Topic
	Rev   store.Rev // of the change; that of the list if a list showed it
}

// TopicChanged is a visible topic whose record changed.
type TopicChanged struct {
	Old, New *Topic
	Rev      store.Rev // of the change; that of the list if a list showed it
}

// TopicGone is a topic whose record is missing or unreadable now. It is not
// evidence of a deletion.
type TopicGone struct{ Topic *Topic }

// PartitionChanged is a visible partition whose record changed. Old is nil for
// one that became visible, New for one that is missing or unreadable now.
type PartitionChanged struct {
	Topic *Topic
	ID    PartitionID
	Old   *Partition
	New   *Partition
	// Rev is the revision of the change; that of the list if a list showed it.
	Rev store.Rev
}

// TombstoneAdded is a topic that was deleted, of which some brokers may still
// hold replicas.
type TombstoneAdded struct {
	Tombstone *Tombstone
	Rev       store.Rev // of the change; that of the list if a list showed it
}

// TombstoneChanged is a tombstone whose record changed.
type TombstoneChanged struct{ Old, New *Tombstone }

// TombstoneGone is a tombstone that is missing or unreadable now.
type TombstoneGone struct{ Tombstone *Tombstone }

// LeaderChanged is a change of the seat or of the controller epoch.
type LeaderChanged struct{}

// SettingsChanged is a change of what holds for the whole cluster.
type SettingsChanged struct{ Old, New *Settings }

func (BrokerUp) event()         {}
func (BrokerDown) event()       {}
func (BrokerRestarted) event()  {}
func (BrokerChanged) event()    {}
func (TopicAdded) event()       {}
func (TopicChanged) event()     {}
func (TopicGone) event()        {}
func (PartitionChanged) event() {}
func (TombstoneAdded) event()   {}
func (TombstoneChanged) event() {}
func (TombstoneGone) event()    {}
func (LeaderChanged) event()    {}
func (SettingsChanged) event()  {}
