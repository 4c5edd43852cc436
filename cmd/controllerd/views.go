package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// createdView is the answer to topic create: each topic that was asked for,
// with the error that it met or none.
type createdView struct {
	Topics   []createdTopic `json:"topics"`
	Revision int64          `json:"revision"`
}

type createdTopic struct {
	Name              string `json:"name"`
	TopicID           string `json:"topic_id"`
	Partitions        int32  `json:"partitions"`
	ReplicationFactor int32  `json:"replication_factor"`
	Error             string `json:"error"`
	Message           string `json:"message"`
}

func createdOf(resp *pb.CreateTopicsResponse) *createdView {
	v := &createdView{Topics: []createdTopic{}, Revision: resp.GetRevision()}
	for _, r := range resp.GetResults() {
		v.Topics = append(v.Topics, createdTopic{
			Name: r.GetName(), TopicID: topicID(r.GetTopicId()), Partitions: r.GetPartitions(),
			ReplicationFactor: r.GetReplicationFactor(), Error: r.GetError(), Message: r.GetMessage(),
		})
	}
	return v
}

// table shows what was created; errors are reported apart.
func (v *createdView) table() table {
	t := table{head: []string{"NAME", "PARTITIONS", "REPLICAS", "ID"}}
	for _, c := range v.Topics {
		if c.Error == "" {
			t.rows = append(t.rows, []string{c.Name, str(c.Partitions), str(c.ReplicationFactor), c.TopicID})
		}
	}
	if t.rows == nil {
		return table{}
	}
	return t
}

type topicsView struct {
	Topics   []topicView `json:"topics"`
	Revision int64       `json:"revision"`
}

type topicView struct {
	Name              string `json:"name"`
	TopicID           string `json:"topic_id"`
	Partitions        int32  `json:"partitions"`
	ReplicationFactor int32  `json:"replication_factor"`
	Offline           int32  `json:"offline"`
	UnderReplicated   int32  `json:"under_replicated"`
	Unknown           int32  `json:"unknown"`
}

func topicOf(t *pb.TopicSummary) topicView {
	return topicView{
		Name: t.GetName(), TopicID: topicID(t.GetTopicId()), Partitions: t.GetPartitions(),
		ReplicationFactor: t.GetReplicationFactor(), Offline: t.GetOffline(),
		UnderReplicated: t.GetUnderReplicated(), Unknown: t.GetUnknown(),
	}
}

func (v *topicsView) table() table {
	t := table{head: []string{"NAME", "PARTITIONS", "REPLICAS", "OFFLINE", "UNDER-REPLICATED", "UNKNOWN", "ID"}}
	for _, s := range v.Topics {
		t.rows = append(t.rows, []string{
			s.Name, str(s.Partitions), str(s.ReplicationFactor), str(s.Offline), str(s.UnderReplicated), str(s.Unknown), s.TopicID,
		})
	}
	return t
}

type topicDetailView struct {
	Topic      topicView         `json:"topic"`
	Config     map[string]string `json:"config"`
	Partitions []partitionView   `json:"partitions"`
	Unknown    []int32           `json:"unknown"`
	Revision   int64             `json:"revision"`

	PartitionsWanted int32  `json:"partitions_wanted"`
	Created          string `json:"created"`
	CreateReason     string `json:"create_reason"`
	ConfigReason     string `json:"config_reason"`
	Deleting         bool   `json:"deleting"`
	DeleteReason     string `json:"delete_reason"`
	// FromActive: the active answered, so that what only it knows is there:
	// offline replicas, and live brokers that have yet to confirm theirs.
	FromActive  bool              `json:"from_active"`
	Unconfirmed []unconfirmedView `json:"unconfirmed"`
}

type unconfirmedView struct {
	Broker   int32 `json:"broker"`
	Replicas int32 `json:"replicas"`
}

