package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/controllerd/controllerd/election"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// completionTime is how long a shell waits for what a daemon may know.
const completionTime = time.Second

// completer proposes what may come next on a command line.
type completer = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// proposals asks the daemons for names. Without an answer nothing is proposed.
func (c *client) proposals(cmd *cobra.Command, fn func(context.Context, pb.AdminServiceClient) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	quick := *c
	quick.timeout = min(c.timeout, completionTime)
	names, err := ask(cmd.Context(), &quick, repeatable, fn)
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeTopics proposes topics that are not named yet, for at most so many
// arguments; 0: any number.
func (c *client) completeTopics(most int) completer {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c.proposals(cmd, func(ctx context.Context, admin pb.AdminServiceClient) ([]string, error) {
			v, err := listTopics(ctx, admin)
			if err != nil {
				return nil, err
			}
			var names []string
			for _, t := range v.Topics {
				if strings.HasPrefix(t.Name, begun) && !slices.Contains(args, t.Name) {
					names = append(names, t.Name)
				}
			}
			return names, nil
		})
	}
}

// completeBroker proposes live brokers as the first argument, and then topics.
func (c *client) completeBroker(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return c.completeTopics(0)(cmd, args[1:], begun)
	}
	return c.proposals(cmd, func(ctx context.Context, admin pb.AdminServiceClient) ([]string, error) {
		resp, err := admin.ListBrokers(ctx, &pb.ListBrokersRequest{})
		if err != nil {
			return nil, err
		}
		var ids []string
		for _, b := range resp.GetBrokers() {
			if id := str(b.GetId()); b.GetLive() && strings.HasPrefix(id, begun) {
				ids = append(ids, id)
			}
		}
		return ids, nil
	})
}

// completeStandbys proposes the daemons that may get the seat.
func (c *client) completeStandbys(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.proposals(cmd, func(ctx context.Context, admin pb.AdminServiceClient) ([]string, error) {
		resp, err := admin.ListControllers(ctx, &pb.ListControllersRequest{})
		if err != nil {
			return nil, err
		}
		var ids []string
		for _, d := range resp.GetControllers() {
			if !d.GetActive() && strings.HasPrefix(d.GetId(), begun) {
				ids = append(ids, d.GetId())
			}
		}
		return ids, nil
	})
}

// completeTopicFlag lets a shell propose topics as values of a flag.
func (c *client) completeTopicFlag(cmd *cobra.Command, flag string) {
	topics := c.completeTopics(0)
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return topics(cmd, nil, begun)
	}) // fails if there is one already
}

// flagChoices are the values that flags of a name may have, wherever they are.
var flagChoices = map[string][]string{
	"output":   formats,
	"election": {election.Race.String(), election.Queue.String()},
}

// addChoices lets a shell propose the values of flags, and no files where no
// arguments are taken.
func addChoices(cmd *cobra.Command) {
	for name, values := range flagChoices {
		if cmd.Flags().Lookup(name) != nil || cmd.PersistentFlags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // fails if there is one already
		}
	}
	if !cmd.HasSubCommands() && cmd.Runnable() && cmd.ValidArgsFunction == nil && cmd.Args != nil && cmd.Args(cmd, []string{"x"}) != nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, sub := range cmd.Commands() {
		addChoices(sub)
	}
}
