package main

import (
	"context"

	"github.com/spf13/cobra"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// showTombstones lists deleted topics of which brokers may still hold replicas.
func showTombstones(cmd *cobra.Command, c *client) error {
	v, err := ask(cmd.Context(), c, repeatable, listTombstones)
	if err != nil {
		return err
	}
	return c.show(cmd.OutOrStdout(), v)
}

// listTombstones fetches all pages.
func listTombstones(ctx context.Context, admin pb.AdminServiceClient) (*tombstonesView, error) {
	v := &tombstonesView{Topics: []tombstoneView{}}
	for req := (&pb.ListTombstonesRequest{}); ; {
		page, err := admin.ListTombstones(ctx, req)
		if err != nil {
			return nil, err
		}
		if req.PageToken == "" {
			v.Revision = page.GetRevision()
		}
		for _, t := range page.GetTombstones() {
			v.Topics = append(v.Topics, tombstoneView{
				Name: t.GetTopic(), TopicID: topicID(t.GetTopicId()), Partitions: t.GetPartitions(), Brokers: list(t.GetBrokers()),
				Deleted: timeOf(t.GetDeletedMs()), ControllerEpoch: t.GetControllerEpoch(), Reason: t.GetReason(),
			})
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return v, nil
		}
	}
}

// tombstonesView are deleted topics.
type tombstonesView struct {
	Topics   []tombstoneView `json:"deleted_topics"`
	Revision int64           `json:"revision"`
}

type tombstoneView struct {
	Name            string  `json:"name"`
	TopicID         string  `json:"topic_id"`
	Partitions      int32   `json:"partitions"`
	Brokers         []int32 `json:"brokers"` // that may still hold replicas
	Deleted         string  `json:"deleted"`
	ControllerEpoch int64   `json:"controller_epoch"`
	Reason          string  `json:"reason"`
}

func (v *tombstonesView) table() table {
	t := table{head: []string{"NAME", "PARTITIONS", "BROKERS", "DELETED", "EPOCH", "ID", "REASON"}}
	for _, d := range v.Topics {
		t.rows = append(t.rows, []string{d.Name, str(d.Partitions), join(d.Brokers), d.Deleted, str(d.ControllerEpoch), d.TopicID, d.Reason})
	}
	return t
}
