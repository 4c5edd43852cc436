package fencing

import (
	"fmt"
	"maps"
	"slices"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/unfenced"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// Gate decides which commands a broker obeys. It belongs to one process of one
// broker and lives through all of its registrations: what the process holds in
// memory stays what it is when the broker epoch changes.
type Gate struct {
	broker          cluster.BrokerID
	uuid            string              // of the cluster; "" until known
	brokerEpoch     cluster.BrokerEpoch // 0 until known
	controllerEpoch cluster.Epoch       // the highest seen; never falls
	heard           store.Rev           // the highest revision heard of

	topics   map[string]binding // by name: what is hosted under it
	hosted   map[cluster.PartitionID]*held
	live     []LiveBroker
	settings map[string]string // of the whole cluster
	configs  map[cluster.TopicID]*configured
	metadata map[cluster.PartitionID]*heard
	resume   *pb.ResumePoint // nil: everything has to be said again
	digests  struct{ hosted, metadata cluster.Digest }
	removed  map[cluster.TopicID]bool            // deleted in this incarnation
	found    map[cluster.PartitionID]HeldReplica // on the disks, not named by a command yet
	offline  map[cluster.PartitionID]HeldReplica // their storage has failed
	strays   map[cluster.PartitionID]struct{}    // of hosted: every hello names them, and hosted may be a million
	counts   Counts                              // but what can be read elsewhere
	assigned []HeldReplica                       // strays that the command at hand is about

	open unfenced.Switch
}

// binding is the topic id that a name stands for as long as there are replicas.
type binding struct {
	id       cluster.TopicID
	replicas int
}

// held is the newest state admitted of a hosted partition, or of one that was
// stopped in this incarnation: a command that was sent before must not bring it
// back.
type held struct {
	state  PartitionState
	failed bool // the handler for its leader epoch failed: it may be tried again
	exists bool // it is known to be on the disks
	stray  bool // stopped, because a full sync did not name it
	// named is the revision of the newest command that named it; of a stray,
	// that of the sync that did not.
	named store.Rev
}

// heard is the newest metadata of a partition.
type heard struct {
	state PartitionState
	named store.Rev // when the newest command that named it was made
}

// NewGate makes the gate of a broker. The cluster's uuid is empty if the broker
// takes it from its first registration.
func NewGate(id cluster.BrokerID, clusterUUID string) *Gate {
	return &Gate{
		broker:   id,
		uuid:     clusterUUID,
		topics:   map[string]binding{},
		configs:  map[cluster.TopicID]*configured{},
		hosted:   map[cluster.PartitionID]*held{},
		strays:   map[cluster.PartitionID]struct{}{},
		metadata: map[cluster.PartitionID]*heard{},
		removed:  map[cluster.TopicID]bool{},
		found:    map[cluster.PartitionID]HeldReplica{},
		offline:  map[cluster.PartitionID]HeldReplica{},
	}
}

// TakeOut makes the gate admit everything, whatever its epochs. Tests of this
// module use it to show that they would notice; see package unfenced.
func (g *Gate) TakeOut(s unfenced.Switch) { g.open = s }

// Admit decides about one command. A refused command changes nothing.
func (g *Gate) Admit(cmd *pb.Command) Verdict {
	stamp := cmd.GetStamp()
	if refusal := g.refusal(stamp); refusal != pb.Refusal_REFUSAL_UNSPECIFIED && !g.open.IsOpen() {
		return Verdict{Refusal: refusal, ControllerEpoch: g.controllerEpoch}
	}
	g.Adopt(cluster.Epoch(stamp.GetControllerEpoch()))
	v := Verdict{ControllerEpoch: g.controllerEpoch}
	g.assigned = nil
	made := store.Rev(stamp.GetRevision())
	g.heard = max(g.heard, made)
	switch body := cmd.GetBody().(type) {
	case *pb.Command_LeaderAndIsr:
		v.Decisions = decideEach(body.LeaderAndIsr.GetTopics(), stateOf, func(s *PartitionState) Action { return g.admitReplica(s, made) })
	case *pb.Command_StopReplica:
		v.Decisions = decideEach(body.StopReplica.GetTopics(), stopOf, g.admitStop)
	case *pb.Command_UpdateMetadata:
		v.Decisions = decideEach(body.UpdateMetadata.GetTopics(), stateOf, func(s *PartitionState) Action { return g.admitMetadata(s, made) })
		v.Removed = g.remove(body.UpdateMetadata.GetRemovedTopics())
		v.Configs = g.configure(body.UpdateMetadata.GetTopicConfigs(), made)
		if live := body.UpdateMetadata.GetLiveBrokers(); live != nil {
			g.live, g.settings = liveOf(live), body.UpdateMetadata.GetSettings()
			v.Live, v.Settings = g.live, g.settings
		}
	}
	v.Assigned = g.assigned
	return v
}

// refusal is the part of the decision that concerns the whole command. The
// order matters: a command for somebody else must not raise our epoch.
func (g *Gate) refusal(stamp *pb.Stamp) pb.Refusal {
	be, ce := cluster.BrokerEpoch(stamp.GetBrokerEpoch()), cluster.Epoch(stamp.GetControllerEpoch())
	switch {
	case g.uuid != "" && stamp.GetClusterUuid() != g.uuid:
		return pb.Refusal_REFUSAL_INCONSISTENT_CLUSTER_ID
	case cluster.BrokerID(stamp.GetBrokerId()) != g.broker:
		return pb.Refusal_REFUSAL_WRONG_BROKER
	case g.brokerEpoch == 0 || be > g.brokerEpoch:
		// The answer to our registration is still on its way.
		return pb.Refusal_REFUSAL_UNAVAILABLE
	case be < g.brokerEpoch:
		return pb.Refusal_REFUSAL_STALE_BROKER_EPOCH
	case ce < max(g.controllerEpoch, 1):
		return pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH
	}
	return pb.Refusal_REFUSAL_UNSPECIFIED
}

// ofTopic is the part of a command that is about one topic, with what it says
// of each partition.
type ofTopic[P any] interface {
	GetTopicId() []byte
	GetTopic() string
	GetPartitions() []P
}

func decideEach[T ofTopic[P], P any](topics []T, read func(string, cluster.TopicID, P) PartitionState, decide func(*PartitionState) Action) []Decision {
	n := 0
	for _, t := range topics {
		n += len(t.GetPartitions())
	}
	decisions := make([]Decision, 0, n)
	for _, t := range topics {
		id, err := cluster.TopicIDFrom(t.GetTopicId())
		for _, p := range t.GetPartitions() {
			d := Decision{State: read(t.GetTopic(), id, p), Action: Inconsistent}
			if err == nil {
				d.Action = decide(&d.State)
			}
			decisions = append(decisions, d)
		}
	}
	return decisions
}

// admitReplica decides about a partition that this broker hosts, as a command
// says that was made from that revision.
func (g *Gate) admitReplica(s *PartitionState, made store.Rev) Action {
	h := g.hosted[s.Partition]
	if h != nil && h.state.Stop && h.outlives(s, made) && !g.open.IsOpen() {
		return Already
	}
	if b, ok := g.topics[s.Topic]; ok && b.id != s.Partition.Topic {
		return Inconsistent
	}
	if h != nil && h.state.IsNew && !h.exists {
		s.IsNew = true // nobody has made it since it was said to be new
	}
	defer func() { g.hosted[s.Partition].named = max(g.hosted[s.Partition].named, made) }()
	switch {
	case h == nil || h.state.Stop:
		g.topics[s.Topic] = binding{s.Partition.Topic, g.topics[s.Topic].replicas + 1}
		g.hold(s)
		return Admitted
	case g.open.IsOpen(), s.LeaderEpoch > h.state.LeaderEpoch, h.failed && s.Compare(&h.state) >= 0:
		g.hold(s)
		return Admitted
	case s.Compare(&h.state) > 0:
		g.hold(s)
		return IsrAdopted
	}
	return Already
}

// outlives reports whether what stopped a replica is newer than a state: by
// leader epoch or, of a stray, by the revision of the sync, since whoever
// assigns it again need not elect.
func (h *held) outlives(s *PartitionState, made store.Rev) bool {
	if h.stray {
		return made < h.named
	}
	return s.Compare(&h.state) < 0
}

// hold makes a state that of a hosted partition, or of one that is hosted no
// more.
func (g *Gate) hold(s *PartitionState) {
	now := &held{state: *s, exists: g.Exists(s.Partition)}
	var old *PartitionState // as long as it was hosted
	if h := g.hosted[s.Partition]; h != nil {
		now.named = h.named
		if h.stray {
			g.assigned = append(g.assigned, g.held(s.Partition))
		}
		if !h.state.Stop {
			g.digests.hosted.Remove(s.Partition, h.state.LeaderEpoch, h.state.PartitionEpoch)
			old = &h.state
		}
	}
	g.hosted[s.Partition] = now
	delete(g.found, s.Partition)
	delete(g.strays, s.Partition)
	if s.Stop {
		delete(g.offline, s.Partition)
		g.count(old, nil)
	} else {
		g.digests.hosted.Add(s.Partition, s.LeaderEpoch, s.PartitionEpoch)
		g.count(old, s)
	}
}

// admitStop decides about a partition that this broker hosts no more. Of one
// that it never heard of there may be data that an earlier process has left.
func (g *Gate) admitStop(s *PartitionState) Action {
	h := g.hosted[s.Partition]
	switch {
	case h == nil && !s.Delete:
		return Already
	case h == nil && s.LeaderEpoch < g.held(s.Partition).LeaderEpoch:
		return Fenced
	case h == nil:
		g.hold(s)
		return Admitted
	case h.failed && s.Compare(&h.state) >= 0, s.Compare(&h.state) > 0, g.open.IsOpen():
		g.unbindHosted(s.Partition)
		g.hold(s)
		return Admitted
	case !h.state.Stop || h.stray && s.Delete:
		return Fenced
	}
	return Already
}

// unbindHosted frees the name of a topic with its last replica.
func (g *Gate) unbindHosted(id cluster.PartitionID) {
	h := g.hosted[id]
	if h == nil || h.state.Stop {
		return
	}
	b, ok := g.topics[h.state.Topic]
	if !ok || b.id != id.Topic {
		return
	}
	if b.replicas--; b.replicas == 0 {
		delete(g.topics, h.state.Topic)
		return
	}
	g.topics[h.state.Topic] = b
}

// remove forgets the metadata of deleted topics, and returns those that it had
// not heard of.
func (g *Gate) remove(topics []*pb.RemovedTopic) []RemovedTopic {
	var out []RemovedTopic
	for _, t := range topics {
		id, err := cluster.TopicIDFrom(t.GetTopicId())
		if err != nil || g.removed[id] {
			continue
		}
		g.removed[id] = true
		delete(g.configs, id)
		for i := range min(t.GetPartitions(), cluster.MaxPartitions) {
			g.forgetMetadata(cluster.PartitionID{Topic: id, Index: i})
		}
		out = append(out, RemovedTopic{ID: id, Name: t.GetTopic(), Partitions: t.GetPartitions()})
	}
	return out
}

func (g *Gate) forgetMetadata(id cluster.PartitionID) {
	if known := g.metadata[id]; known != nil {
		g.digests.metadata.Remove(id, known.state.LeaderEpoch, known.state.PartitionEpoch)
		delete(g.metadata, id)
	}
}

// admitMetadata decides about a partition anywhere in the cluster.
func (g *Gate) admitMetadata(s *PartitionState, made store.Rev) Action {
	known := g.metadata[s.Partition]
	if known != nil {
		known.named = max(known.named, made)
	}
	if (g.removed[s.Partition.Topic] || known != nil && s.Compare(&known.state) <= 0) && !g.open.IsOpen() {
		return Already
	}
	if known != nil {
		g.digests.metadata.Remove(s.Partition, known.state.LeaderEpoch, known.state.PartitionEpoch)
	} else {
		known = &heard{}
		g.metadata[s.Partition] = known
	}
	g.digests.metadata.Add(s.Partition, s.LeaderEpoch, s.PartitionEpoch)
	known.state, known.named = *s, made
	return Admitted
}

// Failed says that the handler for a leader epoch of a partition failed. If
// nothing newer was admitted since, the next command with this leader epoch is
// admitted again, instead of being answered with Already; a lower one is not.
// No stream can go on as if the state had been applied.
func (g *Gate) Failed(p cluster.PartitionID, le cluster.LeaderEpoch) {
	g.resume = nil
	if h := g.hosted[p]; h != nil && h.state.LeaderEpoch == le {
		h.failed = true
	}
}

// Committed takes in the ISR that AlterPartition was answered with, as a
// command with the same epochs would, and reports whether it is newer than
// what is held. A state with another leader epoch is left to the command that
// brings it, because a handler must run for it.
func (g *Gate) Committed(p cluster.PartitionID, r *pb.PartitionRecord) (PartitionState, bool) {
	h := g.hosted[p]
	if h == nil || h.failed || h.state.Stop ||
		cluster.LeaderEpoch(r.GetLeaderEpoch()) != h.state.LeaderEpoch ||
		cluster.PartitionEpoch(r.GetPartitionEpoch()) <= h.state.PartitionEpoch {
		return PartitionState{}, false
	}
	g.hold(&PartitionState{
		Topic:           h.state.Topic,
		Partition:       p,
		Leader:          cluster.BrokerID(r.GetLeader()),
		ISR:             cluster.BrokerIDs(r.GetIsr()),
		Replicas:        cluster.BrokerIDs(r.GetReplicas()),
		Adding:          cluster.BrokerIDs(r.GetAdding()),
		Removing:        cluster.BrokerIDs(r.GetRemoving()),
		LeaderEpoch:     h.state.LeaderEpoch,
		PartitionEpoch:  cluster.PartitionEpoch(r.GetPartitionEpoch()),
		ControllerEpoch: cluster.Epoch(r.GetControllerEpoch()),
		Recovery:        r.GetRecovery(),
	})
	return g.hosted[p].state, true
}

// Adopt takes in a controller epoch heard of outside of commands: in the
// answer to a registration or a renewal. One that is not higher is ignored.
func (g *Gate) Adopt(ce cluster.Epoch) { g.controllerEpoch = max(g.controllerEpoch, ce) }

// Registered begins a new incarnation of the broker. It fails, and changes
// nothing, if the cluster is not the one that the broker belongs to.
func (g *Gate) Registered(clusterUUID string, be cluster.BrokerEpoch) error {
	if g.uuid != "" && clusterUUID != g.uuid {
		return fmt.Errorf("register in cluster %s: the broker belongs to cluster %s", clusterUUID, g.uuid)
	}
	if be != g.brokerEpoch {
		g.forgetStopped()
	}
	g.uuid, g.brokerEpoch = clusterUUID, be
	g.heard = max(g.heard, store.Rev(be))
	return nil
}

// forgetStopped forgets what was stopped: what was sent before is for an older
// incarnation, and refused for that. What is still on the disks is found there,
// and strays stay what they are.
func (g *Gate) forgetStopped() {
	for id, h := range g.hosted {
		if !h.state.Stop || h.stray {
			continue
		}
		if h.exists && !h.state.Delete {
			g.found[id] = g.held(id)
		}
		delete(g.hosted, id)
	}
	clear(g.removed)
}

// Hello is what the broker says first on a stream of commands.
func (g *Gate) Hello() *pb.Hello {
	hello := g.Identity()
	hello.Resume = g.resume
	hello.Offline = WireReplicas(slices.Collect(maps.Values(g.offline)))
	hello.Strays = WireReplicas(g.Strays())
	return hello
}

// Identity is who the broker is and which controller it heard of.
func (g *Gate) Identity() *pb.Hello {
	return &pb.Hello{
		ClusterUuid:     g.uuid,
		BrokerId:        int32(g.broker),
		BrokerEpoch:     int64(g.brokerEpoch),
		ControllerEpoch: int64(g.controllerEpoch),
	}
}

// ClusterUUID is the cluster that the broker belongs to, "" until known.
func (g *Gate) ClusterUUID() string { return g.uuid }

// BrokerEpoch is the broker's own epoch, 0 until known.
func (g *Gate) BrokerEpoch() cluster.BrokerEpoch { return g.brokerEpoch }

// ControllerEpoch is the highest controller epoch seen.
func (g *Gate) ControllerEpoch() cluster.Epoch { return g.controllerEpoch }

// Replica is the newest state admitted of a partition that is hosted here.
func (g *Gate) Replica(p cluster.PartitionID) (PartitionState, bool) {
	h := g.hosted[p]
	if h == nil || h.state.Stop {
		return PartitionState{}, false
	}
	return h.state, true
}

// Replicas are the partitions hosted here, in order.
func (g *Gate) Replicas() []cluster.PartitionID {
	ids := make([]cluster.PartitionID, 0, len(g.hosted))
	for id, h := range g.hosted {
		if !h.state.Stop {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, cluster.PartitionID.Compare)
	return ids
}

// Metadata is the newest state heard of any partition.
func (g *Gate) Metadata(p cluster.PartitionID) (PartitionState, bool) {
	s := g.metadata[p]
	if s == nil {
		return PartitionState{}, false
	}
	return s.state, true
}

// Live are the live brokers by id. The slice must not be changed.
func (g *Gate) Live() []LiveBroker { return g.live }
