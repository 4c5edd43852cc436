package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// Image is the cluster at one revision, built from a watch. It is not safe for
// concurrent use. What it returns must not be changed.
type Image struct {
	Keys Keys
	Rev  store.Rev // 0: nothing seen yet
	// Horizon is the revision of the last list: what changed before is known,
	// but not when.
	Horizon store.Rev

	Cluster    *pb.ClusterRecord  // nil: missing or unreadable
	Controller *Controller        // nil: nobody holds the seat
	Epoch      Epoch              // of the epoch key; 0: missing or unreadable
	EpochRev   store.Rev          // its mod revision, also if it is unreadable
	Recovery   *pb.RecoveryRecord // one that is not finished; empty if it is unreadable; nil: none

	Candidates map[store.LeaseID]*Candidate
	Terms      map[Epoch]*Term
	Brokers    map[BrokerID]*Broker
	Nodes      map[BrokerID]*Node
	Topics     map[string]*Topic
	Tombstones map[TopicID]*Tombstone
	Settings   *Settings // never nil
	Faults     map[string]Fault

	// Rewound names what proves that the store has lost writes that the image
	// holds, as one that was restored from a snapshot has; empty: nothing does.
	// Such an image is of a history that is no more, and stays so.
	Rewound string

	applying store.Rev // of the change that is being applied
	maxEpoch Epoch     // the highest seen in any key, ever
	keys     map[string]keyRevs
	marks    uint32 // comparisons so far
	byID     map[TopicID]*topicBlocks
	suspects map[TopicID]struct{} // that may have hidden blocks
	hosted   hostIndex
	counts   counts
	walks    []walk // what a change of a topic has yet to do
}

type keyRevs struct {
	create, mod store.Rev
	mark        uint32 // the last comparison that has met it
}

// topicBlocks are the blocks under one topic id, visible or not.
type topicBlocks struct {
	topic  *Topic // nil: no record names the id
	blocks map[int32]*Block
	above  int64 // is above the index of every block that was ever there
	seen   int32 // the most partitions that the record has counted before
}

// NewImage is the image of a cluster of which nothing was seen yet.
func NewImage(keys Keys) *Image {
	return &Image{
		Keys:       keys,
		Candidates: map[store.LeaseID]*Candidate{},
		Terms:      map[Epoch]*Term{},
		Brokers:    map[BrokerID]*Broker{},
		Nodes:      map[BrokerID]*Node{},
		Topics:     map[string]*Topic{},
		Tombstones: map[TopicID]*Tombstone{},
		Settings:   defaultSettings(),
		Faults:     map[string]Fault{},
		keys:       map[string]keyRevs{},
		byID:       map[TopicID]*topicBlocks{},
		suspects:   map[TopicID]struct{}{},
		hosted:     newHostIndex(),
		counts:     newCounts(),
	}
}

func (im *Image) applyChange(c store.Change, events []Event) []Event {
	key := c.KV.Key
	have, known := im.keys[key]
	switch {
	case c.Deleted && (!known || c.KV.ModRev < have.mod):
		return events
	case !c.Deleted && known && have.mod >= c.KV.ModRev:
		return events
	}
	delete(im.Faults, key)
	if c.Deleted {
		delete(im.keys, key)
	} else {
		im.keys[key] = keyRevs{create: c.KV.CreateRev, mod: c.KV.ModRev}
	}
	p, err := im.Keys.parse(key)
	if err == nil {
		events, err = im.dispatch(p, c, events)
	}
	if err != nil && !c.Deleted {
		im.Faults[key] = Fault{Key: key, ModRev: c.KV.ModRev, Reason: err.Error()}
	}
	return events
}

// dispatch applies a change of a key that has a meaning. An unreadable value is
// applied as if the key were missing, and its error returned.
func (im *Image) dispatch(p parsedKey, c store.Change, events []Event) ([]Event, error) {
	switch p.kind {
	case keyCluster:
		return im.applyCluster(c, events)
	case keyController:
		return im.applyController(c, events)
	case keyEpoch:
		return im.applyEpoch(c, events)
	case keyRecovery:
		r := &pb.RecoveryRecord{}
		err := readRecord(c, r)
		if err != nil {
			r = &pb.RecoveryRecord{}
		}
		im.Recovery = nil
		if !c.Deleted {
			im.Recovery = r
		}
		return append(events, LeaderChanged{}), err
	case keySettings:
		return im.applySettings(c, events)
	case keyCandidate:
		r := &pb.CandidateRecord{}
		err := readRecord(c, r)
		delete(im.Candidates, p.lease)
		if !c.Deleted && err == nil {
			im.Candidates[p.lease] = &Candidate{Record: r, Lease: c.KV.Lease, CreateRev: c.KV.CreateRev}
		}
		return events, err
	case keyTerm:
		r := &pb.TermRecord{}
		err := readRecord(c, r)
		delete(im.Terms, p.epoch)
		if !c.Deleted {
			im.maxEpoch = max(im.maxEpoch, p.epoch)
			if err == nil {
				im.Terms[p.epoch] = &Term{Record: r, ModRev: c.KV.ModRev}
			}
		}
		return events, err
	case keyBroker:
		return im.applyBroker(p.id, c, events)
	case keyNode:
		r := &pb.NodeRecord{}
		err := readRecord(c, r)
		if err == nil && !c.Deleted && r.GetNodeUuid() == "" {
			err = errNoNode
		}
		delete(im.Nodes, p.id)
		if !c.Deleted && err == nil {
			im.Nodes[p.id] = &Node{ID: p.id, ModRev: c.KV.ModRev, Record: r}
		}
		return events, err
	case keyTopic:
		return im.applyTopic(p.name, c, events)
	case keyBlock:
		return im.applyBlock(p.block, c, events)
	case keyTombstone:
		return im.applyTombstone(p.topic, c, events)
	}
	return events, fmt.Errorf("unknown key")
}

