package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// pageSize is how many topics or partitions are asked for at once: the most
// that a daemon gives.
const pageSize = 10_000

func newTopic() *cobra.Command {
	c := &client{}
	group := newGroup("topic", "Create, change, delete and look at topics",
		newTopicCreate(c), newTopicDelete(c), newTopicAlter(c), newTopicExpand(c), newTopicList(c), newTopicDescribe(c))
	c.addFlags(group)
	return group
}

func newTopicCreate(c *client) *cobra.Command {
	nt := &pb.NewTopic{}
	var config, assignment []string
	var how creation
	cmd := &cobra.Command{
		Use:   "create NAME...",
		Short: "Create topics, each by itself",
		Long: `Create topics that are alike. Each succeeds or fails by itself; the exit code
is 1 if one of them failed. With --wait it ends when every partition has a leader
and every live broker has confirmed its replicas.`,
		Example: `  controllerd topic create orders --partitions 12 --replication-factor 3 --wait
  controllerd topic create orders --partitions 12 --replication-factor 3 --reason "TICKET-7: shop"
  controllerd topic create a b --partitions 1 --replication-factor 3 --config retention.ms=60000
  controllerd topic create orders --assignment 0,1:1,2:2,0 --dry-run`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			var err error
			if nt.Config, err = parseConfig(config); err != nil {
				return err
			}
			if nt.Assignments, err = parseAssignment(assignment); err != nil {
				return err
			}
			if missing := unset(cmd, "partitions", "replication-factor"); len(assignment) == 0 && len(missing) > 0 {
				return usagef("required flag(s) %s not set", strings.Join(missing, ", "))
			}
			return createTopics(cmd, c, nt, names, how)
		},
	}
	f := cmd.Flags()
	f.Int32Var(&nt.Partitions, "partitions", 0, "number of partitions")
	f.Int32Var(&nt.ReplicationFactor, "replication-factor", 0, "number of replicas of each partition")
	f.Int32Var(&nt.BlockSize, "block-size", 0, "partitions that share a key in etcd, fixed for good (default 16)")
	f.StringArrayVar(&config, "config", nil, "override for the brokers, `name=value`; repeat it for more")
	f.StringArrayVar(&assignment, "assignment", nil, "replicas of the partitions instead of numbers, as `1,2,3:2,3,1`: one list for each partition, the preferred leader first")
	f.BoolVar(&how.ifNotExists, "if-not-exists", false, "a topic that exists is no error, and is left as it is")
	f.BoolVar(&how.dryRun, "dry-run", false, "say what would be created, and create nothing")
	f.StringVar(&how.reason, "reason", "", "why, kept with the topics")
	addWait(f, &how.wait, false, "all partitions have leaders and all live brokers have confirmed them")
	return cmd
}

// unset are the flags that were not given.
func unset(cmd *cobra.Command, flags ...string) []string {
	var out []string
	for _, name := range flags {
		if !cmd.Flags().Changed(name) {
			out = append(out, strconv.Quote(name))
		}
	}
	return out
}

// creation is how topics are created.
type creation struct {
	ifNotExists, dryRun, wait bool
	reason                    string
}

// parseAssignment reads lists of brokers, one for each partition.
func parseAssignment(args []string) ([]*pb.ReplicaAssignment, error) {
	var out []*pb.ReplicaAssignment
	for _, arg := range args {
		for _, list := range strings.Split(arg, ":") {
			a := &pb.ReplicaAssignment{}
			for _, id := range strings.Split(list, ",") {
				n, err := strconv.ParseInt(strings.TrimSpace(id), 10, 32)
				if err != nil || n < 0 {
					return nil, usagef("assignment %q: %q is no broker id", arg, id)
				}
				a.Replicas = append(a.Replicas, int32(n))
			}
			out = append(out, a)
		}
	}
	return out, nil
}

func parseConfig(pairs []string) (map[string]string, error) {
	config := map[string]string{}
	for _, p := range pairs {
		name, value, ok := strings.Cut(p, "=")
		if !ok {
			return nil, usagef("config %q is not name=value", p)
		}
		if _, twice := config[name]; twice {
			return nil, usagef("config %q is given twice", name)
		}
		config[name] = value
	}
	return config, utf8Args(pairs...)
}

// utf8Args refuses what the wire cannot carry.
func utf8Args(args ...string) error {
	for _, a := range args {
		if !utf8.ValidString(a) {
			return usagef("argument %q is not UTF-8", a)
		}
	}
	return nil
}

