package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// rewatch is the pause after all daemons were tried in vain.
const rewatch = 200 * time.Millisecond

func newMetadata() *cobra.Command {
	c := &client{}
	group := newGroup("metadata", "Follow what clients of the brokers have to know", newMetadataWatch(c))
	c.addFlags(group)
	return group
}

func newMetadataWatch(c *client) *cobra.Command {
	w := &metadataWatch{client: c, names: map[string]string{}}
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
			return w.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&w.topics, "topic", nil, "`name` of a topic to follow; repeat it for more (default: all)")
	f.Int64Var(&w.revision, "revision", 0, "only what changed after this `revision`, if the daemon still knows")
	f.BoolVar(&w.once, "once", false, "end when everything was told once")
	return cmd
}

// metadataWatch follows the metadata from daemon to daemon.
type metadataWatch struct {
	*client
	out      io.Writer
	topics   []string
	revision int64
	once     bool

	cluster string
	names   map[string]string // of topics, by id
}

// errTold ends a watch that was to end when everything was told.
var errTold = errors.New("everything was told")

// run returns when it is interrupted, told everything if that is enough, or
// when no daemon was found in time.
func (w *metadataWatch) run(ctx context.Context) error {
	for deadline := time.Now().Add(w.timeout); ; {
		var faults []error
		for _, server := range w.servers {
			answered, err := w.follow(ctx, server)
			switch {
			case errors.Is(err, errTold):
				return nil
			case ctx.Err() != nil && w.once:
				return errInterrupted
			case ctx.Err() != nil:
				return nil // how it is meant to end
			case !answered && !elsewhere(err, repeatable) && !w.behind(err):
				return err
			}
			if answered {
				deadline, faults = time.Now().Add(w.timeout), nil
			}
			faults = append(faults, err)
		}
		if time.Until(deadline) < rewatch {
			return errors.Join(faults...)
		}
		select {
		case <-ctx.Done():
		case <-time.After(rewatch):
		}
	}
}

// behind reports whether the daemon has not seen what another one told us.
func (w *metadataWatch) behind(err error) bool {
	var refused refusal
	return errors.As(err, &refused) && rpc.ReasonOf(refused.status.Err()) == cluster.RequestTimedOut
}

// follow shows what one daemon tells, until that ends, and reports whether it
// told anything.
func (w *metadataWatch) follow(ctx context.Context, server string) (answered bool, err error) {
	limited, cancel := context.WithTimeout(ctx, w.timeout/time.Duration(len(w.servers)))
	defer cancel()
	conn, err := connect(limited, server)
	if err != nil {
		return false, unreachable{server, err}
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel = context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewMetadataServiceClient(conn).WatchMetadata(ctx, &pb.WatchMetadataRequest{
		ClusterUuid: w.cluster, Revision: w.revision, Topics: w.topics,
	})
	for err == nil {
		var resp *pb.WatchMetadataResponse
		if resp, err = stream.Recv(); err != nil {
			break
		}
		answered = true
		if err := w.take(resp); err != nil {
			return true, err
		}
	}
	return answered, refusal{server, status.Convert(err)}
}

// take shows one answer and keeps what a later watch has to name.
func (w *metadataWatch) take(resp *pb.WatchMetadataResponse) error {
	if resp.GetClusterUuid() != "" {
		w.cluster = resp.GetClusterUuid()
	}
	if resp.GetSnapshot() {
		w.revision = 0
		clear(w.names)
	}
	v := w.viewOf(resp)
	if err := w.line(v); err != nil {
		return err
	}
	if resp.GetRevision() == 0 {
		return nil
	}
	w.revision = resp.GetRevision()
	if w.once {
		return errTold
	}
	return nil
}

func (w *metadataWatch) line(v *metadataView) error {
	switch w.format {
	case "json":
		return writeJSONLine(w.out, v)
	case "yaml":
		if _, err := fmt.Fprintln(w.out, "---"); err != nil {
			return err
		}
		return writeYAML(w.out, v)
	}
	return v.table().write(w.out, false)
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
