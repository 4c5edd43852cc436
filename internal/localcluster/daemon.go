package localcluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/controllerd/controllerd/controller"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/etcdstore"
)

// DaemonConfig describes a daemon.
type DaemonConfig struct {
	ID            string
	Cluster       string
	EtcdEndpoints []string
	Listen        string        // default: a free port of loopback
	Advertise     string        // default: the listen address
	LeaseTTL      time.Duration // default: the shortest
	Strategy      election.Strategy
	Compare       time.Duration
	Unreachable   time.Duration
	Limits        *controller.Limits // default: those of serve
	NoDeathProbe  bool
	Version       string
	Logger        *slog.Logger
	DialOptions   []grpc.DialOption             // to brokers
	EtcdOptions   []grpc.DialOption             // to etcd
	Wrap          func(store.Store) store.Store // faults around the store
	TakenOut      controller.TakenOut
}

// Daemon is one daemon with its services.
type Daemon struct {
	ID         string
	Endpoint   string
	Controller *controller.Controller

	client   *clientv3.Client
	server   *rpc.Server
	orderly  context.CancelFunc
	kill     context.CancelFunc
	stopped  chan struct{}
	stopping context.CancelFunc
}

// StartDaemon starts a daemon.
func StartDaemon(cfg DaemonConfig) (*Daemon, error) {
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	if cfg.LeaseTTL == 0 {
		cfg.LeaseTTL = controller.MinLeaseTTL
	}
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("start daemon %s: %w", cfg.ID, err)
	}
	if cfg.Advertise == "" {
		cfg.Advertise = listener.Addr().String()
	}
	client, err := etcdstore.Dial(etcdstore.Config{Endpoints: cfg.EtcdEndpoints, DialOptions: cfg.EtcdOptions})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	var s store.Store = etcdstore.New(client)
	if cfg.Wrap != nil {
		s = cfg.Wrap(s)
	}
	c, err := controller.New(controller.Config{
		Store: s, Cluster: cfg.Cluster, ID: cfg.ID, Endpoint: cfg.Advertise, Version: cfg.Version,
		LeaseTTL: cfg.LeaseTTL, Strategy: cfg.Strategy, Compare: cfg.Compare, Unreachable: cfg.Unreachable, Limits: cfg.Limits,
		NoDeathProbe: cfg.NoDeathProbe, Logger: cfg.Logger,
		DialOptions: cfg.DialOptions, TakenOut: cfg.TakenOut,
	})
	if err != nil {
		return nil, errors.Join(err, listener.Close(), client.Close())
	}
	d := &Daemon{ID: cfg.ID, Endpoint: cfg.Advertise, Controller: c, client: client, stopped: make(chan struct{})}
	d.run(listener, cfg.Logger)
	return d, nil
}

func (d *Daemon) run(listener net.Listener, log *slog.Logger) {
	orderly, stop := context.WithCancel(context.Background())
	killed, kill := context.WithCancel(context.Background())
	serving, stopServing := context.WithCancel(context.Background())
	d.orderly, d.kill, d.stopping = stop, kill, stopServing
	d.server = rpc.NewServer(d.Controller, log, nil)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = d.server.Serve(serving, listener)
	}()
	go func() {
		defer close(d.stopped)
		d.Controller.RunOrKill(orderly, killed)
		stopServing()
		<-served
		_ = d.client.Close()
	}()
}

// Stop gives up in order, and returns when everything has stopped.
func (d *Daemon) Stop() {
	d.orderly()
	<-d.stopped
	d.release()
}

// Kill ends the daemon as SIGKILL would, and returns when nothing of it runs.
func (d *Daemon) Kill() {
	d.server.Kill()
	d.kill()
	<-d.stopped
	d.release()
}

func (d *Daemon) release() {
	d.orderly()
	d.kill()
	d.stopping()
}
