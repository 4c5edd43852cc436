package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/recovery"
	"github.com/controllerd/controllerd/store"
)

// recoverConfig is what recover was told.
type recoverConfig struct {
	direct
	brokers    []string
	epochAbove int64
	step       int32
	seatWait   time.Duration
	reason     string
	dryRun     bool
	assent
}

func newRecover() *cobra.Command {
	c := &recoverConfig{}
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Raise all epochs after etcd was restored from a snapshot",
		Long: `Raise all epochs after etcd was restored from a snapshot that is older than what
brokers remember. Stop all daemons first, restore etcd with --bump-revision and
--mark-compacted, run this, then start the daemons. docs/RECOVERY.md tells it step
by step.

The brokers that etcd names, and those of --brokers, are asked what they remember.
The controller epoch is raised above the highest; each leader epoch and partition
epoch by a step above the highest of etcd and all brokers. If a broker remembers a
newer state of a partition than etcd holds, its ISR and leader are taken from there.

Nothing is written if no broker knows more than etcd holds, if a daemon holds the
seat, if a broker has not answered (unless --epoch-above speaks for it), or if etcd's
revision is below one that a broker has heard of. As long as a recovery is not
finished no daemon takes the seat: run it again, and it is gone on with.`,
		Example: `  controllerd recover --dry-run
  controllerd recover --yes --reason "disk of etcd lost, snapshot of 03:00"
  controllerd recover --brokers 10.0.0.7:9091,10.0.0.8:9091 --epoch-above 412 -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	f := cmd.Flags()
	c.addEtcdFlags(f)
	f.StringVar(&c.cluster, "cluster", "default", "name under which the cluster's keys are kept: a-z, 0-9 and -")
	c.takeEnv(f)
	f.DurationVar(&c.timeout, "timeout", 30*time.Minute, "how long to try in all")
	f.StringSliceVar(&c.brokers, "brokers", nil, "control addresses of brokers to ask, beside those that etcd names")
	f.Int64Var(&c.epochAbove, "epoch-above", 0, "controller epoch that no broker knows more than; needed if not all brokers answer")
	f.Int32Var(&c.step, "leader-epoch-step", recovery.DefaultStep, "by how much leader and partition epochs are raised above the highest known")
	f.DurationVar(&c.seatWait, "seat-wait", 15*time.Second, "how long to wait until the seat falls free that the snapshot holds")
	f.StringVar(&c.reason, "reason", "", "why, kept in the history")
	f.BoolVar(&c.dryRun, "dry-run", false, "write nothing, say what would be")
	c.assent.addFlags(f)
	c.output.addFlags(f)
	return cmd
}

// errDry ends a recovery that is not to be.
var errDry = errors.New("not to be written")

func (c *recoverConfig) run(cmd *cobra.Command) error {
	if err := c.faults(cmd); err != nil {
		return err
	}
	bar := newProgress(cmd.ErrOrStderr())
	defer bar.end()
	var plan *recovery.Plan
	var outcome error
	err := c.with(cmd.Context(), func(ctx context.Context, s store.Store) error {
		plan, outcome = recovery.Run(ctx, recovery.Config{
			Options: recovery.Options{EpochAbove: cluster.Epoch(c.epochAbove), Step: c.step, Reason: c.reason},
			Store:   s, Keys: c.keys(), Brokers: c.brokers, SeatWait: c.seatWait,
			Confirm:  func(p *recovery.Plan) error { return c.confirm(cmd, p) },
			Progress: func(done, of int) { bar.update(int64(done), int64(of), "partitions are raised") },
		})
		bar.end()
		if errors.Is(outcome, errDry) {
			outcome = nil
			return nil
		}
		return outcome
	})
	if errors.Is(outcome, recovery.ErrUnsettled) {
		err = errors.Join(err, errors.New("the recovery is not finished, and no daemon takes the seat: run controllerd recover again"))
	}
	if plan == nil {
		return err
	}
	v := recoveredOf(plan, c.dryRun, err)
	return errors.Join(c.show(cmd.OutOrStdout(), v), err)
}

// faults is what makes no sense, before etcd is asked.
func (c *recoverConfig) faults(cmd *cobra.Command) error {
	switch {
	case c.step < 1:
		return usagef("--leader-epoch-step is %d, want 1 or more", c.step)
	case c.epochAbove < 0 || cluster.Epoch(c.epochAbove) >= cluster.MaxEpoch:
		return usagef("--epoch-above is %d, want 0 or more, below %d", c.epochAbove, cluster.MaxEpoch)
	case c.seatWait < 0:
		return usagef("--seat-wait is %v, want 0 or more", c.seatWait)
	}
	if err := utf8Args(append(c.brokers, c.reason)...); err != nil || c.dryRun {
		return err
	}
	return c.possible(cmd)
}

// confirm shows the plan and asks, unless it was told not to.
func (c *recoverConfig) confirm(cmd *cobra.Command, p *recovery.Plan) error {
	if c.dryRun {
		return errDry
	}
	if !c.yes {
		if err := recoveredOf(p, true, nil).table().write(cmd.ErrOrStderr(), true); err != nil {
			return err
		}
	}
	sure, err := c.typed(cmd, fmt.Sprintf("To raise the epochs of cluster %s", c.cluster), c.cluster)
	if err == nil && !sure {
		err = errors.New("nothing is written: the name of the cluster was not typed")
	}
	return err
}
