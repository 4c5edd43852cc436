package dev

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/controller"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/internal/unfenced"
	"github.com/controllerd/controllerd/rpc"
)

const (
	// maxDaemons and maxBrokers are what one machine can still run.
	maxDaemons = 50
	maxBrokers = 1000
	// DefaultRestartAfter is how long a victim stays away.
	DefaultRestartAfter = 3 * time.Second
	// calm is how long before the end the lease of the last victim must have
	// expired, so that the end is judged at rest.
	calm = 3 * time.Second
)

// Config describes the cluster and its fate. Only Out has no default.
type Config struct {
	// DataDir keeps etcd's data. Empty: a temporary folder, removed at the end.
	DataDir string
	// EtcdListen is the client address of etcd. Default: a free port.
	EtcdListen string
	// Cluster is the name under which the keys are kept.
	Cluster string
	// Listen is the address of the first daemon, if it is free. The others, and
	// it if not, take free ports of loopback.
	Listen string

	Controllers, Brokers, Topics, Partitions, ReplicationFactor int

	// Limits of what is created; each 0: none.
	Limits controller.Limits

	// LeaseTTL is that of daemons, SessionTTL that of brokers.
	LeaseTTL, SessionTTL time.Duration

	// Strategy decides which daemon takes an empty seat.
	Strategy election.Strategy

	// NoDeathProbe turns proofs of death off.
	NoDeathProbe bool

	// For ends the run that long after the cluster was ready. 0: never.
	For time.Duration
	// KillActiveEvery and KillBrokerEvery are the intervals of kills. 0: none.
	KillActiveEvery, KillBrokerEvery time.Duration
	// RestartAfter is how long a victim stays away. A broker that is away for
	// less than SessionTTL is never seen to be down, but to have restarted.
	RestartAfter time.Duration
	// Seed decides which brokers are killed.
	Seed uint64

	Version string
	// Out gets the account of what happens.
	Out io.Writer
	// Logger gets the logs of daemons and brokers. Default: none.
	Logger *slog.Logger

	// Unfenced takes the gate out of the brokers, and Intercept stands between
	// daemons and brokers; both for tests.
	Unfenced  unfenced.Switch
	Intercept grpc.StreamClientInterceptor
}

func (c Config) withDefaults() Config {
	if c.EtcdListen == "" {
		c.EtcdListen = loopback
	}
	if c.Listen == "" {
		c.Listen = loopback
	}
	if c.Cluster == "" {
		c.Cluster = "default"
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = controller.MinLeaseTTL
	}
	if c.SessionTTL == 0 {
		c.SessionTTL = rpc.MinSessionTTL
	}
	if c.RestartAfter == 0 {
		c.RestartAfter = DefaultRestartAfter
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// EtcdAlone reports whether there is nothing but etcd.
func (c Config) EtcdAlone() bool { return c.Controllers == 0 && c.Brokers == 0 }

// Validate reports all that is wrong, in terms of the flags of "controllerd
// dev".
func (c Config) Validate() error {
	c = c.withDefaults()
	var faults []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	if err := cluster.ValidateName(c.Cluster); err != nil {
		faults = append(faults, err)
	}
	_, port, err := net.SplitHostPort(c.EtcdListen)
	_, noPort := strconv.ParseUint(port, 10, 16)
	fault(err != nil || noPort != nil, "--etcd-listen %q is not host:port", c.EtcdListen)
	between := func(flag string, n, least, most int) {
		fault(n < least || n > most, "%s is %d, want %d to %d", flag, n, least, most)
	}
	between("--controllers", c.Controllers, 0, maxDaemons)
	between("--brokers", c.Brokers, 0, maxBrokers)
	between("--topics", c.Topics, 0, 1000)
	if c.Topics > 0 {
		between("--partitions", c.Partitions, 1, cluster.MaxPartitions)
		fault(c.ReplicationFactor < 1, "--replication-factor is %d, want 1 or more", c.ReplicationFactor)
		fault(c.Brokers >= 0 && c.ReplicationFactor > c.Brokers, "--replication-factor %d needs as many brokers, --brokers is %d", c.ReplicationFactor, c.Brokers)
	}
	if err := c.Limits.Validate(); err != nil {
		faults = append(faults, err)
	}
	c.checkLimits(fault)
	fault(c.Controllers == 0 && c.Brokers > 0, "--brokers %d without --controllers: nobody would register them", c.Brokers)
	fault(c.LeaseTTL < controller.MinLeaseTTL, "--lease-ttl is %v, want %v or more", c.LeaseTTL, controller.MinLeaseTTL)
	fault(c.SessionTTL < rpc.MinSessionTTL || c.SessionTTL > rpc.MaxSessionTTL,
		"--session-ttl is %v, want %v to %v", c.SessionTTL, rpc.MinSessionTTL, rpc.MaxSessionTTL)
	fault(c.For < 0, "--for is %v, want 0 or more", c.For)
	fault(c.RestartAfter < 0, "--restart-after is %v, want more than 0", c.RestartAfter)
	kills := func(flag string, every time.Duration, of int, victims string) {
		fault(every < 0, "%s is %v, want 0 or more", flag, every)
		fault(every > 0 && of == 0, "%s without --%s: there is nobody to kill", flag, victims)
		fault(every > 0 && c.For > 0 && every > c.For-c.rest(),
			"--for %v leaves no time for %s %v: kills end %v before", c.For, flag, every, c.rest())
	}
	kills("--kill-active-every", c.KillActiveEvery, c.Controllers, "controllers")
	kills("--kill-broker-every", c.KillBrokerEvery, c.Brokers, "brokers")
	return errors.Join(faults...)
}

// checkLimits reports limits that would keep the topics from being created.
func (c Config) checkLimits(fault func(wrong bool, format string, args ...any)) {
	if c.Topics < 1 || c.Partitions < 1 {
		return
	}
	exceeded := func(flag string, limit, n int) {
		fault(limit > 0 && n > limit, "--topics %d of --partitions %d exceed %s %d", c.Topics, c.Partitions, flag, limit)
	}
	exceeded("--max-partitions-per-topic", c.Limits.PerTopic, c.Partitions)
	exceeded("--max-partitions-per-request", c.Limits.PerRequest, c.Topics*c.Partitions)
	exceeded("--max-partitions", c.Limits.PerCluster, c.Topics*c.Partitions)
}

// rest is how long before the end the last victim dies.
func (c Config) rest() time.Duration { return c.LeaseTTL + max(calm, c.RestartAfter) }

// topicNames are the names of the topics, as many as asked for.
func (c Config) topicNames() []string {
	names := []string{"orders", "payments", "shipments", "users"}
	for n := len(names); n < c.Topics; n++ {
		names = append(names, "topic-"+strconv.Itoa(n+1))
	}
	return names[:c.Topics]
}
