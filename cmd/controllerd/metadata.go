package main

import (
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

func newMetadata() *cobra.Command {
	c := &client{}
	group := newGroup("metadata", "Follow what clients of the brokers have to know", newMetadataWatch(c))
	c.addFlags(group)
	return group
}

func newMetadataWatch(c *client) *cobra.Command {
	w := &metadataWatch{watcher: watcher{client: c}, names: map[string]string{}}
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show live brokers and partitions' leaders, and then what changes",
		Long: `Show live brokers and partitions' leaders, and then what changes, until
interrupted. If the daemon goes away, another one goes on from the same
revision; --timeout says how long to look for one.

A table has one line for each thing that changed; "snapshot" says that everything
follows anew, "revision" that everything up to it was told. JSON has one object a
line, YAML one document, for each answer of the daemon.`,
		Example: `  controllerd metadata watch --topic orders
  controllerd metadata watch --once -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w.out = cmd.OutOrStdout()
			if err := errors.Join(utf8Args(w.topics...), w.validate()); err != nil {
				return err
			}
			return w.run(cmd.Context(), w.take)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&w.topics, "topic", nil, "`name` of a topic to follow; repeat it for more (default: all)")
	f.Int64Var(&w.revision, "revision", 0, "only what changed after this `revision`, if the daemon still knows")
	f.BoolVar(&w.once, "once", false, "end when everything was told once")
	c.completeTopicFlag(cmd, "topic")
	return cmd
}

// metadataWatch shows what a watcher is told.
type metadataWatch struct {
	watcher
	out   io.Writer
	names map[string]string // of topics, by id
}

// take shows one answer.
func (w *metadataWatch) take(resp *pb.WatchMetadataResponse) error {
	if resp.GetSnapshot() {
		clear(w.names)
	}
	v := w.viewOf(resp)
	if w.format == "table" {
		return v.table().write(w.out, false)
	}
	return w.line(w.out, v)
}

// metadataView is one answer of a watch.
type metadataView struct {
	Snapshot bool                `json:"snapshot"`
	Revision int64               `json:"revision"`
	Brokers  []liveView          `json:"brokers"` // null: as before
	Topics   []topicMetadataView `json:"topics"`
	Gone     []goneView          `json:"gone"`
}

type liveView struct {
	ID          int32             `json:"id"`
	BrokerEpoch int64             `json:"broker_epoch"`
	Rack        string            `json:"rack"`
	Endpoints   map[string]string `json:"endpoints"`
}

type goneView struct {
	Name    string `json:"name"` // empty: not heard of before
	TopicID string `json:"topic_id"`
}

type topicMetadataView struct {
	Name           string                  `json:"name"`
	TopicID        string                  `json:"topic_id"`
	PartitionCount int32                   `json:"partition_count"`
	Partitions     []partitionMetadataView `json:"partitions"`
	Unknown        []int32                 `json:"unknown"`
}

type partitionMetadataView struct {
	Partition      int32   `json:"partition"`
	Leader         int32   `json:"leader"`
	LeaderEpoch    int32   `json:"leader_epoch"`
	PartitionEpoch int32   `json:"partition_epoch"`
	ISR            []int32 `json:"isr"`
	Replicas       []int32 `json:"replicas"`
}

func (w *metadataWatch) viewOf(resp *pb.WatchMetadataResponse) *metadataView {
	v := &metadataView{
		Snapshot: resp.GetSnapshot(), Revision: resp.GetRevision(), Topics: []topicMetadataView{}, Gone: []goneView{},
	}
	if live := resp.GetLiveBrokers(); live != nil {
		v.Brokers = []liveView{}
		for _, b := range live.GetBrokers() {
			l := liveView{ID: b.GetId(), BrokerEpoch: b.GetBrokerEpoch(), Rack: b.GetRack(), Endpoints: map[string]string{}}
			for _, e := range b.GetEndpoints() {
				l.Endpoints[e.GetListener()] = e.GetAddress()
			}
			v.Brokers = append(v.Brokers, l)
		}
	}
	for _, t := range resp.GetTopics() {
		w.names[string(t.GetTopicId())] = t.GetTopic()
		m := topicMetadataView{
			Name: t.GetTopic(), TopicID: topicID(t.GetTopicId()), PartitionCount: t.GetPartitionCount(),
			Partitions: []partitionMetadataView{}, Unknown: list(t.GetUnknown()),
		}
		for _, p := range t.GetPartitions() {
			m.Partitions = append(m.Partitions, partitionMetadataView{
				Partition: p.GetPartition(), Leader: p.GetLeader(), LeaderEpoch: p.GetLeaderEpoch(), PartitionEpoch: p.GetPartitionEpoch(),
				ISR: list(p.GetIsr()), Replicas: list(p.GetReplicas()),
			})
		}
		v.Topics = append(v.Topics, m)
	}
	for _, id := range resp.GetGone() {
		if name := w.names[string(id)]; name != "" || len(w.topics) == 0 {
			v.Gone = append(v.Gone, goneView{name, topicID(id)})
		}
		delete(w.names, string(id))
	}
	return v
}

// table has one row for each thing that changed.
func (v *metadataView) table() table {
	var t table
	row := func(cells ...string) { t.rows = append(t.rows, cells) }
	if v.Snapshot {
		row("snapshot")
	}
	if v.Brokers != nil {
		var ids []int32
		for _, b := range v.Brokers {
			ids = append(ids, b.ID)
		}
		row("brokers", join(ids))
	}
	for _, m := range v.Topics {
		if len(m.Partitions)+len(m.Unknown) == 0 {
			row("topic", m.Name, str(m.PartitionCount)+" partitions")
		}
		for _, p := range m.Partitions {
			row("partition", m.Name+"/"+str(p.Partition), "leader "+str(p.Leader), "LE "+str(p.LeaderEpoch), "PE "+str(p.PartitionEpoch),
				"ISR "+join(p.ISR), "replicas "+join(p.Replicas))
		}
		for _, i := range m.Unknown {
			row("partition", m.Name+"/"+str(i), "unknown")
		}
	}
	for _, g := range v.Gone {
		row("gone", strings.TrimSpace(g.Name+" "+g.TopicID))
	}
	if v.Revision != 0 {
		row("revision", str(v.Revision))
	}
	return t
}
