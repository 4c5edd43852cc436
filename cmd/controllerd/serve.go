package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/controllerd/controllerd/controller"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store/etcdstore"
)

// serveConfig are the flags of serve.
type serveConfig struct {
	endpoints []string
	cluster   string
	id        string
	listen    string
	advertise string
	leaseTTL  time.Duration
}

func newServe() *cobra.Command {
	cfg := serveConfig{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run one daemon beside an etcd cluster",
		Long: `Run one daemon. Start several of them with different ids on the same etcd
and cluster name: one is active, the others are ready to follow within
milliseconds. SIGTERM gives up the seat in order.`,
		Example: `  controllerd serve --etcd-endpoints 10.0.0.1:2379,10.0.0.2:2379 --id a
  controllerd serve --etcd-endpoints 127.0.0.1:2379 --id b --listen 127.0.0.1:7071`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), cfg) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&cfg.endpoints, "etcd-endpoints", []string{"127.0.0.1:2379"}, "members of the etcd cluster")
	f.StringVar(&cfg.cluster, "cluster", "default", "name under which the cluster's keys are kept: a-z, 0-9 and -")
	f.StringVar(&cfg.id, "id", "", "name of this daemon, different from that of every other (default: the host's name and the port)")
	f.StringVar(&cfg.listen, "listen", "127.0.0.1:7070", "address of the gRPC services")
	f.StringVar(&cfg.advertise, "advertise", "", "address at which brokers and other daemons reach it (default: the listen address)")
	f.DurationVar(&cfg.leaseTTL, "lease-ttl", controller.DefaultLeaseTTL, "how long the seat outlives a silent daemon, at least 2s")
	return cmd
}

// noArgs refuses arguments as a wrong usage.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unexpected argument %q for %q", args[0], cmd.CommandPath())}
	}
	return nil
}

// serve runs one daemon until the context ends.
func serve(ctx context.Context, cfg serveConfig) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	client, err := etcdstore.Dial(etcdstore.Config{Endpoints: cfg.endpoints})
	if err != nil {
		return usageError{err}
	}
	defer func() { _ = client.Close() }()
	listener, err := net.Listen("tcp", cfg.listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", cfg.listen, err)
	}
	warnIfExposed(log, listener.Addr())
	if cfg.advertise == "" {
		cfg.advertise = listener.Addr().String()
	}
	if cfg.id == "" {
		cfg.id = defaultID(listener.Addr())
	}
	daemon, err := controller.New(controller.Config{
		Store: etcdstore.New(client), Cluster: cfg.cluster, ID: cfg.id, Endpoint: cfg.advertise,
		Version: buildVersion().Version, LeaseTTL: cfg.leaseTTL, Logger: log,
	})
	if err != nil {
		return errors.Join(usageError{err}, listener.Close())
	}
	log.Info("serving", "controller", cfg.id, "cluster", cfg.cluster, "address", listener.Addr().String(),
		"etcd", strings.Join(cfg.endpoints, ","))
	return runDaemon(ctx, daemon, listener, log)
}

// runDaemon runs a daemon and its services. The listener closes last, so that
// callers hear who follows for as long as possible.
func runDaemon(ctx context.Context, daemon *controller.Controller, listener net.Listener, log *slog.Logger) error {
	server := rpc.NewServer(daemon, log, nil)
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	served := make(chan error, 1)
	go func() { served <- server.Serve(serving, listener) }()
	daemon.Run(ctx)
	stopServing()
	return <-served
}

// warnIfExposed speaks up when anybody on the network may command the cluster.
func warnIfExposed(log *slog.Logger, addr net.Addr) {
	if tcp, ok := addr.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		log.Warn("LISTENING BEYOND LOOPBACK WITHOUT TLS OR ROLES: everybody who reaches this address can command the cluster",
			"address", addr.String())
	}
}

func defaultID(addr net.Addr) string {
	host, err := os.Hostname()
	if err != nil {
		host = "controllerd"
	}
	_, port, _ := net.SplitHostPort(addr.String())
	return host + "-" + port
}
