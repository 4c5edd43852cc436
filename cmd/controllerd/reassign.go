package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

func newReassign() *cobra.Command {
	c := &client{}
	group := newGroup("reassign", "Give partitions other replicas",
		newReassignStart(c), newReassignFactor(c), newReassignCancel(c), newReassignList(c), newReassignStatus(c))
	c.addFlags(group)
	return group
}

// reassigning is one command that changes replicas.
type reassigning struct {
	c            *client
	file         string
	maxMoves     int32
	all          bool
	dryRun, wait bool
	reason       string
}

func (a *reassigning) addFlags(cmd *cobra.Command, until string) {
	cmd.Flags().BoolVar(&a.dryRun, "dry-run", false, "change nothing, show what would be")
	cmd.Flags().StringVar(&a.reason, "reason", "", "why, kept with each partition until its next change, at most 128 bytes")
	addWait(cmd.Flags(), &a.wait, false, until)
}

func (a *reassigning) addMaxMoves(cmd *cobra.Command) {
	cmd.Flags().Int32Var(&a.maxMoves, "max-moves", 0, "from now on let at most so many partitions of the cluster add replicas at once, others wait; 0: any number (setting max.moves)")
}

func newReassignStart(c *client) *cobra.Command {
	a := &reassigning{c: c}
	cmd := &cobra.Command{
		Use:   "start TOPIC/PARTITION=BROKER,BROKER...",
		Short: "Give partitions other replicas",
		Long: `Give partitions other replicas, the preferred leader first. New replicas are
added, and when all of them are in sync the others are deleted. What waits for
its turn is queued (--max-moves); "reassign status" shows it. A reassignment that
is under way is superseded: it goes on to the new replicas from those that the
partition had before it.

--file reads a plan as Kafka's tools write it, - from stdin:
{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2,3]}]}`,
		Example: `  controllerd reassign start orders/0=4,5,6 orders/1=5,6,4 --wait --timeout 1h --reason "b1 is to go"
  controllerd reassign start --file plan.json --max-moves 20
  controllerd reassign start orders/0=4,5,6 --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			moves, err := a.moves(cmd, args)
			if err != nil {
				return err
			}
			return a.run(cmd, &pb.AlterPartitionReassignmentsRequest{Partitions: moves})
		},
	}
	cmd.Flags().StringVar(&a.file, "file", "", "read the plan from this `file`")
	a.addMaxMoves(cmd)
	a.addFlags(cmd, "all of them have the replicas, and former ones are deleted")
	return cmd
}

func newReassignFactor(c *client) *cobra.Command {
	a := &reassigning{c: c}
	cmd := &cobra.Command{
		Use:   "replication-factor NUMBER TOPIC...",
		Short: "Give all partitions of topics another number of replicas",
		Long: `Give all partitions of topics another number of replicas. Those that they have
stay as far as possible. More: brokers on racks that a partition has no replica on
come first, then those with the fewest replicas. Fewer: replicas on brokers that
are not live go first, then those that are not in sync, then the last.`,
		Example: `  controllerd reassign replication-factor 3 orders payments --wait --timeout 1h --reason "TICKET-3"
  controllerd reassign replication-factor 2 orders --dry-run`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef("want a number and at least one topic, have %d arguments", len(args))
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return c.completeTopics(0)(cmd, args[1:], begun)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.ParseInt(args[0], 10, 32)
			if err != nil || n < 1 {
				return usagef("replication factor %q is not a number from 1 on", args[0])
			}
			req := &pb.AlterPartitionReassignmentsRequest{}
			for _, name := range args[1:] {
				req.Topics = append(req.Topics, &pb.TopicReplicationFactor{Topic: name, ReplicationFactor: int32(n)})
			}
			return a.run(cmd, req)
		},
	}
	a.addMaxMoves(cmd)
	a.addFlags(cmd, "all partitions have the replicas, and former ones are deleted")
	return cmd
}

func newReassignCancel(c *client) *cobra.Command {
	a := &reassigning{c: c}
	cmd := &cobra.Command{
		Use:   "cancel [TOPIC/PARTITION...]",
		Short: "Take reassignments back that are not at their end",
		Long: `Take reassignments back that are not at their end: the partitions keep the
replicas that they had, perhaps in another order, and what was added is deleted.`,
		Example: `  controllerd reassign cancel orders/0 orders/1
  controllerd reassign cancel --all --reason "the network cannot bear it"`,
		ValidArgsFunction: c.completeTopics(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.all == (len(args) > 0) {
				return usagef("want partitions, or --all for all of them")
			}
			topics, err := parsePartitions(args)
			if err != nil {
				return err
			}
			req := &pb.AlterPartitionReassignmentsRequest{CancelAll: a.all}
			for _, t := range topics {
				if len(t.GetPartitions()) == 0 {
					return usagef("%q is not TOPIC/PARTITION", t.GetTopic())
				}
				for _, i := range t.GetPartitions() {
					req.Partitions = append(req.Partitions, &pb.PartitionReassignment{Topic: t.GetTopic(), Partition: i})
				}
			}
			return a.run(cmd, req)
		},
	}
	cmd.Flags().BoolVar(&a.all, "all", false, "all that are under way or wait")
	a.addFlags(cmd, "what was added is deleted")
	return cmd
}

// plan is what Kafka's tools read and write.
type plan struct {
	Version    *int       `json:"version"`
	Partitions []planItem `json:"partitions"`
}

type planItem struct {
	Topic     string   `json:"topic"`
	Partition *int32   `json:"partition"`
	Replicas  []int32  `json:"replicas"`
	LogDirs   []string `json:"log_dirs"` // which is the brokers' business
}

// moves are those of the arguments and of the file.
func (a *reassigning) moves(cmd *cobra.Command, args []string) ([]*pb.PartitionReassignment, error) {
	if (a.file == "") == (len(args) == 0) {
		return nil, usagef("want partitions with their replicas, or --file")
	}
	if a.file != "" {
		return readPlan(cmd, a.file)
	}
	var out []*pb.PartitionReassignment
	for _, arg := range args {
		name, list, ok := strings.Cut(arg, "=")
		topics, err := parsePartitions([]string{name})
		if !ok || err != nil || len(topics[0].GetPartitions()) != 1 {
			return nil, usagef("%q is not TOPIC/PARTITION=BROKER,BROKER", arg)
		}
		given, err := parseAssignment([]string{list})
		if err != nil {
			return nil, err
		}
		if len(given) != 1 {
			return nil, usagef("%q has replicas of %d partitions", arg, len(given))
		}
		out = append(out, &pb.PartitionReassignment{Topic: topics[0].GetTopic(), Partition: topics[0].GetPartitions()[0], Target: given[0]})
	}
	return out, utf8Args(args...)
}

// maxPlan bounds a plan, in bytes.
const maxPlan = 64 << 20

func readPlan(cmd *cobra.Command, name string) ([]*pb.PartitionReassignment, error) {
	in := cmd.InOrStdin()
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, usagef("plan: %v", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxPlan+1))
	if err != nil {
		return nil, fmt.Errorf("read plan %s: %w", name, err)
	}
	if len(raw) > maxPlan {
		return nil, usagef("plan %s has more than %d bytes", name, maxPlan)
	}
	var p plan
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return nil, usagef("plan %s: %v", name, err)
	}
	if dec.More() {
		return nil, usagef("plan %s: something follows the object", name)
	}
	if p.Version != nil && *p.Version != 1 {
		return nil, usagef("plan %s is of version %d, want 1", name, *p.Version)
	}
	var out []*pb.PartitionReassignment
	for i, it := range p.Partitions {
		if it.Topic == "" || it.Partition == nil || it.Replicas == nil {
			return nil, usagef("plan %s: partition %d of the list lacks its topic, partition or replicas", name, i)
		}
		out = append(out, &pb.PartitionReassignment{Topic: it.Topic, Partition: *it.Partition, Target: &pb.ReplicaAssignment{Replicas: it.Replicas}})
	}
	if len(out) == 0 {
		return nil, usagef("plan %s names no partition", name)
	}
	return out, nil
}

// atOnce is how many partitions one request names at most.
const atOnce = 10_000

// run asks for a change of replicas, of many partitions in several requests.
func (a *reassigning) run(cmd *cobra.Command, req *pb.AlterPartitionReassignmentsRequest) error {
	if err := utf8Args(a.reason); err != nil {
		return err
	}
	if a.dryRun && a.wait {
		return usagef("--wait waits for nothing that --dry-run does not change")
	}
	req.ValidateOnly, req.Reason = a.dryRun, a.reason
	if cmd.Flags().Changed("max-moves") {
		req.MaxMoves = &a.maxMoves
	}
	ctx, cancel := a.c.within(cmd)
	defer cancel()
	all := &pb.AlterPartitionReassignmentsResponse{}
	for rest := req.GetPartitions(); ; {
		one := &pb.AlterPartitionReassignmentsRequest{
			Partitions: rest[:min(len(rest), atOnce)], Topics: req.GetTopics(), CancelAll: req.GetCancelAll(), MaxMoves: req.MaxMoves,
			ValidateOnly: req.GetValidateOnly(), Reason: req.GetReason(),
		}
		resp, err := ask(ctx, a.c, insistent, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.AlterPartitionReassignmentsResponse, error) {
			return admin.AlterPartitionReassignments(ctx, one)
		})
		if err != nil {
			return err
		}
		all.Results = append(all.Results, resp.GetResults()...)
		all.Moving, all.Queued, all.Done = all.Moving+resp.GetMoving(), all.Queued+resp.GetQueued(), all.Done+resp.GetDone()
		all.Cancelled, all.Failed, all.Revision = all.Cancelled+resp.GetCancelled(), all.Failed+resp.GetFailed(), resp.GetRevision()
		if rest = rest[len(one.GetPartitions()):]; len(rest) == 0 {
			break
		}
	}
	faults := []error{a.c.show(cmd.OutOrStdout(), reassignedOf(all, a.dryRun))}
	for _, r := range all.GetResults() {
		if r.GetError() != "" {
			faults = append(faults, fmt.Errorf("%s/%d: %s: %s", r.GetTopic(), r.GetPartition(), r.GetError(), r.GetMessage()))
		}
	}
	if left := int(all.GetFailed()) - (len(faults) - 1); left > 0 {
		faults = append(faults, fmt.Errorf("and %d more partitions", left))
	}
	if a.wait && all.GetFailed() < int64(len(all.GetResults())) {
		faults = append(faults, await(ctx, cmd, a.c, "the reassignments have begun", movesEnded(all)))
	}
	return errors.Join(faults...)
}

// movesEnded looks whether nothing of reassignments is left to do.
func movesEnded(all *pb.AlterPartitionReassignmentsResponse) func(context.Context, pb.AdminServiceClient) (outlook, error) {
	var topics []*pb.TopicPartitions
	whole := int64(0)
	for _, r := range all.GetResults() {
		if r.GetError() != "" {
			continue
		}
		if n := len(topics); n == 0 || topics[n-1].GetTopic() != r.GetTopic() {
			topics = append(topics, &pb.TopicPartitions{Topic: r.GetTopic()})
		}
		last := topics[len(topics)-1]
		last.Partitions = append(last.Partitions, r.GetPartition())
		whole++
	}
	return func(ctx context.Context, admin pb.AdminServiceClient) (outlook, error) {
		left, first := int64(0), ""
		for some := range chunks(topics, atOnce) {
			v, err := listReassignments(ctx, admin, some)
			if err != nil {
				return outlook{}, err
			}
			if v.Revision < all.GetRevision() {
				return outlook{left: "the daemon that answers has not seen it yet"}, nil
			}
			if left += int64(len(v.Reassignments)); first == "" && len(v.Reassignments) > 0 {
				m := v.Reassignments[0]
				first = fmt.Sprintf("%s/%d waits for %s", m.Topic, m.Partition, cmp.Or(m.WaitsFor, "nothing"))
			}
		}
		o := outlook{done: whole - left, whole: whole}
		if left > 0 {
			o.left = fmt.Sprintf("%d partitions are not at their end, %s", left, first)
		}
		return o, nil
	}
}

// chunks are partitions in portions that one request may name.
func chunks(topics []*pb.TopicPartitions, most int) func(func([]*pb.TopicPartitions) bool) {
	return func(yield func([]*pb.TopicPartitions) bool) {
		var some []*pb.TopicPartitions
		n := 0
		for _, t := range topics {
			for part := range slices.Chunk(t.GetPartitions(), most) {
				if n > 0 && n+len(part) > most {
					if !yield(some) {
						return
					}
					some, n = nil, 0
				}
				some, n = append(some, &pb.TopicPartitions{Topic: t.GetTopic(), Partitions: part}), n+len(part)
			}
		}
		if n > 0 {
			yield(some)
		}
	}
}

// listReassignments fetches all pages of those that are named, or of all.
func listReassignments(ctx context.Context, admin pb.AdminServiceClient, topics []*pb.TopicPartitions) (*reassignmentsView, error) {
	v := &reassignmentsView{Reassignments: []reassignmentView{}}
	for req := (&pb.ListPartitionReassignmentsRequest{Topics: topics, PageSize: pageSize}); ; {
		page, err := admin.ListPartitionReassignments(ctx, req)
		if err != nil {
			return nil, err
		}
		if req.PageToken == "" {
			v.Revision, v.Moving, v.Queued, v.Leaving, v.Adding = page.GetRevision(), page.GetMoving(), page.GetQueued(), page.GetLeaving(), page.GetAdding()
			v.MaxMoves, v.Freeze = page.GetMaxMoves(), freezeOf(page.GetFreeze())
		}
		for _, m := range page.GetReassignments() {
			v.Reassignments = append(v.Reassignments, reassignmentOf(m))
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return v, nil
		}
	}
}

func newReassignList(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "list [TOPIC[/PARTITION]...]",
		Short: "List reassignments that are under way or wait",
		Long: `List reassignments that are under way or wait, and partitions of which former
replicas have yet to be deleted, with what each waits for.`,
		Example: `  controllerd reassign list
  controllerd reassign list orders -o json | jq '.reassignments[] | select(.state == "queued")'`,
		ValidArgsFunction: c.completeTopics(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			topics, err := namedPartitions(args)
			if err != nil {
				return err
			}
			v, err := ask(cmd.Context(), c, repeatable, func(ctx context.Context, admin pb.AdminServiceClient) (*reassignmentsView, error) {
				return listReassignments(ctx, admin, topics)
			})
			if err != nil {
				return err
			}
			return c.show(cmd.OutOrStdout(), v)
		},
	}
}

func namedPartitions(args []string) ([]*pb.TopicPartitions, error) {
	if err := utf8Args(args...); err != nil {
		return nil, err
	}
	return parsePartitions(args)
}

// followed is how the progress of reassignments is shown.
type followed struct {
	c        *client
	watch    bool
	interval time.Duration
}

func newReassignStatus(c *client) *cobra.Command {
	w := &followed{c: c}
	cmd := &cobra.Command{
		Use:   "status [TOPIC[/PARTITION]...]",
		Short: "Show how far reassignments have come",
		Long: `Show how far reassignments have come: how many are under way, wait, and leave
former replicas to be deleted, and what the first of them wait for. With --watch
it shows that again and again, with how many have ended since it began, how fast,
and how long the rest may take, and ends when nothing is left; on a terminal in
place, elsewhere a line each time. --timeout is how long each look may take.`,
		Example: `  controllerd reassign status
  controllerd reassign status orders --watch --interval 5s
  controllerd reassign status --watch -o json | jq -r .ended`,
		ValidArgsFunction: c.completeTopics(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			topics, err := namedPartitions(args)
			if err != nil {
				return err
			}
			if w.interval <= 0 {
				return usagef("--interval %v is not above 0", w.interval)
			}
			return w.run(cmd, topics)
		},
	}
	cmd.Flags().BoolVarP(&w.watch, "watch", "w", false, "show it again and again, until nothing is left")
	cmd.Flags().DurationVar(&w.interval, "interval", 2*time.Second, "between two looks")
	return cmd
}

// shownMoves is how many reassignments status names.
const shownMoves = 20

func (w *followed) run(cmd *cobra.Command, topics []*pb.TopicPartitions) error {
	out := cmd.OutOrStdout()
	began, most, lines := time.Now(), 0, 0
	for {
		v, err := ask(cmd.Context(), w.c, repeatable, func(ctx context.Context, admin pb.AdminServiceClient) (*reassignmentsView, error) {
			return listReassignments(ctx, admin, topics)
		})
		if err != nil {
			return err
		}
		left := len(v.Reassignments)
		most = max(most, left)
		p := &progressView{reassignmentsView: *v, Left: left, Ended: most - left}
		p.Reassignments = p.Reassignments[:min(left, shownMoves)]
		if took := time.Since(began).Seconds(); p.Ended > 0 && took > 0 {
			p.Rate = float64(p.Ended) / took
			p.RestSeconds = float64(left) / p.Rate
		}
		switch {
		case !w.watch:
			return w.c.show(out, p)
		case w.c.format != "table":
			err = w.c.line(out, p)
		case isTerminal(out):
			if lines > 0 {
				fmt.Fprintf(out, "\x1b[%dA\x1b[J", lines)
			}
			var text strings.Builder
			err = errors.Join(p.table().write(&text, true), writeAll(out, text.String()))
			lines = strings.Count(text.String(), "\n")
		default:
			err = writeAll(out, p.line()+"\n")
		}
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-cmd.Context().Done():
			return errInterrupted
		case <-time.After(w.interval):
		}
	}
}

func writeAll(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}
