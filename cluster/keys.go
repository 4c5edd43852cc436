package cluster

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/controllerd/controllerd/store"
)

// Keys is the layout of the keys of one cluster.
type Keys struct{ prefix string }

// KeysOf gives the layout for the cluster of that name.
func KeysOf(name string) Keys { return Keys{prefix: "/controllerd/" + name + "/"} }

// Prefix is what all keys of the cluster begin with.
func (k Keys) Prefix() string { return k.prefix }

// Cluster is the key of the cluster's uuid and format.
func (k Keys) Cluster() string { return k.prefix + "cluster" }

// Controller is the key that the active daemon holds.
func (k Keys) Controller() string { return k.prefix + "controller" }

// ControllerEpoch is the key of the controller epoch.
func (k Keys) ControllerEpoch() string { return k.prefix + "controller_epoch" }

// Recovery is the key of a recovery that is not finished.
func (k Keys) Recovery() string { return k.prefix + "recovery" }

// Settings is the key of what holds for the whole cluster.
func (k Keys) Settings() string { return k.prefix + "settings" }

// Candidates is what the keys of all candidates begin with.
func (k Keys) Candidates() string { return k.prefix + "candidates/" }

// Candidate is the key of a daemon that would take the seat: the name that
// etcd's own elections give it.
func (k Keys) Candidate(lease store.LeaseID) string {
	return fmt.Sprintf("%s%x", k.Candidates(), uint64(lease))
}

// Term is the key of the history of one epoch.
func (k Keys) Term(e Epoch) string { return fmt.Sprintf("%sterms/%020d", k.prefix, e) }

// Brokers is what the keys of all live brokers begin with.
func (k Keys) Brokers() string { return k.prefix + "brokers/" }

// Broker is the key of a live broker.
func (k Keys) Broker(id BrokerID) string { return fmt.Sprintf("%sbrokers/%d", k.prefix, id) }

// Node is the key of the node that owns a broker id.
func (k Keys) Node(id BrokerID) string { return fmt.Sprintf("%snodes/%d", k.prefix, id) }

// Topic is the key of a topic's record.
func (k Keys) Topic(name string) string { return k.prefix + "topics/" + name }

// Block is the key of a block of partition records.
func (k Keys) Block(b BlockID) string {
	return fmt.Sprintf("%spartitions/%s/%d", k.prefix, b.Topic.Hex(), b.Index)
}

// Blocks is what the keys of all blocks of a topic begin with.
func (k Keys) Blocks(t TopicID) string { return fmt.Sprintf("%spartitions/%s/", k.prefix, t.Hex()) }

// Tombstone is the key of what is left of a deleted topic.
func (k Keys) Tombstone(t TopicID) string { return k.prefix + "tombstones/" + t.Hex() }

// BlockID names a block: the records of partitions Index*size to
// (Index+1)*size-1 of a topic.
type BlockID struct {
	Topic TopicID
	Index int32
}

type keyKind uint8

const (
	keyUnknown keyKind = iota
	keyCluster
	keyController
	keyEpoch
	keyRecovery
	keySettings
	keyCandidate
	keyTerm
	keyBroker
	keyNode
	keyTopic
	keyBlock
	keyTombstone
)

// parsedKey is what a key of the cluster stands for.
type parsedKey struct {
	kind  keyKind
	name  string        // topic
	id    BrokerID      // broker, node
	epoch Epoch         // term
	lease store.LeaseID // candidate
	block BlockID
	topic TopicID // tombstone
}

// parse reads a key under the prefix. Only the one form that this layout
// writes is accepted, so that no two keys mean the same thing.
func (k Keys) parse(key string) (parsedKey, error) {
	p, ok := k.parseLoosely(key)
	if !ok || k.format(p) != key {
		return parsedKey{}, fmt.Errorf("unknown key")
	}
	return p, nil
}

func (k Keys) parseLoosely(key string) (parsedKey, bool) {
	rest, ok := strings.CutPrefix(key, k.prefix)
	if !ok {
		return parsedKey{}, false
	}
	switch rest {
	case "cluster":
		return parsedKey{kind: keyCluster}, true
	case "controller":
		return parsedKey{kind: keyController}, true
	case "controller_epoch":
		return parsedKey{kind: keyEpoch}, true
	case "recovery":
		return parsedKey{kind: keyRecovery}, true
	case "settings":
		return parsedKey{kind: keySettings}, true
	}
	dir, name, ok := strings.Cut(rest, "/")
	if !ok {
		return parsedKey{}, false
	}
	switch dir {
	case "candidates":
		n, err := strconv.ParseUint(name, 16, 64)
		return parsedKey{kind: keyCandidate, lease: store.LeaseID(n)}, err == nil
	case "terms":
		n, err := strconv.ParseInt(name, 10, 64)
		return parsedKey{kind: keyTerm, epoch: Epoch(n)}, err == nil && n > 0 && Epoch(n) < MaxEpoch
	case "brokers", "nodes":
		n, err := strconv.ParseInt(name, 10, 32)
		kind := keyBroker
		if dir == "nodes" {
			kind = keyNode
		}
		return parsedKey{kind: kind, id: BrokerID(n)}, err == nil && n >= 0
	case "topics":
		return parsedKey{kind: keyTopic, name: name}, ValidateTopicName(name) == nil
	case "partitions":
		return parseBlock(name)
	case "tombstones":
		id, ok := parseTopicID(name)
		return parsedKey{kind: keyTombstone, topic: id}, ok
	}
	return parsedKey{}, false
}

func parseTopicID(name string) (TopicID, bool) {
	raw, err := hex.DecodeString(name)
	if err != nil || len(raw) != 16 {
		return TopicID{}, false
	}
	return TopicID(raw), true
}

func parseBlock(name string) (parsedKey, bool) {
	topic, index, ok := strings.Cut(name, "/")
	id, readable := parseTopicID(topic)
	if !ok || !readable {
		return parsedKey{}, false
	}
	n, err := strconv.ParseInt(index, 10, 32)
	return parsedKey{kind: keyBlock, block: BlockID{Topic: id, Index: int32(n)}}, err == nil && n >= 0 && n < MaxPartitions
}

func (k Keys) format(p parsedKey) string {
	switch p.kind {
	case keyCluster:
		return k.Cluster()
	case keyController:
		return k.Controller()
	case keyEpoch:
		return k.ControllerEpoch()
	case keyRecovery:
		return k.Recovery()
	case keySettings:
		return k.Settings()
	case keyCandidate:
		return k.Candidate(p.lease)
	case keyTerm:
		return k.Term(p.epoch)
	case keyBroker:
		return k.Broker(p.id)
	case keyNode:
		return k.Node(p.id)
	case keyTopic:
		return k.Topic(p.name)
	case keyBlock:
		return k.Block(p.block)
	case keyTombstone:
		return k.Tombstone(p.topic)
	}
	return ""
}
