package broker

import (
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
)

// SetOffline says that the storage of replicas has failed, as when a log
// directory did, without waiting for a command that finds out: the controller
// moves their leaderships away and takes them out of ISRs. Handlers that run for
// them count as failed, whatever they return. They stay offline until a handler
// has succeeded again; see SetOnline. Replicas that are not on this broker are
// ignored.
func (b *Broker) SetOffline(replicas ...cluster.PartitionID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	gone := b.gate.SetOffline(replicas...)
	for _, r := range gone {
		if w := b.workers[r.Partition]; w != nil && w.current != nil {
			w.spoiled = true
		}
	}
	for o := range b.streams {
		o.tell(&o.report.offline, true, gone)
	}
}

// SetOnline says that the storage of offline replicas is back. Their handlers
// are called with the newest state, and when that succeeds they are online. A
// broker that does not know when storage is back need not say so: the handlers
// are called every 30 s anyway.
func (b *Broker) SetOnline(replicas ...cluster.PartitionID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setOnline(replicas...)
}

func (b *Broker) setOnline(replicas ...cluster.PartitionID) {
	back := b.gate.OfflineAmong(replicas)
	for _, r := range back {
		if w := b.workers[r.Partition]; w != nil && w.current != nil {
			w.restored = true
		}
	}
	for o := range b.streams {
		o.tell(&o.report.offline, false, back)
	}
}

// SetStorageFailed says that some storage has failed of which it is not known
// what it holds, as when a log directory cannot even be listed, or that there is
// none of that kind any more. While there is, and while replicas are offline, a
// replica that is not there is created only if the controller says that it is
// new: what is missing may be on the storage that failed.
func (b *Broker) SetStorageFailed(failed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noStorage = failed
}

// storageFailed reports whether storage has failed that may hold any replica.
func (b *Broker) storageFailed() bool { return b.noStorage || b.gate.Offline() > 0 }

// OfflineReplicas are those whose storage has failed, in order.
func (b *Broker) OfflineReplicas() []HeldReplica {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fencing.HeldReplicas(b.gate.Hello().GetOffline())
}

// Strays are the replicas that nobody has assigned to this broker, as the last
// full syncs have shown, in order. They are stopped, and their data is kept
// until a controller assigns them again or says that it is to be deleted.
func (b *Broker) Strays() []HeldReplica {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gate.Strays()
}

// noteStrays stops the replicas that a full sync has shown to be stray, and
// tells every stream of them, and of those that are none any more.
func (b *Broker) noteStrays(v *fencing.Verdict) {
	var found []fencing.HeldReplica
	for _, s := range v.Strays {
		found = append(found, fencing.HeldReplica{Topic: s.Topic, Partition: s.Partition, LeaderEpoch: s.LeaderEpoch})
		if b.ctx.Err() == nil && b.workers.stop(s) {
			b.startWorker(s.Partition)
		}
	}
	for o := range b.streams {
		o.tell(&o.report.strays, false, v.Assigned)
		o.tell(&o.report.strays, true, found)
	}
	if len(found) > 0 {
		b.log.Warn("replicas that nobody has assigned are stopped, their data is kept", "replicas", len(found))
	}
}
