package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

func newController() *cobra.Command {
	c := &client{}
	group := newGroup("controller", "Look at the daemons, and hand over the seat",
		newControllerStatus(c), newControllerList(c), newControllerHistory(c), newControllerResign(c), newControllerTransfer(c))
	c.addFlags(group)
	return group
}

func newControllerStatus(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show who is active, and what is wrong",
		Long: `Show who is active, and what is wrong, as the daemon sees it that answers. Only
the active knows which brokers and partitions do not do what they are told, and
which topics cannot be completed. The exit code is 0 also if no daemon is active
or something is wrong; "doctor" judges.`,
		Example: `  controllerd controller status
  controllerd controller status --server 10.0.0.1:7070,10.0.0.2:7070 -o json | jq .problems`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			resp, err := ask(cmd.Context(), c, repeatable, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.DescribeControllerResponse, error) {
				return admin.DescribeController(ctx, &pb.DescribeControllerRequest{})
			})
			if err != nil {
				return err
			}
			return c.show(cmd.OutOrStdout(), statusOf(resp))
		},
	}
}

func newControllerList(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the daemons that are active or would follow",
		Example: `  controllerd controller list
  controllerd controller list -o json | jq -r '.controllers[] | select(.active) | .endpoint'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			resp, err := ask(cmd.Context(), c, repeatable, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.ListControllersResponse, error) {
				return admin.ListControllers(ctx, &pb.ListControllersRequest{})
			})
			if err != nil {
				return err
			}
			return c.show(cmd.OutOrStdout(), controllersOf(resp))
		},
	}
}

func newControllerHistory(c *client) *cobra.Command {
	var limit int32
	cmd := &cobra.Command{
		Use:   "history",
		Short: "List the terms, the newest first, why each ended and who followed",
		Long: `List the terms, the newest first, why each ended and who followed. The cause is
"current" for the term that runs, and "lost" if nobody wrote one: the lease expired,
or the key was deleted by hand. When such a term ended nobody knows: it lasted for
less than until the next one began. Times are by the clocks of the controllers.`,
		Example: `  controllerd controller history
  controllerd controller history --limit 1000 -o json | jq '[.terms[].cause] | group_by(.) | map({(.[0]): length}) | add'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := ask(cmd.Context(), c, repeatable, func(ctx context.Context, admin pb.AdminServiceClient) (*historyView, error) {
				return history(ctx, admin, limit)
			})
			if err != nil {
				return err
			}
			return c.show(cmd.OutOrStdout(), v)
		},
	}
	cmd.Flags().Int32Var(&limit, "limit", 20, "number of terms; at most 1,000 are kept")
	return cmd
}

// history reads the terms, and which of them is the current one. If a new one
// begins in between, both are read again.
func history(ctx context.Context, admin pb.AdminServiceClient, limit int32) (*historyView, error) {
	for {
		now, err := admin.DescribeController(ctx, &pb.DescribeControllerRequest{})
		if err != nil {
			return nil, err
		}
		terms, err := admin.ListTerms(ctx, &pb.ListTermsRequest{Limit: limit})
		if err != nil {
			return nil, err
		}
		if newest := terms.GetTerms(); len(newest) == 0 || newest[0].GetEpoch() <= now.GetEpoch() {
			return historyOf(terms, now, time.Now().UnixMilli()), nil
		}
	}
}

func newControllerResign(c *client) *cobra.Command {
	var reason string
	var wait bool
	cmd := &cobra.Command{
		Use:   "resign",
		Short: "Make the active daemon give up its seat to another",
		Long: `Make the active daemon give up its seat in order. Another follows within
milliseconds; if there is none, the same one begins a new term. That does no harm,
so there is no question to confirm. With --wait it ends when the next term has
begun, and names who follows.`,
		Example: `  controllerd controller resign --reason "the host is being patched"
  controllerd controller resign --wait -o json | jq -r .next_controller`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := utf8Args(reason); err != nil {
				return err
			}
			ctx, cancel := c.within(cmd)
			defer cancel()
			epoch, err := presentEpoch(ctx, c)
			if err != nil {
				return err
			}
			resp, err := ask(ctx, c, once, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.ResignControllerResponse, error) {
				return admin.ResignController(ctx, &pb.ResignControllerRequest{Reason: reason, Epoch: epoch})
			})
			if err != nil {
				return err
			}
			next := &pb.DescribeControllerResponse{}
			var late error
			if wait {
				late = await(ctx, cmd, c, gaveUp(resp.GetEpoch()), termAfter(resp.GetEpoch(), next))
			}
			v := &resignedView{Epoch: resp.GetEpoch(), NextEpoch: next.GetEpoch(), NextController: next.GetControllerId()}
			return errors.Join(c.show(cmd.OutOrStdout(), v), late)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the history")
	addWait(cmd.Flags(), &wait, false, "the next term has begun")
	return cmd
}

// presentEpoch is the epoch of the newest term, which a command that ends it
// names: the call may be made twice, at one daemon after the other, and is to end
// no second one.
func presentEpoch(ctx context.Context, c *client) (int64, error) {
	resp, err := ask(ctx, c, repeatable, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.DescribeControllerResponse, error) {
		return admin.DescribeController(ctx, &pb.DescribeControllerRequest{})
	})
	return resp.GetEpoch(), err
}

func gaveUp(epoch int64) string {
	return fmt.Sprintf("the controller of epoch %d gave up its seat", epoch)
}
