package cluster

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// BrokerID names a broker, 0 and above. NoLeader stands for none.
type BrokerID int32

// NoLeader is the leader of a partition that has none.
const NoLeader BrokerID = -1

// BrokerEpoch is the create revision of a broker's key: it names one
// incarnation. 0: not known.
type BrokerEpoch int64

// Epoch is a controller epoch, 1 and above. 0: none yet.
type Epoch int64

// MaxEpoch bounds epochs: a key that names it or a higher one is garbage, and
// nobody mints it.
const MaxEpoch Epoch = 1 << 62

// LeaderEpoch counts the leader elections of a partition, from 0.
type LeaderEpoch int32

// PartitionEpoch counts the writes of a partition's record, from 0.
type PartitionEpoch int32

// TopicID names one creation of a topic: a name that is deleted and created
// again gets another.
type TopicID [16]byte

// String is the id as Kafka writes it, 22 characters of URL-safe base64.
func (t TopicID) String() string { return base64.RawURLEncoding.EncodeToString(t[:]) }

// Hex is the id as it stands in keys.
func (t TopicID) Hex() string { return hex.EncodeToString(t[:]) }

// ParseTopicID reads an id as String writes it.
func ParseTopicID(s string) (TopicID, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != 16 {
		return TopicID{}, fmt.Errorf("topic id %q: want 22 characters of URL-safe base64", s)
	}
	return TopicID(b), nil
}

// TopicIDFrom takes the 16 bytes of a topic id from the wire.
func TopicIDFrom(b []byte) (TopicID, error) {
	if len(b) != 16 {
		return TopicID{}, fmt.Errorf("read topic id: %d bytes instead of 16", len(b))
	}
	return TopicID(b), nil
}

// PartitionID names a partition.
type PartitionID struct {
	Topic TopicID
	Index int32
}

func (p PartitionID) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.Index) }

// Compare orders partitions by topic id, then index.
func (p PartitionID) Compare(q PartitionID) int {
	if c := strings.Compare(string(p.Topic[:]), string(q.Topic[:])); c != 0 {
		return c
	}
	return int(p.Index) - int(q.Index)
}

var clusterName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// ValidateName reports what is wrong with a cluster's name.
func ValidateName(name string) error {
	if !clusterName.MatchString(name) {
		return fmt.Errorf("cluster name %q: want 1 to 63 of a-z, 0-9 and -, not starting with -", name)
	}
	return nil
}

var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)

// ValidateTopicName reports what is wrong with a topic's name by Kafka's rule:
// 1 to 249 of letters, digits, '.', '_' and '-', and not "." or "..".
func ValidateTopicName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("topic name is empty")
	case name == "." || name == "..":
		return fmt.Errorf("topic name cannot be %q", name)
	case len(name) > 249:
		return fmt.Errorf("topic name is %d characters long, the limit is 249", len(name))
	case !topicName.MatchString(name):
		return fmt.Errorf("topic name %q contains something other than letters, digits, '.', '_' and '-'", name)
	}
	return nil
}
