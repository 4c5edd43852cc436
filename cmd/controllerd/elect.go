package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

func newElect() *cobra.Command {
	c := &client{}
	group := newGroup("elect", "Give partitions other leaders",
		newElectPreferred(c), newElectUnclean(c), newElectLeader(c))
	c.addFlags(group)
	return group
}

func newElectPreferred(c *client) *cobra.Command {
	e := &electing{c: c, kind: pb.ElectionType_ELECTION_TYPE_PREFERRED}
	cmd := &cobra.Command{
		Use:   "preferred [TOPIC[/PARTITION]...]",
		Short: "Let the first replica of partitions lead",
		Long: `Let the first replica of each partition lead, where it is online and in the ISR.
Each partition succeeds or fails by itself; the exit code is 1 if one of them
failed. One that its first replica leads already is no failure.`,
		Example: `  controllerd elect preferred orders
  controllerd elect preferred orders/3 payments/0 --reason "b2 is back"
  controllerd elect preferred --all --dry-run`,
		RunE: e.run,
	}
	e.addFlags(cmd)
	return cmd
}

func newElectUnclean(c *client) *cobra.Command {
	e := &electing{c: c, kind: pb.ElectionType_ELECTION_TYPE_UNCLEAN}
	cmd := &cobra.Command{
		Use:   "unclean [TOPIC[/PARTITION]...]",
		Short: "Let partitions without a leader be led by a replica that may lack data",
		Long: `Let partitions that nobody leads be led by a replica that is online, though it is
not in the ISR. What was committed and that replica lacks is lost, also if those
that have it return. A word has to be typed first, unless --yes is given; without
a terminal it must be.

Each partition succeeds or fails by itself; the exit code is 1 if one of them
failed. One that has a leader is no failure, and keeps it.`,
		Example: `  controllerd elect unclean orders/3 --yes --reason "b1 is lost for good"
  controllerd elect unclean --all --dry-run`,
		RunE: e.run,
	}
	e.addFlags(cmd)
	e.assent.addFlags(cmd.Flags())
	return cmd
}

func newElectLeader(c *client) *cobra.Command {
	e := &electing{c: c, kind: pb.ElectionType_ELECTION_TYPE_DESIGNATED}
	cmd := &cobra.Command{
		Use:   "leader BROKER TOPIC/PARTITION...",
		Short: "Let a named broker lead partitions",
		Long: `Let a broker lead partitions of which it has a replica that is online and in the
ISR. It is not the first of the replicas by that: a preferred election takes the
leadership back.`,
		Example: `  controllerd elect leader 2 orders/3 --reason "b1 is slow"`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef("want a broker and at least one partition, have %d arguments", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseInt(args[0], 10, 32)
			if err != nil || id < 0 {
				return usagef("broker %q is not a number from 0 on", args[0])
			}
			e.leader = int32(id)
			return e.run(cmd, args[1:])
		},
	}
	cmd.ValidArgsFunction = c.completeBroker
	e.addCommonFlags(cmd)
	return cmd
}

// electing is one command line.
type electing struct {
	c           *client
	kind        pb.ElectionType
	leader      int32
	all, dryRun bool
	wait        bool
	reason      string
	assent      // of an unclean one
}

func (e *electing) addFlags(cmd *cobra.Command) {
	cmd.ValidArgsFunction = e.c.completeTopics(0)
	cmd.Flags().BoolVar(&e.all, "all", false, "all partitions of all topics")
	e.addCommonFlags(cmd)
}

func (e *electing) addCommonFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&e.dryRun, "dry-run", false, "change nothing, show what would be")
	cmd.Flags().StringVar(&e.reason, "reason", "", "why, kept with each partition until its next change, at most 128 bytes")
	addWait(cmd.Flags(), &e.wait, false, "all live brokers have confirmed the partitions")
}

