package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/controller"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/internal/hook"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/etcdstore"
)

// serveConfig are the flags of serve.
type serveConfig struct {
	etcdConfig
	endpointsOnly bool
	embedded      embeddedConfig
	pagesConfig
	cluster   string
	id        string
	listen    string
	advertise string
	leaseTTL  time.Duration
	election  election.Strategy
	limits    controller.Limits
	onChange  hook.Target
	noProbe   bool
}

func newServe() *cobra.Command {
	cfg := serveConfig{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run one daemon beside an etcd cluster",
		Long: `Run one daemon. Start several of them with different ids on the same etcd
and cluster name: one is active, the others are ready to follow within
milliseconds. SIGTERM gives up the seat in order.

Without an etcd of your own, --embedded-etcd runs a member in the daemon: a
single one, or with --embedded-etcd-peers one of three, of which any may fail.

Each flag may also be given as a variable of the environment (--lease-ttl as
CONTROLLERD_LEASE_TTL) or in the file that --config names (lease-ttl: 5s). Flags
win over the environment, the environment over the file. See "config show".`,
		Example: `  controllerd serve --etcd-endpoints 10.0.0.1:2379,10.0.0.2:2379 --id a
  controllerd serve --etcd-endpoints 127.0.0.1:2379 --id b --listen 127.0.0.1:7071
  controllerd serve --embedded-etcd /var/lib/controllerd
  controllerd serve --embedded-etcd /var/lib/controllerd --id a \
    --embedded-etcd-peers a=http://10.0.0.1:2380,b=http://10.0.0.2:2380,c=http://10.0.0.3:2380 \
    --embedded-etcd-listen-client 10.0.0.1:2379 --listen 10.0.0.1:7070`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := settle(cmd.Flags(), os.Environ())
			if err := cfg.faults(settings, err); err != nil {
				return err
			}
			return serve(cmd.Context(), cfg, cmd.ErrOrStderr())
		},
	}
	cfg.addFlags(cmd.Flags())
	layer(cmd.Flags())
	return cmd
}

func (cfg *serveConfig) addFlags(f *pflag.FlagSet) {
	cfg.addEtcdFlags(f)
	f.StringVar(&cfg.password, passwordKey, "", "password of --etcd-user; not as a flag")
	f.BoolVar(&cfg.endpointsOnly, "etcd-endpoints-only", false, "use no other members of the etcd cluster than --etcd-endpoints, because they are proxies, say; without, all that the cluster lists are used too")
	cfg.embedded.addFlags(f)
	f.StringVar(&cfg.cluster, "cluster", "default", "name under which the cluster's keys are kept: a-z, 0-9 and -")
	f.StringVar(&cfg.id, "id", "", "name of this daemon, different from that of every other (default: the host's name and the port)")
	f.StringVar(&cfg.listen, "listen", "127.0.0.1:7070", "address of the gRPC services")
	f.StringVar(&cfg.advertise, "advertise", "", "address at which brokers and other daemons reach it (default: the listen address, with the host's name for all addresses)")
	f.TextVar(&cfg.election, "election", election.Race, "`strategy` by which an empty seat is taken: race (whoever comes first) or queue (whoever has waited longest); the same for all daemons of a cluster")
	f.DurationVar(&cfg.leaseTTL, "lease-ttl", controller.DefaultLeaseTTL, "how long the seat outlives a silent daemon, at least 2s")
	cfg.addPagesFlags(f)
	addProbeFlag(f, &cfg.noProbe)
	addLimitFlags(f, &cfg.limits)
	f.Var(&cfg.onChange, "on-controller-change", "command to run, or http(s) URL to post to, once in each term of this daemon; it is told epoch, id and how the term before ended in its environment (CONTROLLERD_EPOCH, ...) or as JSON")
}

// addProbeFlag gives a command the flag that turns proofs of death off.
func addProbeFlag(f *pflag.FlagSet, off *bool) {
	f.BoolVar(off, "no-death-probe", false, "do not take an active controller or a broker for dead when its connection breaks and its address refuses new ones for 200ms, but wait for its lease to expire; for addresses that are not the process's own, as that of a Kubernetes service")
}