func createTopics(cmd *cobra.Command, c *client, like *pb.NewTopic, names []string, how creation) error {
	if err := utf8Args(append(names, how.reason)...); err != nil {
		return err
	}
	if how.dryRun && how.wait {
		return usagef("--wait waits for nothing that --dry-run does not create")
	}
	ctx, cancel := c.within(cmd)
	defer cancel()
	req := &pb.CreateTopicsRequest{RequestId: rand.Text(), ValidateOnly: how.dryRun, Reason: how.reason}
	for _, name := range names {
		req.Topics = append(req.Topics, &pb.NewTopic{
			Name: name, Partitions: like.GetPartitions(), ReplicationFactor: like.GetReplicationFactor(),
			BlockSize: like.GetBlockSize(), Config: like.GetConfig(), Assignments: like.GetAssignments(),
		})
	}
	resp, err := ask(ctx, c, insistent, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.CreateTopicsResponse, error) {
		return admin.CreateTopics(ctx, req)
	})
	if err != nil {
		return err
	}
	if how.ifNotExists {
		if err := acceptExisting(ctx, c, resp); err != nil {
			return err
		}
	}
	faults := []error{c.show(cmd.OutOrStdout(), createdOf(resp))}
	for _, r := range resp.GetResults() {
		switch {
		case r.GetError() != "":
			faults = append(faults, fmt.Errorf("%s: %s", r.GetError(), r.GetMessage()))
		case how.wait:
			faults = append(faults, await(ctx, cmd, c, "topic "+r.GetName()+" is created", topicServed(r.GetName(), r.GetTopicId())))
		}
	}
	return errors.Join(faults...)
}

// acceptExisting shows topics that exist as they are, instead of an error.
func acceptExisting(ctx context.Context, c *client, resp *pb.CreateTopicsResponse) error {
	for _, r := range resp.GetResults() {
		if r.GetError() != string(cluster.TopicAlreadyExists) {
			continue
		}
		there, err := ask(ctx, c, repeatable, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.TopicSummary, error) {
			page, err := admin.DescribeTopic(ctx, &pb.DescribeTopicRequest{Name: r.GetName(), PageSize: 1})
			return page.GetTopic(), err
		})
		if err != nil { // its record is unreadable, or it was deleted meanwhile
			return err
		}
		r.Error, r.Message = "", "it exists"
		r.TopicId, r.Partitions, r.ReplicationFactor = there.GetTopicId(), there.GetPartitions(), there.GetReplicationFactor()
	}
	return nil
}

func newTopicList(c *client) *cobra.Command {
	var deleted bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all topics, or those that were deleted",
		Long: `List all topics. With --deleted list the topics that were deleted and of which
brokers may still hold replicas: those in BROKERS have yet to confirm that they
do not, because they are away, say.`,
		Example: `  controllerd topic list
  controllerd topic list -o json | jq -r '.topics[] | select(.offline > 0) | .name'
  controllerd topic list --deleted`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if deleted {
				return showTombstones(cmd, c)
			}
			v, err := ask(cmd.Context(), c, repeatable, listTopics)
			if err != nil {
				return err
			}
			return c.show(cmd.OutOrStdout(), v)
		},
	}
	cmd.Flags().BoolVar(&deleted, "deleted", false, "those that were deleted, until all brokers have confirmed it")
	return cmd
}

// listTopics fetches all pages.
func listTopics(ctx context.Context, admin pb.AdminServiceClient) (*topicsView, error) {
	v := &topicsView{Topics: []topicView{}}
	for req := (&pb.ListTopicsRequest{PageSize: pageSize}); ; {
		page, err := admin.ListTopics(ctx, req)
		if err != nil {
			return nil, err
		}
		if req.PageToken == "" {
			v.Revision = page.GetRevision()
		}
		for _, t := range page.GetTopics() {
			v.Topics = append(v.Topics, topicOf(t))
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return v, nil
		}
	}
}

func newTopicDescribe(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "describe NAME",
		Short: "Show a topic and all its partitions",
		Long: `Show a topic and all its partitions. In the table LE and PE are leader epoch and
partition epoch; CAUSE and SINCE say why and when the partition last changed. A
replica with ! is offline: the broker is there, but its storage has failed. A line
above names live brokers that have yet to confirm what they were told.`,
		Example: `  controllerd topic describe orders
  controllerd topic describe orders -o json | jq '.partitions[] | select(.leader == -1)'`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeTopics(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := utf8Args(args...); err != nil {
				return err
			}
			bar := newProgress(cmd.ErrOrStderr())
			v, err := ask(cmd.Context(), c, repeatable, func(ctx context.Context, admin pb.AdminServiceClient) (*topicDetailView, error) {
				return describeTopic(ctx, admin, args[0], bar)
			})
			bar.end()
			if err != nil {
				return err
			}
			return c.show(cmd.OutOrStdout(), v)
		},
	}
}

// describeTopic fetches all pages. It begins again if another topic of that
// name comes up on the way. bar may be nil.
func describeTopic(ctx context.Context, admin pb.AdminServiceClient, name string, bar *progress) (*topicDetailView, error) {
	var v *topicDetailView
	for from := int32(0); ; {
		page, err := admin.DescribeTopic(ctx, &pb.DescribeTopicRequest{Name: name, FromPartition: from, PageSize: pageSize})
		if err != nil {
			return nil, err
		}
		if v != nil && v.Topic.TopicID != topicID(page.GetTopic().GetTopicId()) {
			v, from = nil, 0
			continue
		}
		if v == nil {
			v = topicDetailOf(page)
		}
		for _, p := range page.GetPartitions() {
			v.Partitions = append(v.Partitions, partitionOf(p))
		}
		v.markOffline(page.GetOffline())
		v.addUnconfirmed(page)
		v.Unknown = append(v.Unknown, page.GetUnknown()...)
		if bar != nil {
			bar.update(int64(len(v.Partitions)+len(v.Unknown)), int64(v.Topic.Partitions), "partitions")
		}
		if from = page.GetNextPartition(); from < 0 {
			return v, nil
		}
	}
}
