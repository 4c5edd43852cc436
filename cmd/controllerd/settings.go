package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

func newSettings() *cobra.Command {
	c := &client{}
	group := newGroup("settings", "Look at and change what holds for the whole cluster",
		newSettingsList(c), newSettingsSet(c), newSettingsUnset(c))
	c.addFlags(group)
	return group
}

func newSettingsList(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the settings of the cluster",
		Long: `List the settings that the controller knows, and all others that are set. Those
are the business of brokers, who hear of all of them. A topic may have values of
its own of some, which win (topic alter).`,
		Example: `  controllerd settings list
  controllerd settings list -o json | jq '.settings[] | select(.set)'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			resp, err := ask(cmd.Context(), c, repeatable, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.DescribeSettingsResponse, error) {
				return admin.DescribeSettings(ctx, &pb.DescribeSettingsRequest{})
			})
			if err != nil {
				return err
			}
			return c.show(cmd.OutOrStdout(), settingsOf(resp))
		},
	}
}

// altering is one command that changes settings.
type altering struct {
	c      *client
	dryRun bool
	reason string
}

func (a *altering) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.dryRun, "dry-run", false, "change nothing, say whether it could be")
	cmd.Flags().StringVar(&a.reason, "reason", "", "why, kept with the settings until their next change")
}

func newSettingsSet(c *client) *cobra.Command {
	a := &altering{c: c}
	cmd := &cobra.Command{
		Use:   "set NAME=VALUE...",
		Short: "Change settings of the cluster: all of them, or none",
		Long: `Change settings of the cluster: all of them, or none. They take effect at once, and
stay until they are changed again. A name that the controller does not know is
kept for the brokers.`,
		Example: `  controllerd settings set leader.imbalance.per.broker.percentage=5 --reason "many small brokers"
  controllerd settings set unclean.leader.election.enable=true --dry-run`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeSettings(func(s cluster.Setting) bool { return s.Cluster }, "="),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := parseConfig(args)
			if err != nil {
				return err
			}
			return a.settings(cmd, &pb.AlterSettingsRequest{Set: set})
		},
	}
	a.addFlags(cmd)
	return cmd
}

func newSettingsUnset(c *client) *cobra.Command {
	a := &altering{c: c}
	cmd := &cobra.Command{
		Use:               "unset NAME...",
		Short:             "Let settings of the cluster have their defaults",
		Example:           `  controllerd settings unset unclean.leader.election.enable`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeSettings(func(s cluster.Setting) bool { return s.Cluster }, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.settings(cmd, &pb.AlterSettingsRequest{Unset: args})
		},
	}
	a.addFlags(cmd)
	return cmd
}

func newFreeze(on bool) *cobra.Command {
	c := &client{}
	a := &altering{c: c}
	cmd := &cobra.Command{
		Use:   "freeze",
		Short: "Let automation stand still",
		Long: `Let automation stand still: no leader is moved to balance leaders, and no queued
move of a reassignment begins. What fails is looked after as always, what an
operator asks for is done, and moves that have begun go on to their end. It stays
so, also under other controllers, until unfreeze.`,
		Example: `  controllerd freeze --reason "we look at the disks of rack 2"`,
	}
	if !on {
		cmd.Use, cmd.Short, cmd.Long = "unfreeze", "Let automation go on", ""
		cmd.Example = `  controllerd unfreeze`
	}
	cmd.Args = noArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.settings(cmd, &pb.AlterSettingsRequest{Freeze: &on})
	}
	a.addFlags(cmd)
	c.addFlags(cmd)
	return cmd
}

func (a *altering) settings(cmd *cobra.Command, req *pb.AlterSettingsRequest) error {
	if err := utf8Args(append(slices.Clone(req.GetUnset()), a.reason)...); err != nil {
		return err
	}
	req.ValidateOnly, req.Reason = a.dryRun, a.reason
	resp, err := ask(cmd.Context(), a.c, insistent, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.AlterSettingsResponse, error) {
		return admin.AlterSettings(ctx, req)
	})
	if err != nil {
		return err
	}
	return a.c.show(cmd.OutOrStdout(), &alteredView{Changed: resp.GetChanged(), DryRun: a.dryRun, Revision: resp.GetRevision()})
}

// alteredView is the answer to a change of settings.
type alteredView struct {
	Changed  bool  `json:"changed"`
	DryRun   bool  `json:"dry_run"`
	Revision int64 `json:"revision"`
}

func (v *alteredView) table() table {
	text := "changed"
	switch {
	case !v.Changed:
		text = "nothing to change: it is so already"
	case v.DryRun:
		text = "would be changed"
	}
	return table{rows: [][]string{{text}}}
}

// completeSettings proposes names of settings.
func completeSettings(which func(cluster.Setting) bool, end string) completer {
	return func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, s := range cluster.KnownSettings {
			if which(s) && strings.HasPrefix(s.Name, begun) {
				names = append(names, s.Name+end)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// settingsView is what holds for the whole cluster.
type settingsView struct {
	Settings []settingView `json:"settings"`
	Freeze   *freezeView   `json:"freeze"`
	Reason   string        `json:"reason"` // of the last change
	Changed  string        `json:"changed"`
	Problem  string        `json:"problem"`
	Revision int64         `json:"revision"`
}

type settingView struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Set     bool   `json:"set"`
	Default string `json:"default"`
	Scope   string `json:"scope"`
	Doc     string `json:"doc"`
}

func settingsOf(resp *pb.DescribeSettingsResponse) *settingsView {
	v := &settingsView{
		Settings: []settingView{}, Freeze: freezeOf(resp.GetFreeze()), Reason: resp.GetReason(), Changed: timeOf(resp.GetChangedMs()),
		Problem: resp.GetProblem(), Revision: resp.GetRevision(),
	}
	for _, s := range resp.GetSettings() {
		scope := "cluster"
		switch {
		case s.GetTopicOnly():
			scope = "topic"
		case s.GetTopic():
			scope = "cluster, topic"
		case s.GetDoc() == "":
			scope = "brokers"
		}
		v.Settings = append(v.Settings, settingView{s.GetName(), s.GetValue(), s.GetSet(), s.GetDefault(), scope, s.GetDoc()})
	}
	return v
}

func (v *settingsView) table() table {
	t := table{head: []string{"NAME", "VALUE", "", "SCOPE", "MEANING"}}
	if v.Problem != "" {
		t.title = append(t.title, "the settings cannot be read, everything has its default and automation stands still: "+v.Problem)
	}
	if v.Freeze != nil {
		t.title = append(t.title, v.Freeze.String())
	}
	if v.Reason != "" {
		t.title = append(t.title, fmt.Sprintf("changed last %s: %s", v.Changed, v.Reason))
	}
	for _, s := range v.Settings {
		by := "default"
		if s.Set {
			by = "set"
		}
		t.rows = append(t.rows, []string{s.Name, s.Value, by, s.Scope, s.Doc})
	}
	return t
}

func newTopicAlter(c *client) *cobra.Command {
	a := &altering{c: c}
	var config, unset []string
	cmd := &cobra.Command{
		Use:   "alter NAME...",
		Short: "Change settings of topics, each by itself",
		Long: `Change settings of topics, each by itself. Brokers hear of all of them; of some
(settings list) the controller has one for the whole cluster, over which that of
the topic wins. With delete.protection=true a topic cannot be deleted.`,
		Example: `  controllerd topic alter orders --config min.insync.replicas=2 --unset unclean.leader.election.enable
  controllerd topic alter orders payments --config delete.protection=true --reason "never by accident"`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: c.completeTopics(0),
		RunE: func(cmd *cobra.Command, names []string) error {
			set, err := parseConfig(config)
			if err != nil {
				return err
			}
			if err := utf8Args(slices.Concat(names, unset, []string{a.reason})...); err != nil {
				return err
			}
			if len(set)+len(unset) == 0 {
				return usagef("want --config or --unset")
			}
			return a.topics(cmd, &pb.AlterTopicsRequest{Topics: names, Set: set, Unset: unset})
		},
	}
	cmd.Flags().StringArrayVar(&config, "config", nil, "`name=value` to set; repeat it for more")
	cmd.Flags().StringArrayVar(&unset, "unset", nil, "`name` of a setting to take back; repeat it for more")
	cmd.Flags().BoolVar(&a.dryRun, "dry-run", false, "change nothing, say whether it could be")
	cmd.Flags().StringVar(&a.reason, "reason", "", "why, kept with the topics until the next change of their settings")
	_ = cmd.RegisterFlagCompletionFunc("config", completeSettings(func(s cluster.Setting) bool { return s.Topic }, "="))
	_ = cmd.RegisterFlagCompletionFunc("unset", completeSettings(func(s cluster.Setting) bool { return s.Topic }, ""))
	return cmd
}

func (a *altering) topics(cmd *cobra.Command, req *pb.AlterTopicsRequest) error {
	req.ValidateOnly, req.Reason = a.dryRun, a.reason
	resp, err := ask(cmd.Context(), a.c, insistent, func(ctx context.Context, admin pb.AdminServiceClient) (*pb.AlterTopicsResponse, error) {
		return admin.AlterTopics(ctx, req)
	})
	if err != nil {
		return err
	}
	v := &alteredTopicsView{Topics: []alteredTopic{}, DryRun: a.dryRun, Revision: resp.GetRevision()}
	faults := []error{nil}
	for _, r := range resp.GetResults() {
		v.Topics = append(v.Topics, alteredTopic{r.GetTopic(), r.GetConfig(), r.GetError(), r.GetMessage()})
		if r.GetError() != "" {
			faults = append(faults, fmt.Errorf("%s: %s: %s", r.GetTopic(), r.GetError(), r.GetMessage()))
		}
	}
	faults[0] = a.c.show(cmd.OutOrStdout(), v)
	return errors.Join(faults...)
}

// alteredTopicsView is the answer to topic alter.
type alteredTopicsView struct {
	Topics   []alteredTopic `json:"topics"`
	DryRun   bool           `json:"dry_run"`
	Revision int64          `json:"revision"`
}

type alteredTopic struct {
	Topic   string            `json:"topic"`
	Config  map[string]string `json:"config"`
	Error   string            `json:"error"`
	Message string            `json:"message"`
}

// table shows what the topics set now; errors are reported apart.
func (v *alteredTopicsView) table() table {
	t := table{head: []string{"TOPIC", "CONFIG"}}
	for _, a := range v.Topics {
		if a.Error == "" {
			t.rows = append(t.rows, []string{a.Topic, configText(a.Config)})
		}
	}
	if t.rows == nil {
		return table{}
	}
	return t
}

// configText is a configuration on a line.
func configText(config map[string]string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(config)) {
		pairs = append(pairs, name+"="+config[name])
	}
	return strings.Join(pairs, " ")
}