// addLimitFlags gives a command the flags for what may be created.
func addLimitFlags(f *pflag.FlagSet, l *controller.Limits) {
	*l = controller.DefaultLimits
	f.IntVar(&l.PerTopic, "max-partitions-per-topic", l.PerTopic, "limit of partitions of a new topic, 0: none")
	f.IntVar(&l.PerRequest, "max-partitions-per-request", l.PerRequest, "limit of partitions of one request to create topics, 0: none")
	f.IntVar(&l.PerCluster, "max-partitions", l.PerCluster, "partitions of the cluster above which no topic is created, 0: no limit")
}

// noArgs refuses arguments as a wrong usage.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unexpected argument %q for %q", args[0], cmd.CommandPath())}
	}
	return nil
}

// stopLimit is how long stopping may take, whatever hangs.
const stopLimit = 8 * time.Second

// pingTimeout bounds the question why etcd does not answer.
const pingTimeout = time.Second

// serve runs one daemon until the context ends, and before and after it the
// member of etcd that is its own.
func serve(ctx context.Context, cfg serveConfig, stderr io.Writer) error {
	log := slog.New(slog.NewTextHandler(stderr, nil))
	if cfg.embedded.dir == "" {
		return cfg.serve(ctx, log)
	}
	member, err := cfg.startMember(ctx, log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case err := <-member.Err():
			cancel(fmt.Errorf("etcd member ended: %w", cmp.Or(err, errors.New("it stopped"))))
		case <-ctx.Done():
		}
	}()
	err = cfg.serve(ctx, log)
	cancel(nil)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		err = errors.Join(cause, err)
	}
	return errors.Join(err, member.Stop())
}

// serve runs one daemon on an etcd until the context ends.
func (cfg serveConfig) serve(ctx context.Context, log *slog.Logger) error {
	client, err := cfg.dial(ctx, log)
	if ctx.Err() != nil && client == nil {
		return nil // told to stop before it was let in
	}
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	if !cfg.endpointsOnly {
		defer follow(ctx, client, cfg.secured(), log)()
	}
	listener, err := net.Listen("tcp", cfg.listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", cfg.listen, err)
	}
	warnIfExposed(log, listener.Addr())
	pages, err := cfg.pagesConfig.listen()
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	config := cfg.controller(pages.calls.Wrap(etcdstore.New(client)), listener.Addr().String())
	config.Logger = log
	daemon, err := controller.New(config)
	if err != nil {
		return errors.Join(err, listener.Close(), pages.close())
	}
	log.Info("serving", "controller", config.ID, "cluster", config.Cluster, "address", listener.Addr().String(),
		"advertised", config.Endpoint, "etcd", strings.Join(cfg.endpoints, ","))
	context.AfterFunc(ctx, func() {
		log.Info("stopping in order, a second signal stops at once")
		time.AfterFunc(stopLimit, func() { // the lease expires by itself
			log.Warn("stopping took too long, stopping at once")
			os.Exit(0)
		})
	})
	go sayWaiting(ctx, daemon, log, func(ctx context.Context) error {
		return etcdstore.Ping(ctx, client, cluster.KeysOf(cfg.cluster).Cluster())
	})
	return runDaemon(ctx, daemon, listener, hook.NewRunner(cfg.onChange, log), pages, log)
}

// follow lets the client find other members, until stop is called.
func follow(ctx context.Context, client *clientv3.Client, secured bool, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() {
		etcdstore.Follow(ctx, client, secured, func(found []string) {
			log.Info("members of etcd found, beside those that were given", "endpoints", strings.Join(found, ","))
		})
	})
	return func() {
		cancel()
		following.Wait()
	}
}

// faults is all that is wrong with the configuration, beside what settle has
// found, as a wrong usage.
func (cfg *serveConfig) faults(settings []setting, found error) error {
	faults := []error{found}
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	_, _, err := net.SplitHostPort(cfg.listen)
	fault(err != nil, "listen address %q is not host:port", cfg.listen)
	fault(cfg.advertise != "" && !isAddress(cfg.advertise), "advertised address %q is not host:port", cfg.advertise)
	fault(cfg.leaseTTL == 0, "lease TTL is 0") // to controller.Config it would mean the default
	faults = append(faults, cfg.etcdFaults(), cfg.embeddedFaults(settings), cfg.pagesFaults(), cfg.listenFaults(), cfg.controller(unused{}, cfg.listen).Validate())
	if err := errors.Join(faults...); err != nil {
		return usageError{err}
	}
	return nil
}

