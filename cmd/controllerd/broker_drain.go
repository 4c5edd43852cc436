package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// draining is how a broker is drained.
type draining struct {
	cancel, dryRun, wait bool
	reason               string
}

func newBrokerDrain(c *client) *cobra.Command {
	var how draining
	cmd := &cobra.Command{
		Use:   "drain BROKER",
		Short: "Move the leaderships of a live broker to others, and keep them away",
		Long: `Move the leaderships of a live broker to others, and keep them away from it; it
leaves the ISRs in which others remain. It stays connected, and nothing is moved
off its disks (that is "reassign"). What nobody else can lead it leads on: those
partitions are listed, and --wait waits for them. The process that registers next
under the id is not drained. --cancel ends it: then its replicas may come back into
ISRs, and leaderships come back by balance or "elect preferred".`,
		Example: `  controllerd broker drain 3 --wait --reason "its disk is slow"
  controllerd broker drain 3 --dry-run
  controllerd broker drain 3 --cancel`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want one broker, have %d arguments", len(args))
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return c.completeBroker(cmd, args, begun)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseInt(args[0], 10, 32)
			if err != nil || id < 0 {
				return usagef("broker %q is not a number from 0 on", args[0])
			}
			return drainBroker(cmd, c, int32(id), &how)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&how.cancel, "cancel", false, "end it: the broker may lead again")
	f.BoolVar(&how.dryRun, "dry-run", false, "change nothing, show what would be")
	f.StringVar(&how.reason, "reason", "", "why, kept with the broker until it ends")
	addWait(f, &how.wait, false, "the broker leads nothing that has more than one replica")
	return cmd
}

func drainBroker(cmd *cobra.Command, c *client, id int32, how *draining) error {
	if err := utf8Args(how.reason); err != nil {
		return err
	}
	if how.wait && (how.dryRun || how.cancel) {
		return usagef("--wait waits until a drained broker leads nothing")
	}
	ctx, stop := c.within(cmd)
	defer stop()
	drain := func(validateOnly bool) (*pb.DrainBrokerResponse, error) {
		return ask(ctx, c, insistent, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.DrainBrokerResponse, error) {
			return admin.DrainBroker(ctx, &pb.DrainBrokerRequest{BrokerId: id, Cancel: how.cancel, ValidateOnly: validateOnly, Reason: how.reason})
		})
	}
	resp, err := drain(how.dryRun)
	if err != nil {
		return err
	}
	faults := []error{c.show(cmd.OutOrStdout(), drainedOf(resp, id, how))}
	if how.wait && resp.GetRemaining() > 0 {
		faults = append(faults, await(ctx, cmd, c, fmt.Sprintf("broker %d is draining", id), func(ctx context.Context, admin pb.AdminServiceClient) (outlook, error) {
			now, err := admin.DrainBroker(ctx, &pb.DrainBrokerRequest{BrokerId: id, ValidateOnly: true})
			left := now.GetRemaining()
			o := outlook{done: resp.GetRemaining() - left, whole: resp.GetRemaining()}
			if left > 0 {
				o.left = fmt.Sprintf("it leads %d partitions that nobody else can lead", left)
			}
			return o, err
		}))
	}
	return errors.Join(faults...)
}

// drainedView is the answer to broker drain.
type drainedView struct {
	Broker      int32               `json:"broker"`
	BrokerEpoch int64               `json:"broker_epoch"`
	Changed     bool                `json:"changed"`
	Cancel      bool                `json:"cancel"`
	DryRun      bool                `json:"dry_run"`
	Leaders     int64               `json:"leaders"`
	Remaining   int64               `json:"remaining"`
	Partitions  []remainingPartView `json:"partitions"` // the first 1,000
	Revision    int64               `json:"revision"`
}

type remainingPartView struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

func drainedOf(resp *pb.DrainBrokerResponse, id int32, how *draining) *drainedView {
	v := &drainedView{
		Broker: id, BrokerEpoch: resp.GetBrokerEpoch(), Changed: resp.GetChanged(), Cancel: how.cancel, DryRun: how.dryRun,
		Leaders: resp.GetLeaders(), Remaining: resp.GetRemaining(), Partitions: []remainingPartView{}, Revision: resp.GetRevision(),
	}
	for _, p := range resp.GetPartitions() {
		v.Partitions = append(v.Partitions, remainingPartView{p.GetTopic(), p.GetPartition()})
	}
	return v
}

func (v *drainedView) table() table {
	what := "drains"
	switch {
	case v.Cancel && v.DryRun:
		what = "would drain no more"
	case v.Cancel:
		what = "drains no more"
	case v.DryRun:
		what = "would drain"
	}
	text := fmt.Sprintf("broker %d %s, it leads %d partitions", v.Broker, what, v.Leaders)
	if !v.Changed {
		text += "; it was so already"
	}
	t := table{title: []string{text}}
	if v.Remaining == 0 {
		return table{rows: [][]string{{text}}}
	}
	t.title = append(t.title, fmt.Sprintf("nobody else can lead %d of them", v.Remaining))
	t.head = []string{"PARTITION"}
	for _, p := range v.Partitions {
		t.rows = append(t.rows, []string{fmt.Sprintf("%s/%d", p.Topic, p.Partition)})
	}
	return t
}
