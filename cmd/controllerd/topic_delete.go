package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

func newTopicDelete(c *client) *cobra.Command {
	var yes bool
	var reason string
	cmd := &cobra.Command{
		Use:   "delete NAME...",
		Short: "Delete topics and their data, each by itself",
		Long: `Delete topics and their data. A name is free again at once. Live brokers delete
their replicas now; one that is away is told when it returns.

Nothing is deleted if one of them does not exist. Without --yes each name has to
be typed again. Each topic is deleted by the id that it has when the command
begins, so no other that gets its name is touched.`,
		Example: `  controllerd topic delete orders --yes --reason "moved to the other cluster"`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := utf8Args(append(names, reason)...); err != nil {
				return err
			}
			return deleteTopics(cmd, c, names, yes, reason)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "ask nothing")
	cmd.Flags().StringVar(&reason, "reason", "", "why, kept until all brokers have deleted their replicas")
	return cmd
}

func deleteTopics(cmd *cobra.Command, c *client, names []string, yes bool, reason string) error {
	req := &pb.DeleteTopicsRequest{Reason: reason}
	in := bufio.NewScanner(cmd.InOrStdin())
	for _, name := range names {
		t, err := ask(cmd.Context(), c, repeatable, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.TopicSummary, error) {
			page, err := admin.DescribeTopic(ctx, &pb.DescribeTopicRequest{Name: name, PageSize: 1})
			return page.GetTopic(), err
		})
		if err != nil {
			return err
		}
		if !yes {
			fmt.Fprintf(cmd.ErrOrStderr(), "Topic %s has %d partitions. To delete it and its data, type its name: ", printable(name), t.GetPartitions())
			answer, err := typed(cmd.Context(), in)
			if err != nil {
				return err
			}
			if answer != name {
				return fmt.Errorf("topic %q is not deleted: its name was not typed (--yes asks nothing)", name)
			}
		}
		req.Topics = append(req.Topics, &pb.TopicToDelete{Name: name, TopicId: t.GetTopicId()})
	}
	resp, err := ask(cmd.Context(), c, insistent, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.DeleteTopicsResponse, error) {
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
	for _, r := range resp.GetResults() {
		if r.GetError() != "" {
			faults = append(faults, fmt.Errorf("%s: %s", r.GetError(), r.GetMessage()))
		}
	}
	return errors.Join(faults...)
}

// typed reads a line, empty at the end of the input.
func typed(ctx context.Context, in *bufio.Scanner) (string, error) {
	line := make(chan string, 1)
	go func() { // which a terminal may keep until the process ends
		in.Scan()
		line <- strings.TrimSpace(in.Text())
	}()
	select {
	case <-ctx.Done():
		return "", errInterrupted
	case s := <-line:
		return s, nil
	}
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