// listenFaults are the addresses at which more than one part of the daemon would
// listen.
func (cfg *serveConfig) listenFaults() error {
	listens := [][2]string{{"--listen", cfg.listen}, {"--metrics-listen", cfg.metricsListen}, {"--admin-listen", cfg.adminListen}}
	if m := cfg.embedded; m.dir != "" {
		listens = append(listens, [2]string{"--" + embeddedKey + "-listen-client", m.listenClient})
		if m.listenPeer != "" {
			listens = append(listens, [2]string{"--" + embeddedKey + "-listen-peer", m.listenPeer})
		} else if members, err := cfg.members(); err == nil {
			listens = append(listens, [2]string{"its own URL in --" + embeddedKey + "-peers", members[cfg.memberName()]})
		}
	}
	var faults []error
	taken := map[string]string{}
	for _, l := range listens {
		_, port, err := net.SplitHostPort(l[1])
		if err != nil || port == "0" {
			continue
		}
		if other := taken[l[1]]; other != "" {
			faults = append(faults, fmt.Errorf("%s and %s are both %s", l[0], other, l[1]))
		}
		taken[l[1]] = l[0]
	}
	return errors.Join(faults...)
}

// unused stands for the store that a configuration is checked without.
type unused struct{ store.Store }

// isAddress reports whether somebody could dial an address.
func isAddress(s string) bool {
	host, port, err := net.SplitHostPort(s)
	return err == nil && host != "" && port != "" && port != "0"
}

// advertised is the address that others are told to dial: one that was given,
// or the one that is listened on.
func advertised(listen, given string) string {
	host, port, _ := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() { // nobody else can dial it
		host = hostName()
	}
	return cmp.Or(given, net.JoinHostPort(host, port))
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "controllerd"
	}
	return name
}

// controller fills in what the flags leave open, for a daemon that listens on
// an address.
func (cfg serveConfig) controller(s store.Store, listen string) controller.Config {
	_, port, _ := net.SplitHostPort(listen)
	return controller.Config{
		Store:    s,
		Cluster:  cfg.cluster,
		ID:       cmp.Or(cfg.id, hostName()+"-"+port),
		Endpoint: advertised(listen, cfg.advertise),
		Version:  buildVersion().Version,
		LeaseTTL: cfg.leaseTTL,
		Strategy: cfg.election,
		Limits:   &cfg.limits,

		NoDeathProbe: cfg.noProbe,
	}
}

// runDaemon runs a daemon and its services. The listener closes last, so that
// callers hear who follows for as long as possible.
func runDaemon(ctx context.Context, daemon *controller.Controller, listener net.Listener, hooks *hook.Runner, pages *httpPages, log *slog.Logger) error {
	server := rpc.NewServer(daemon, log, nil)
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	served := make(chan error, 1)
	go func() { served <- server.Serve(serving, listener) }()
	pages.serve(serving, daemon, log)
	go tellTerms(ctx, daemon, hooks)
	var told sync.WaitGroup
	told.Go(func() { manager{daemon, log}.follow(ctx) })
	daemon.Run(ctx)
	told.Wait()
	stopServing()
	err := <-served
	hooks.Wait()
	pages.wait()
	log.Info("stopped")
	return err
}

// sayWaiting speaks up as long as etcd has never answered, and says what a
// ping says of the reason.
func sayWaiting(ctx context.Context, daemon *controller.Controller, log *slog.Logger, ping func(context.Context) error) {
	for patience := 2 * time.Second; ; patience = 10 * time.Second {
		limited, cancel := context.WithTimeout(ctx, patience)
		err := daemon.Await(limited, func(v rpc.View) bool { return v.Image.Rev > 0 })
		cancel()
		if err == nil || ctx.Err() != nil || errors.Is(err, controller.ErrStopped) {
			return
		}
		limited, cancel = context.WithTimeout(ctx, pingTimeout)
		reason := ping(limited)
		cancel()
		log.Warn("etcd has not answered yet, still trying", "error", reason)
	}
}

// warnIfExposed speaks up when anybody on the network may command the cluster.
func warnIfExposed(log *slog.Logger, addr net.Addr) {
	if exposed(addr) {
		log.Warn("LISTENING BEYOND LOOPBACK WITHOUT TLS OR ROLES: everybody who reaches this address can command the cluster",
			"address", addr.String())
	}
}