type partitionView struct {
	Partition       int32   `json:"partition"`
	Leader          int32   `json:"leader"` // -1: none
	LeaderEpoch     int32   `json:"leader_epoch"`
	PartitionEpoch  int32   `json:"partition_epoch"`
	Replicas        []int32 `json:"replicas"`
	ISR             []int32 `json:"isr"`
	Adding          []int32 `json:"adding"`
	Removing        []int32 `json:"removing"`
	Target          []int32 `json:"target"`
	Recovery        string  `json:"recovery"`
	ControllerEpoch int64   `json:"controller_epoch"`
	Cause           string  `json:"cause"`
	Reason          string  `json:"reason"` // that somebody gave
	Changed         string  `json:"changed"`
	DecidedRevision int64   `json:"decided_revision"`
	OfflineReplicas []int32 `json:"offline_replicas"`
}

// topicDetailOf is a topic without its partitions.
func topicDetailOf(page *pb.DescribeTopicResponse) *topicDetailView {
	v := &topicDetailView{
		Topic: topicOf(page.GetTopic()), Config: page.GetConfig(), Revision: page.GetRevision(),
		Partitions: []partitionView{}, Unknown: []int32{}, Unconfirmed: []unconfirmedView{}, FromActive: true,
		PartitionsWanted: page.GetPartitionsWanted(), Created: timeOf(page.GetCreatedMs()), CreateReason: page.GetCreateReason(), ConfigReason: page.GetConfigReason(),
		Deleting: page.GetTopic().GetDeleting(), DeleteReason: page.GetDeleteReason(),
	}
	if v.Config == nil {
		v.Config = map[string]string{}
	}
	return v
}

func partitionOf(p *pb.PartitionRecord) partitionView {
	return partitionView{
		Partition: p.GetPartition(), Leader: p.GetLeader(), LeaderEpoch: p.GetLeaderEpoch(), PartitionEpoch: p.GetPartitionEpoch(),
		Replicas: list(p.GetReplicas()), ISR: list(p.GetIsr()), Adding: list(p.GetAdding()), Removing: list(p.GetRemoving()),
		Target: list(p.GetTarget()), Recovery: enum(p.GetRecovery().String(), "RECOVERY_STATE_"),
		ControllerEpoch: p.GetControllerEpoch(), Cause: enum(p.GetCause().String(), "CHANGE_CAUSE_"),
		Reason: p.GetReason(), Changed: timeOf(p.GetChangedMs()), DecidedRevision: p.GetDecidedRevision(), OfflineReplicas: []int32{},
	}
}

func (v *topicDetailView) table() table {
	t := table{
		title: []string{fmt.Sprintf("Topic %s, id %s, %d partitions, replication factor %d: %d offline, %d under-replicated, %d unknown",
			v.Topic.Name, v.Topic.TopicID, v.Topic.Partitions, v.Topic.ReplicationFactor,
			v.Topic.Offline, v.Topic.UnderReplicated, v.Topic.Unknown)},
		head: []string{"PARTITION", "LEADER", "LE", "PE", "REPLICAS", "ISR", "CAUSE", "SINCE"},
	}
	t.title = append(t.title, v.notes()...)
	unknown := v.Unknown
	for _, p := range v.Partitions {
		for len(unknown) > 0 && unknown[0] < p.Partition {
			t.rows, unknown = append(t.rows, unknownRow(unknown[0])), unknown[1:]
		}
		t.rows = append(t.rows, []string{
			str(p.Partition), leaderName(p.Leader), str(p.LeaderEpoch), str(p.PartitionEpoch), marked(p.Replicas, p.OfflineReplicas), join(p.ISR), because(p.Cause, p.Reason), p.Changed,
		})
	}
	for _, i := range unknown {
		t.rows = append(t.rows, unknownRow(i))
	}
	return t
}

func leaderName(id int32) string {
	if id == int32(cluster.NoLeader) {
		return "none"
	}
	return str(id)
}

