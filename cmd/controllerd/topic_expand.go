package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// expansion is how topics get more partitions.
type expansion struct {
	partitions   int32
	assignment   []string
	dryRun, wait bool
	reason       string
}

func newTopicExpand(c *client) *cobra.Command {
	var how expansion
	cmd := &cobra.Command{
		Use:   "expand NAME...",
		Short: "Give topics more partitions, each by itself",
		Long: `Give topics more partitions. --partitions is how many each is to have in all.
There is no way back: a topic never gets fewer. Where clients choose a partition by
the hash of a key, keys move to other partitions. With --wait it ends when every
partition has a leader and every live broker has confirmed its replicas.`,
		Example: `  controllerd topic expand orders --partitions 24 --wait --reason "TICKET-9: more consumers"
  controllerd topic expand orders --partitions 14 --assignment 0,1:1,2 --dry-run`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: c.completeTopics(0),
		RunE: func(cmd *cobra.Command, names []string) error {
			return expandTopics(cmd, c, names, &how)
		},
	}
	f := cmd.Flags()
	f.Int32Var(&how.partitions, "partitions", 0, "number of partitions in all")
	f.StringArrayVar(&how.assignment, "assignment", nil, "replicas of the new partitions, as `1,2,3:2,3,1`: one list for each, the preferred leader first")
	f.BoolVar(&how.dryRun, "dry-run", false, "say what would be made, and make nothing")
	f.StringVar(&how.reason, "reason", "", "why, kept with the topics")
	addWait(f, &how.wait, false, "all partitions have leaders and all live brokers have confirmed them")
	_ = cmd.MarkFlagRequired("partitions")
	return cmd
}

func expandTopics(cmd *cobra.Command, c *client, names []string, how *expansion) error {
	if err := utf8Args(append(names, how.reason)...); err != nil {
		return err
	}
	if how.dryRun && how.wait {
		return usagef("--wait waits for nothing that --dry-run does not make")
	}
	given, err := parseAssignment(how.assignment)
	if err != nil {
		return err
	}
	req := &pb.CreatePartitionsRequest{RequestId: rand.Text(), ValidateOnly: how.dryRun, Reason: how.reason}
	for _, name := range names {
		req.Topics = append(req.Topics, &pb.NewPartitions{Topic: name, Count: how.partitions, Assignments: given})
	}
	ctx, cancel := c.within(cmd)
	defer cancel()
	resp, err := ask(ctx, c, insistent, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.CreatePartitionsResponse, error) {
		return admin.CreatePartitions(ctx, req)
	})
	if err != nil {
		return err
	}
	faults := []error{c.show(cmd.OutOrStdout(), expandedOf(resp, how.dryRun))}
	for _, r := range resp.GetResults() {
		switch {
		case r.GetError() != "":
			faults = append(faults, fmt.Errorf("%s: %s", r.GetError(), r.GetMessage()))
		case how.wait:
			faults = append(faults, await(ctx, cmd, c, "topic "+r.GetTopic()+" is expanded", topicExpanded(r)))
		}
	}
	return errors.Join(faults...)
}

// topicExpanded looks whether a topic has the partitions that it is to have, and
// all are served.
func topicExpanded(r *pb.CreatePartitionsResult) func(context.Context, pb.AdminServiceClient) (outlook, error) {
	served := topicServed(r.GetTopic(), r.GetTopicId())
	return func(ctx context.Context, admin pb.AdminServiceClient) (outlook, error) {
		t, err := admin.DescribeTopic(ctx, &pb.DescribeTopicRequest{Name: r.GetTopic(), PageSize: 1})
		if err != nil {
			return outlook{}, err
		}
		if made := t.GetTopic().GetPartitions(); made < r.GetPartitions() {
			return outlook{int64(made), int64(r.GetPartitions()), fmt.Sprintf("%d partitions are yet to be made", r.GetPartitions()-made)}, nil
		}
		return served(ctx, admin)
	}
}

// expandedView is the answer to topic expand.
type expandedView struct {
	Topics   []expandedTopic `json:"topics"`
	DryRun   bool            `json:"dry_run"`
	Revision int64           `json:"revision"`
}

type expandedTopic struct {
	Topic      string `json:"topic"`
	TopicID    string `json:"topic_id"`
	Partitions int32  `json:"partitions"`
	Made       int32  `json:"made"`
	Error      string `json:"error"`
	Message    string `json:"message"`
}

func expandedOf(resp *pb.CreatePartitionsResponse, dryRun bool) *expandedView {
	v := &expandedView{Topics: []expandedTopic{}, DryRun: dryRun, Revision: resp.GetRevision()}
	for _, r := range resp.GetResults() {
		v.Topics = append(v.Topics, expandedTopic{r.GetTopic(), topicID(r.GetTopicId()), r.GetPartitions(), r.GetMade(), r.GetError(), r.GetMessage()})
	}
	return v
}

// table shows what the topics are to have; errors are reported apart.
func (v *expandedView) table() table {
	t := table{head: []string{"TOPIC", "PARTITIONS", "MADE"}}
	for _, e := range v.Topics {
		if e.Error == "" {
			t.rows = append(t.rows, []string{e.Topic, str(e.Partitions), str(e.Made)})
		}
	}
	if t.rows == nil {
		return table{}
	}
	return t
}