func (e *electing) run(cmd *cobra.Command, args []string) error {
	if err := utf8Args(append(args, e.reason)...); err != nil {
		return err
	}
	if e.all == (len(args) > 0) {
		return usagef("want partitions, or --all for all of them")
	}
	topics, err := parsePartitions(args)
	if err != nil {
		return err
	}
	if e.kind == pb.ElectionType_ELECTION_TYPE_UNCLEAN && !e.dryRun {
		if err := e.possible(cmd); err != nil {
			return err
		}
		if sure, err := e.typed(cmd, "What was committed may be lost. To elect all the same", "unclean"); err != nil || !sure {
			return cmp.Or(err, errors.New("nothing is elected: the word was not typed (--yes asks nothing)"))
		}
	}
	req := &pb.ElectLeadersRequest{Type: e.kind, Topics: topics, All: e.all, Leader: e.leader, ValidateOnly: e.dryRun, Reason: e.reason}
	ctx, cancel := e.c.within(cmd)
	defer cancel()
	resp, err := ask(ctx, e.c, insistent, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.ElectLeadersResponse, error) {
		return admin.ElectLeaders(ctx, req)
	})
	if err != nil {
		return err
	}
	faults := []error{e.c.show(cmd.OutOrStdout(), electedOf(resp, e.dryRun))}
	for _, r := range resp.GetResults() {
		if r.GetError() != "" && r.GetError() != string(cluster.ElectionNotNeeded) {
			faults = append(faults, fmt.Errorf("%s/%d: %s: %s", r.GetTopic(), r.GetPartition(), r.GetError(), r.GetMessage()))
		}
	}
	if left := int(resp.GetFailed()) - (len(faults) - 1); left > 0 {
		faults = append(faults, fmt.Errorf("and %d more partitions", left))
	}
	if topics := elected(resp); e.wait && !e.dryRun && len(topics) > 0 {
		faults = append(faults, await(ctx, cmd, e.c, "the leaders are elected", topicsConfirmed(topics, resp.GetRevision())))
	}
	return errors.Join(faults...)
}

// elected are the topics of which a partition has got another leader.
func elected(resp *pb.ElectLeadersResponse) []string {
	var names []string
	for _, r := range resp.GetResults() {
		if r.GetError() == "" {
			names = append(names, r.GetTopic())
		}
	}
	return slices.Compact(names)
}

// parsePartitions reads TOPIC and TOPIC/PARTITION.
func parsePartitions(args []string) ([]*pb.TopicPartitions, error) {
	var out []*pb.TopicPartitions
	byName := map[string]*pb.TopicPartitions{}
	for _, arg := range args {
		name, index, one := strings.Cut(arg, "/")
		t := byName[name]
		whole := t != nil && len(t.GetPartitions()) == 0
		if whole || t != nil && !one {
			return nil, usagef("topic %q is named as a whole, and again", name)
		}
		if t == nil {
			t = &pb.TopicPartitions{Topic: name}
			byName[name] = t
			out = append(out, t)
		}
		if !one {
			continue
		}
		n, err := strconv.ParseInt(index, 10, 32)
		if err != nil || n < 0 {
			return nil, usagef("%q is not TOPIC/PARTITION", arg)
		}
		t.Partitions = append(t.Partitions, int32(n))
	}
	return out, nil
}

// electedView is the answer to an elect command.
type electedView struct {
	Results   []electionView `json:"results"`
	Elected   int64          `json:"elected"`
	Failed    int64          `json:"failed"`
	NotNeeded int64          `json:"not_needed"`
	DryRun    bool           `json:"dry_run"`
	Revision  int64          `json:"revision"`
}

type electionView struct {
	Topic          string `json:"topic"`
	Partition      int32  `json:"partition"`
	Leader         int32  `json:"leader"`
	PreviousLeader int32  `json:"previous_leader"`
	Error          string `json:"error"`
	Message        string `json:"message"`
}

func electedOf(resp *pb.ElectLeadersResponse, dryRun bool) *electedView {
	v := &electedView{
		Results: []electionView{}, Elected: resp.GetElected(), Failed: resp.GetFailed(), NotNeeded: resp.GetNotNeeded(),
		DryRun: dryRun, Revision: resp.GetRevision(),
	}
	for _, r := range resp.GetResults() {
		v.Results = append(v.Results, electionView{r.GetTopic(), r.GetPartition(), r.GetLeader(), r.GetPreviousLeader(), r.GetError(), r.GetMessage()})
	}
	return v
}

// table shows who leads now; errors are reported apart.
func (v *electedView) table() table {
	verb := "elected"
	if v.DryRun {
		verb = "would be elected"
	}
	t := table{
		title: []string{fmt.Sprintf("%d %s, %d failed, %d need none", v.Elected, verb, v.Failed, v.NotNeeded)},
		head:  []string{"PARTITION", "LEADER", "BEFORE"},
	}
	for _, r := range v.Results {
		if r.Error == "" {
			t.rows = append(t.rows, []string{fmt.Sprintf("%s/%d", r.Topic, r.Partition), leaderName(r.Leader), leaderName(r.PreviousLeader)})
		}
	}
	if t.rows == nil {
		t.head = nil
	}
	return t
}
