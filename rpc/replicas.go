package rpc

import (
	"slices"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// replicas is what one incarnation of a broker has said of its own replicas. It
// outlives a stream, and the next hello replaces it.
type replicas struct {
	offline      map[cluster.PartitionID]*retry // their storage has failed; each is tried again now and then
	triesOffline tries
	strays       map[cluster.PartitionID]fencing.HeldReplica
}

// Offline reports whether the storage of a replica has failed, as that
// incarnation of its broker says. A broker that has not spoken in this term has
// said nothing.
func (p *Pusher) Offline(b *cluster.Broker, id cluster.PartitionID) bool {
	if p.offline == 0 {
		return false
	}
	t := p.targets[b.ID]
	return t != nil && t.epoch == b.Epoch && t.offline[id] != nil
}

// OfflineReplicas is how many replicas of the broker are offline.
func (p *Pusher) OfflineReplicas(id cluster.BrokerID) int {
	if t := p.targets[id]; t != nil {
		return len(t.offline)
	}
	return 0
}

// Strays are the replicas that a broker holds and nobody has assigned to it,
// in order.
func (p *Pusher) Strays(id cluster.BrokerID) []fencing.HeldReplica {
	t := p.targets[id]
	if t == nil {
		return nil
	}
	out := make([]fencing.HeldReplica, 0, len(t.strays))
	for _, r := range t.strays {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b fencing.HeldReplica) int { return a.Partition.Compare(b.Partition) })
	return out
}

// OfflineChanged are the partitions of which a replica went offline or came
// back since the last call.
func (p *Pusher) OfflineChanged() []cluster.PartitionID {
	out := p.offlineChanged
	p.offlineChanged = nil
	return out
}

// wentOffline notes that a replica is offline, and when it is tried again.
func (p *Pusher) wentOffline(t *target, id cluster.PartitionID, le cluster.LeaderEpoch, message string, again time.Duration) {
	if t.offline[id] == nil {
		if t.offline == nil {
			t.offline = map[cluster.PartitionID]*retry{}
		}
		p.offline++
		p.Stats.WentOffline++
		p.offlineChanged = append(p.offlineChanged, id)
	}
	t.settle(id)
	r := &retry{epoch: le, message: message}
	t.offline[id] = r
	t.triesOffline.set(id, r, again)
}

func (p *Pusher) cameBack(t *target, id cluster.PartitionID) {
	if t.offline[id] != nil {
		delete(t.offline, id)
		p.offline--
		p.offlineChanged = append(p.offlineChanged, id)
	}
}

// introduce takes in what a hello says of the broker's replicas. Those that are
// offline are tried soon: what was said of them before may not have been
// applied, and nobody says it again.
func (p *Pusher) introduce(now time.Duration, t *target, hello *pb.Hello) {
	offline := fencing.HeldReplicas(hello.GetOffline())
	named := make(map[cluster.PartitionID]bool, len(offline))
	if len(t.offline) == 0 {
		t.offline = make(map[cluster.PartitionID]*retry, len(offline))
	}
	for _, r := range offline {
		named[r.Partition] = true
		p.wentOffline(t, r.Partition, r.LeaderEpoch, storageFailed, now+MinRetry)
	}
	for id := range t.offline {
		if !named[id] {
			p.cameBack(t, id)
		}
	}
	t.strays = nil
	t.addStrays(hello.GetStrays())
}

// storageFailed is what a broker says that gives no reason.
const storageFailed = "the storage of the replica has failed"

func (t *target) addStrays(topics []*pb.TopicReplicas) {
	for _, r := range fencing.HeldReplicas(topics) {
		if t.strays == nil {
			t.strays = map[cluster.PartitionID]fencing.HeldReplica{}
		}
		t.strays[r.Partition] = r
	}
}

// reported takes in what a broker says on its own.
func (p *Pusher) reported(now time.Duration, t *target, r *pb.ReplicaReport) {
	for _, x := range fencing.HeldReplicas(r.GetOffline()) {
		p.wentOffline(t, x.Partition, x.LeaderEpoch, storageFailed, now+MaxRetry)
	}
	for _, x := range fencing.HeldReplicas(r.GetRestored()) {
		if t.offline[x.Partition] == nil { // that it failed was never said
			p.wentOffline(t, x.Partition, x.LeaderEpoch, storageFailed, now)
		}
		r := t.offline[x.Partition]
		r.restored = true
		t.triesOffline.set(x.Partition, r, now)
	}
	p.Stats.Strays += int64(len(fencing.HeldReplicas(r.GetStrays())))
	t.addStrays(r.GetStrays())
	for _, x := range fencing.HeldReplicas(r.GetFormerStrays()) {
		delete(t.strays, x.Partition)
	}
}

// syncedTopics are the ids of the topics of which everything was read: one
// command's worth each. They are made once for all brokers that have heard
// everything at the same time.
func (p *Pusher) syncedTopics(im *cluster.Image) [][][]byte {
	if p.synced.at == p.structure && p.synced.chunks != nil {
		return p.synced.chunks
	}
	p.synced.at = p.structure
	p.synced.chunks = [][][]byte{nil}
	for _, t := range im.SortedTopics() {
		if im.Health(t).Unknown > 0 {
			continue
		}
		last := len(p.synced.chunks) - 1
		if len(p.synced.chunks[last]) == maxSynced {
			p.synced.chunks, last = append(p.synced.chunks, nil), last+1
		}
		p.synced.chunks[last] = append(p.synced.chunks[last], t.ID[:])
	}
	return p.synced.chunks
}

// finishSync ends a full sync of a broker that has been told everything there
// is: what it holds besides, of the topics that are named, is stray. Each
// command stands for itself, so what changes between two of them is said first.
func (p *Pusher) finishSync(im *cluster.Image, t *target, out []PushAction) []PushAction {
	chunks := p.syncedTopics(im)
	if t.syncedAt != p.structure {
		t.syncedAt, t.syncedChunks = p.structure, 0
	}
	for t.syncedChunks < len(chunks) && t.unacked < window {
		ids := chunks[t.syncedChunks]
		t.syncedChunks++
		all := t.syncedChunks == len(chunks) && allRead(im)
		if len(ids) > 0 || all {
			out = p.sendSynced(im, t, &pb.FullSync{SinceRevision: int64(t.fullSince), TopicIds: ids, Everything: all}, out)
		}
	}
	if t.syncedChunks == len(chunks) {
		t.fullSince = 0
	}
	return out
}

func (p *Pusher) sendSynced(im *cluster.Image, t *target, fs *pb.FullSync, out []PushAction) []PushAction {
	if fs.Everything {
		t.ghosts = 0
	}
	return p.send(im, t, &pb.Command{Body: &pb.Command_FullSync{FullSync: fs}}, out)
}

// allRead reports whether the image shows every topic and partition there is.
func allRead(im *cluster.Image) bool { return im.HealthOfAll().Unknown == 0 && !im.UnreadableTopics() }

// dispelGhosts has the broker forget what it was not told of, once all there is
// could be read.
func (p *Pusher) dispelGhosts(im *cluster.Image, t *target, out []PushAction) []PushAction {
	if t.ghosts == 0 || t.fullSince != 0 || t.unacked >= window || !allRead(im) {
		return out
	}
	return p.sendSynced(im, t, &pb.FullSync{SinceRevision: int64(t.ghosts), Everything: true}, out)
}
