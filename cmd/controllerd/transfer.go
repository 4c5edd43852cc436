package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

func newControllerTransfer(c *client) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "transfer ID",
		Short: "Make the active daemon give its seat to a named one",
		Long: `Make the active daemon give its seat to the daemon of that id, which must stand
by. The others leave it the seat for a second. The command ends when the next
term has begun; it fails if another daemon was faster.`,
		Example: `  controllerd controller transfer b --reason "a is to be patched"`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want the id of one daemon, have %d arguments", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := utf8Args(reason, args[0]); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), max(c.timeout, 0))
			defer cancel()
			resp, err := ask(ctx, c, once, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.TransferControllerResponse, error) {
				return admin.TransferController(ctx, &pb.TransferControllerRequest{Successor: args[0], Reason: reason})
			})
			if err != nil {
				return err
			}
			next, err := ask(ctx, c, repeatable, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.DescribeControllerResponse, error) {
				return nextTerm(ctx, admin, resp.GetEpoch())
			})
			if err != nil {
				return fmt.Errorf("the controller of epoch %d gave up its seat, who follows is unknown: %w", resp.GetEpoch(), err)
			}
			v := &transferredView{Ended: resp.GetEpoch(), Epoch: next.GetEpoch(), ControllerID: next.GetControllerId()}
			if err := c.show(cmd.OutOrStdout(), v); err != nil {
				return err
			}
			if v.ControllerID != args[0] {
				return fmt.Errorf("%s was faster than %s", v.ControllerID, args[0])
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the history")
	return cmd
}

// nextTerm waits until a daemon sees a term after that of the given epoch.
func nextTerm(ctx context.Context, admin pb.AdminServiceClient, ended int64) (*pb.DescribeControllerResponse, error) {
	for {
		now, err := admin.DescribeController(ctx, &pb.DescribeControllerRequest{})
		if err != nil || now.GetEpoch() > ended && now.GetControllerId() != "" {
			return now, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// transferredView is the term that ended and the one that followed.
type transferredView struct {
	Ended        int64  `json:"ended_epoch"`
	Epoch        int64  `json:"epoch"`
	ControllerID string `json:"controller_id"`
}

func (v *transferredView) table() table {
	return table{rows: [][]string{{fmt.Sprintf("%s follows with epoch %d", v.ControllerID, v.Epoch)}}}
}
