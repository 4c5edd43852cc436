package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// deletion is how topics are deleted.
type deletion struct {
	assent
	wait     bool
	ifExists bool
	reason   string
}

func newTopicDelete(c *client) *cobra.Command {
	var how deletion
	cmd := &cobra.Command{
		Use:   "delete NAME...",
		Short: "Delete topics and their data, each by itself",
		Long: `Delete topics and their data. A name is free again at once. Live brokers delete
their replicas now; one that is away is told when it returns. With --wait it ends
when every broker has confirmed, also those that are away.

Nothing is deleted if one of them does not exist, unless --if-exists is given. Each name has to be typed again,
unless --yes is given; without a terminal it must be. Each topic is deleted by the
id that it has when the command begins, so no other that gets its name is touched.
Settings may forbid it: delete.topic.enable of the cluster, delete.protection of the
topic.`,
		Example: `  controllerd topic delete orders
  controllerd topic delete orders payments --yes --wait --timeout 1m --reason "moved to the other cluster"`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: c.completeTopics(0),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := errors.Join(utf8Args(append(names, how.reason)...), how.possible(cmd)); err != nil {
				return err
			}
			return deleteTopics(cmd, c, names, &how)
		},
	}
	f := cmd.Flags()
	how.addFlags(f)
	f.BoolVar(&how.ifExists, "if-exists", false, "a topic that does not exist is no error")
	f.StringVar(&how.reason, "reason", "", "why, kept until all brokers have deleted their replicas")
	addWait(f, &how.wait, false, "all brokers have confirmed that they hold nothing any more")
	return cmd
}

func deleteTopics(cmd *cobra.Command, c *client, names []string, how *deletion) error {
	req := &pb.DeleteTopicsRequest{Reason: how.reason}
	for _, name := range names {
		t, err := ask(cmd.Context(), c, repeatable, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.TopicSummary, error) {
			page, err := admin.DescribeTopic(ctx, &pb.DescribeTopicRequest{Name: name, PageSize: 1})
			return page.GetTopic(), err
		})
		var refused refusal
		if how.ifExists && errors.As(err, &refused) && rpc.ReasonOf(refused.status.Err()) == cluster.UnknownTopicOrPartition {
			continue
		}
		if err != nil {
			return err
		}
		sure, err := how.typed(cmd, fmt.Sprintf("Topic %s has %d partitions. To delete it and its data", name, t.GetPartitions()), name)
		if err != nil {
			return err
		}
		if !sure {
			return fmt.Errorf("topic %q is not deleted: its name was not typed", name)
		}
		req.Topics = append(req.Topics, &pb.TopicToDelete{Name: name, TopicId: t.GetTopicId()})
	}
	if len(req.GetTopics()) == 0 {
		return c.show(cmd.OutOrStdout(), deletedOf(nil))
	}
	ctx, cancel := c.within(cmd)
	defer cancel()
	resp, err := ask(ctx, c, insistent, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.DeleteTopicsResponse, error) {
		return admin.DeleteTopics(ctx, req)
	})
	if err != nil {
		return err
	}
	for _, r := range resp.GetResults() {
		if r.GetError() == string(cluster.UnknownTopicID) { // it stood a moment ago: an attempt whose answer was lost
			r.Error, r.Message = "", ""
		}
	}
	faults := []error{c.show(cmd.OutOrStdout(), deletedOf(resp))}
	var deleted []string
	var ids [][]byte
	for _, r := range resp.GetResults() {
		if r.GetError() != "" {
			faults = append(faults, fmt.Errorf("%s: %s", r.GetError(), r.GetMessage()))
			continue
		}
		deleted, ids = append(deleted, r.GetName()), append(ids, r.GetTopicId())
	}
	if how.wait && len(ids) > 0 {
		done := fmt.Sprintf("deleted: %s", strings.Join(deleted, ", "))
		faults = append(faults, await(ctx, cmd, c, done, topicsErased(ids, resp.GetRevision())))
	}
	return errors.Join(faults...)
}

// deletedView is the answer to topic delete.
type deletedView struct {
	Topics   []deletedTopic `json:"topics"`
	Revision int64          `json:"revision"`
}

type deletedTopic struct {
	Name    string `json:"name"`
	TopicID string `json:"topic_id"`
	Error   string `json:"error"`
	Message string `json:"message"`
}

func deletedOf(resp *pb.DeleteTopicsResponse) *deletedView {
	v := &deletedView{Topics: []deletedTopic{}, Revision: resp.GetRevision()}
	for _, r := range resp.GetResults() {
		v.Topics = append(v.Topics, deletedTopic{Name: r.GetName(), TopicID: topicID(r.GetTopicId()), Error: r.GetError(), Message: r.GetMessage()})
	}
	return v
}

// table shows what was deleted; errors are reported apart.
func (v *deletedView) table() table {
	t := table{head: []string{"DELETED", "ID"}}
	for _, d := range v.Topics {
		if d.Error == "" {
			t.rows = append(t.rows, []string{d.Name, d.TopicID})
		}
	}
	if t.rows == nil {
		return table{}
	}
	return t
}
