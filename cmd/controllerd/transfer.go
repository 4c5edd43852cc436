package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

func newControllerTransfer(c *client) *cobra.Command {
	var reason string
	var wait bool
	cmd := &cobra.Command{
		Use:   "transfer ID",
		Short: "Make the active daemon give its seat to a named one",
		Long: `Make the active daemon give its seat to the daemon of that id, which must stand
by. The others leave it the seat for a second. The command ends when the next
term has begun, unless --wait=false; it fails if another daemon was faster.`,
		Example: `  controllerd controller transfer b --reason "a is to be patched"`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want the id of one daemon, have %d arguments", len(args))
			}
			return nil
		},
		ValidArgsFunction: c.completeStandbys,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := utf8Args(reason, args[0]); err != nil {
				return err
			}
			ctx, cancel := c.within(cmd)
			defer cancel()
			epoch, err := presentEpoch(ctx, c)
			if err != nil {
				return err
			}
			resp, err := ask(ctx, c, once, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.TransferControllerResponse, error) {
				return admin.TransferController(ctx, &pb.TransferControllerRequest{Successor: args[0], Reason: reason, Epoch: epoch})
			})
			if err != nil {
				return err
			}
			next := &pb.DescribeControllerResponse{}
			var late error
			if wait {
				late = await(ctx, cmd, c, gaveUp(resp.GetEpoch()), termAfter(resp.GetEpoch(), next))
			}
			v := &transferredView{Ended: resp.GetEpoch(), Epoch: next.GetEpoch(), ControllerID: next.GetControllerId()}
			if wait && late == nil && v.ControllerID != args[0] {
				late = fmt.Errorf("%s was faster than %s", v.ControllerID, args[0])
			}
			return errors.Join(c.show(cmd.OutOrStdout(), v), late)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the history")
	addWait(cmd.Flags(), &wait, true, "the next term has begun")
	return cmd
}

// transferredView is the term that ended and the one that followed; 0 if that
// was not waited for.
type transferredView struct {
	Ended        int64  `json:"ended_epoch"`
	Epoch        int64  `json:"epoch"`
	ControllerID string `json:"controller_id"`
}

func (v *transferredView) table() table {
	if v.Epoch == 0 {
		return table{rows: [][]string{{gaveUp(v.Ended)}}}
	}
	return table{rows: [][]string{{fmt.Sprintf("%s follows with epoch %d", v.ControllerID, v.Epoch)}}}
}
