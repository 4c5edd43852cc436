package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

func newBroker() *cobra.Command {
	c := &client{}
	group := newGroup("broker", "Look at brokers, and drain them", newBrokerList(c), newBrokerDrain(c))
	c.addFlags(group)
	return group
}

func newBrokerList(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the brokers, also those that are down",
		Long: `List the brokers, also those that are down. OFFLINE counts replicas whose storage
has failed, STRAYS those that a broker holds though nobody has assigned them to
it: they are stopped, and their data is kept. Neither is known while no
controller is active. PROBLEM says why a broker gets no commands, or the first
partition that it cannot do as told.`,
		Example: `  controllerd broker list
  controllerd broker list -o json | jq '.brokers[] | select(.live | not) | .id'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			resp, err := ask(cmd.Context(), c, repeatable, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.ListBrokersResponse, error) {
				return admin.ListBrokers(ctx, &pb.ListBrokersRequest{})
			})
			if err != nil {
				return err
			}
			return c.show(cmd.OutOrStdout(), brokersOf(resp, time.Now().UnixMilli()))
		},
	}
}
