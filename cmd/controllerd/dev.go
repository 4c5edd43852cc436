package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"github.com/controllerd/controllerd/controller"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/internal/dev"
	"github.com/controllerd/controllerd/rpc"
)

// devConfig are the flags of dev.
type devConfig struct {
	dev.Config
	output
	verbose bool
}

// firstServer is where client commands look for a daemon, so the first daemon
// of dev is there if it can.
const firstServer = "127.0.0.1:7070"

func newDev() *cobra.Command {
	cfg := devConfig{Config: dev.Config{Listen: firstServer, Version: buildVersion().Version}}
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole cluster in this process, and make it suffer",
		Long: `Run etcd, daemons and brokers in this process, talking over loopback, and tell
on stderr what happens. It ends on Ctrl-C or after --for, with a report on
stdout.

Kills are abrupt: nothing is resigned, deleted or revoked, connections are cut.
A victim starts again after --restart-after: a broker that is away for less than
its session counts as restarted, for longer as down. Kills end early enough
before --for does: the daemons' lease and 3 s.

From outside, by a watch of etcd and by what the brokers accept, the invariants
of the simulation are checked. After --for they are looked at until the cluster
has been at rest for 3 s, for 10 s at most. The exit code is 1 if one is broken
or was never looked at then, or if a partition has no leader that could have one.

Without controllers and brokers it is etcd alone: its address goes to stdout.`,
		Example: `  controllerd dev
  controllerd dev --for 30s --kill-active-every 5s --kill-broker-every 7s -o json
  controllerd dev --data-dir /tmp/cluster
  controllerd dev --controllers 0 --brokers 0 --etcd-listen 127.0.0.1:2379`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			changed := cmd.Flags().Changed
			if !changed("replication-factor") && cfg.Brokers >= 0 {
				cfg.ReplicationFactor = min(cfg.ReplicationFactor, cfg.Brokers)
			}
			if !changed("topics") && cfg.Brokers == 0 {
				cfg.Topics = 0
			}
			if !changed("seed") {
				cfg.Seed = rand.Uint64N(1_000_000)
			}
			for flag, d := range map[string]time.Duration{"lease-ttl": cfg.LeaseTTL, "session-ttl": cfg.SessionTTL, "restart-after": cfg.RestartAfter} {
				if d == 0 { // to dev.Config it would mean the default
					return usagef("--%s is 0, want more", flag)
				}
			}
			return cfg.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.DataDir, "data-dir", "", "keep the data there, to go on with it later (default: a temporary folder)")
	f.StringVar(&cfg.EtcdListen, "etcd-listen", "127.0.0.1:0", "client address of etcd")
	f.StringVar(&cfg.Cluster, "cluster", "default", "name under which the cluster's keys are kept: a-z, 0-9 and -")
	f.IntVar(&cfg.Controllers, "controllers", 3, "number of daemons")
	f.IntVar(&cfg.Brokers, "brokers", 5, "number of brokers")
	f.IntVar(&cfg.Topics, "topics", 4, "number of topics")
	f.IntVar(&cfg.Partitions, "partitions", 12, "number of partitions of each topic")
	f.IntVar(&cfg.ReplicationFactor, "replication-factor", 3, "number of replicas of each partition, at most as many as there are brokers")
	addLimitFlags(f, &cfg.Limits)
	f.DurationVar(&cfg.LeaseTTL, "lease-ttl", controller.MinLeaseTTL, "how long the seat outlives a silent daemon")
	f.TextVar(&cfg.Strategy, "election", election.Race, "`strategy` by which an empty seat is taken: race (whoever comes first) or queue (whoever has waited longest)")
	addProbeFlag(f, &cfg.NoDeathProbe)
	f.DurationVar(&cfg.SessionTTL, "session-ttl", rpc.MinSessionTTL, "how long a silent broker counts as live")
	f.DurationVar(&cfg.For, "for", 0, "how long to run, once everything is up (default: until Ctrl-C)")
	f.DurationVar(&cfg.KillActiveEvery, "kill-active-every", 0, "kill the active controller again and again (default: never)")
	f.DurationVar(&cfg.KillBrokerEvery, "kill-broker-every", 0, "kill some broker again and again (default: never)")
	f.DurationVar(&cfg.RestartAfter, "restart-after", dev.DefaultRestartAfter, "how long a victim stays away")
	f.Uint64Var(&cfg.Seed, "seed", 0, "decides which brokers are killed (default: random)")
	f.BoolVarP(&cfg.verbose, "verbose", "v", false, "the logs of daemons and brokers too")
	cfg.addFlags(f)
	return cmd
}

// run runs the cluster and shows the report. Its error decides the exit code.
func (cfg devConfig) run(ctx context.Context, stdout, stderr io.Writer) error {
	if err := cfg.Validate(); err != nil {
		return usageError{err}
	}
	cfg.Out = stderr
	if cfg.verbose {
		cfg.Logger = slog.New(slog.NewTextHandler(stderr, nil))
	}
	if cfg.EtcdAlone() {
		return cfg.runEtcd(ctx, stdout, stderr)
	}
	report, err := dev.Run(ctx, cfg.Config)
	if err != nil {
		return err
	}
	if err := cfg.show(stdout, report); err != nil {
		return err
	}
	return report.Err()
}

func (cfg devConfig) show(w io.Writer, r dev.Report) error {
	switch cfg.format {
	case "json":
		return writeJSON(w, r)
	case "yaml":
		return writeYAML(w, r)
	}
	return r.Print(w)
}

func (cfg devConfig) runEtcd(ctx context.Context, stdout, stderr io.Writer) error {
	return dev.RunEtcd(ctx, cfg.Config, func(address string) {
		fmt.Fprintf(stderr, "%s etcd alone, ready\n", time.Now().Format(time.TimeOnly))
		fmt.Fprintln(stdout, address)
	})
}