// because is why something has changed, with the reason that somebody gave.
func because(cause, reason string) string {
	if reason == "" {
		return cause
	}
	return cause + ": " + reason
}

// notes are lines on what a topic is or lacks, where there is anything to say.
func (v *topicDetailView) notes() []string {
	var out []string
	say := func(so bool, format string, args ...any) {
		if so {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	say(v.CreateReason != "", "Created %s: %s", orDash(v.Created), v.CreateReason)
	say(len(v.Config) > 0, "Settings: %s", because(configText(v.Config), v.ConfigReason))
	say(v.Deleting, "It is being deleted: %s", orDash(v.DeleteReason))
	say(v.PartitionsWanted > v.Topic.Partitions, "It wants %d partitions", v.PartitionsWanted)
	for _, u := range v.Unconfirmed {
		say(true, "Broker %d has yet to confirm %d replicas", u.Broker, u.Replicas)
	}
	return out
}

// addUnconfirmed adds who has yet to confirm replicas of one more page.
func (v *topicDetailView) addUnconfirmed(page *pb.DescribeTopicResponse) {
	v.FromActive = v.FromActive && page.GetFromActive()
	for _, u := range page.GetUnconfirmed() {
		i, found := slices.BinarySearchFunc(v.Unconfirmed, u.GetBrokerId(), func(x unconfirmedView, id int32) int { return int(x.Broker - id) })
		if !found {
			v.Unconfirmed = slices.Insert(v.Unconfirmed, i, unconfirmedView{Broker: u.GetBrokerId()})
		}
		v.Unconfirmed[i].Replicas += u.GetReplicas()
	}
}

// unknownRow is a partition whose record is missing or unreadable.
func unknownRow(index int32) []string {
	return []string{str(index), "unknown", "", "", "", "", "", ""}
}

// topicID is a topic id as Kafka writes it; empty if there is none.
func topicID(b []byte) string {
	id, err := cluster.TopicIDFrom(b)
	if err != nil {
		return ""
	}
	return id.String()
}

// enum is the name of a protobuf enum's value as people read it.
func enum(name, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(name, prefix))
}

// timeOf is a time in UTC by RFC 3339, empty if it is not known or out of what
// that can express: clocks of other hosts may say anything.
func timeOf(ms int64) string {
	t := time.UnixMilli(ms).UTC()
	if ms == 0 || t.Year() < 0 || t.Year() > 9999 {
		return ""
	}
	return t.Format("2006-01-02T15:04:05.000Z07:00")
}

// span is the time between two times, in milliseconds, never negative.
func span(fromMs, toMs int64) int64 {
	if toMs <= fromMs {
		return 0
	}
	return int64(min(uint64(toMs)-uint64(fromMs), math.MaxInt64))
}

// list is never null in JSON.
func list(ids []int32) []int32 { return append([]int32{}, ids...) }

func join(ids []int32) string {
	s := make([]string, len(ids))
	for i, id := range ids {
		s[i] = str(id)
	}
	return strings.Join(s, ",")
}

// marked are replicas with a mark at those that are offline.
func marked(replicas, offline []int32) string {
	s := make([]string, len(replicas))
	for i, id := range replicas {
		if s[i] = str(id); slices.Contains(offline, id) {
			s[i] += "!"
		}
	}
	return strings.Join(s, ",")
}

// known is a number, empty if it is not known.
func known(n *int32) string {
	if n == nil {
		return ""
	}
	return str(*n)
}

func str[T int32 | int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// markOffline notes which replicas are offline, of partitions that were added
// last.
func (v *topicDetailView) markOffline(offline []*pb.OfflineReplicas) {
	for _, o := range offline {
		i, ok := slices.BinarySearchFunc(v.Partitions, o.GetPartition(), func(p partitionView, index int32) int { return int(p.Partition) - int(index) })
		if ok {
			v.Partitions[i].OfflineReplicas = list(o.GetBrokers())
		}
	}
}