// readRecord decodes the value of a put; a delete has none.
func readRecord(c store.Change, into proto.Message) error {
	if c.Deleted {
		return nil
	}
	if len(c.KV.Value) == 0 {
		return fmt.Errorf("empty value")
	}
	return proto.Unmarshal(c.KV.Value, into)
}

func (im *Image) applyCluster(c store.Change, events []Event) ([]Event, error) {
	r := &pb.ClusterRecord{}
	err := readRecord(c, r)
	if err == nil && !c.Deleted && r.GetUuid() == "" {
		err = fmt.Errorf("no uuid")
	}
	im.Cluster = nil
	if !c.Deleted && err == nil {
		im.Cluster = r
	}
	return append(events, LeaderChanged{}), err
}

func (im *Image) applyController(c store.Change, events []Event) ([]Event, error) {
	r := &pb.ControllerRecord{}
	err := readRecord(c, r)
	im.Controller = nil
	if !c.Deleted {
		// An unreadable key still occupies the seat.
		im.Controller = &Controller{Record: r, ModRev: c.KV.ModRev, Lease: c.KV.Lease}
	}
	return append(events, LeaderChanged{}), err
}

func (im *Image) applyEpoch(c store.Change, events []Event) ([]Event, error) {
	im.Epoch, im.EpochRev = 0, 0
	var err error
	if !c.Deleted {
		im.EpochRev = c.KV.ModRev
		im.Epoch, err = decodeEpoch(c.KV)
		im.maxEpoch = max(im.maxEpoch, im.Epoch)
	}
	return append(events, LeaderChanged{}), err
}

func (im *Image) applyBroker(id BrokerID, c store.Change, events []Event) ([]Event, error) {
	old := im.Brokers[id]
	var broker *Broker
	var err error
	if !c.Deleted {
		broker, err = decodeBroker(id, c.KV)
	}
	switch {
	case broker == nil && old == nil:
		return events, err
	case broker == nil:
		delete(im.Brokers, id)
		return append(events, BrokerDown{old}), err
	}
	im.Brokers[id] = broker
	switch {
	case old == nil:
		events = append(events, BrokerUp{broker})
	case old.Epoch != broker.Epoch:
		events = append(events, BrokerRestarted{old, broker})
	default:
		events = append(events, BrokerChanged{old, broker})
	}
	return events, nil
}

// MaxEpoch is the highest controller epoch seen in the epoch key, in the
// history and in any partition record: the next one must be above it.
func (im *Image) MaxEpoch() Epoch { return im.maxEpoch }

// ModRev is the mod revision of a key, 0 if it does not exist.
func (im *Image) ModRev(key string) store.Rev { return im.keys[key].mod }

// CreateRev is the create revision of a key, 0 if it does not exist.
func (im *Image) CreateRev(key string) store.Rev { return im.keys[key].create }

// Reached reports whether the image is as new, for the given keys, as a read
// at rev that found those keys and did not find the missing ones.
func (im *Image) Reached(rev store.Rev, found []store.KV, missing []string) bool {
	for _, kv := range found {
		if im.keys[kv.Key].mod < kv.ModRev && im.Rev < rev {
			return false
		}
	}
	for _, key := range missing {
		if mod := im.keys[key].mod; mod != 0 && mod <= rev && im.Rev < rev {
			return false
		}
	}
	return true
}

// Missed are keys of which the image, though it has reached rev, does not show
// what a read at rev found or did not find. The watch has lost an event, or the
// key was written again since.
func (im *Image) Missed(rev store.Rev, found []store.KV, missing []string) []string {
	if im.Rev < rev {
		return nil
	}
	var out []string
	for _, kv := range found {
		if im.keys[kv.Key].mod < kv.ModRev {
			out = append(out, kv.Key)
		}
	}
	for _, key := range missing {
		if mod := im.keys[key].mod; mod != 0 && mod <= rev {
			out = append(out, key)
		}
	}
	return out
}

// Heal turns a read of the given keys into the batch that brings them up to
// date in an image that has reached the read's revision.
func Heal(keys []string, read store.Snapshot) store.Batch {
	b := store.Batch{Rev: read.Rev}
	found := map[string]bool{}
	for _, kv := range read.KVs {
		found[kv.Key] = true
		b.Changes = append(b.Changes, store.Change{KV: kv})
	}
	for _, key := range keys {
		if !found[key] {
			b.Changes = append(b.Changes, store.Change{KV: store.KV{Key: key, ModRev: read.Rev}, Deleted: true})
		}
	}
	return b
}

// SortedBrokers are the live brokers in order of id.
func (im *Image) SortedBrokers() []*Broker {
	return slices.SortedFunc(maps.Values(im.Brokers), func(a, b *Broker) int { return int(a.ID) - int(b.ID) })
}

// SortedFaults are the unreadable keys in order.
func (im *Image) SortedFaults() []Fault {
	return slices.SortedFunc(maps.Values(im.Faults), func(a, b Fault) int { return strings.Compare(a.Key, b.Key) })
}
