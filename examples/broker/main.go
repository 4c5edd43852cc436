// Command broker is one broker process on the SDK, without data: it obeys the
// controller, and as a leader it reports followers that are back as caught up.
// What the gate decides on each command is written as JSON lines, which makes
// it a recording broker for tests; it can delay, hang and fail on purpose.
//
// Clients are served on a listener of its own kind: a bounded queue before a
// bounded number of handlers, as in Kafka. However busy that is, commands are
// not held up.
//
// Try it beside a running daemon:
//
//	go run ./examples/broker --id 1 --daemons 127.0.0.1:7070
//
// Each line has the time of the decision, the sender (controller id), ce, be,
// le and pe (controller, broker, leader and partition epoch), topic, partition
// and result; the partition is -1 if the line is about a whole command.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/internal/demobroker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code: 0 stopped in order, 1 failed, 2 bad usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opts, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "broker: %v\n", err)
		return 2
	}
	if err := serve(ctx, opts, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "broker: %v\n", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, opts *options, stdout, stderr io.Writer) (err error) {
	cfg := opts.broker
	if cfg.NodeUUID, err = opts.nodeUUID(); err != nil {
		return err
	}
	cfg.Logger = slog.New(slog.NewTextHandler(stderr, nil))
	if opts.log != "" {
		f, err := os.OpenFile(opts.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return fmt.Errorf("open log of commands: %w", err)
		}
		defer f.Close()
		stdout = f
	}
	record := newRecorder(stdout)
	defer func() { err = errors.Join(err, record.close()) }()
	cfg.Observer = record.observe

	metrics, err := listenForMetrics(opts.metricsListen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, metrics.close()) }()
	data, err := listenForData(opts.data, metrics.counted(opts.data.echo))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.close()) }()
	endpoint := broker.Endpoint{Listener: "data", Address: cmp.Or(opts.dataAdvertise, data.addr())}
	cfg.Endpoints = append(cfg.Endpoints, endpoint)

	b, err := demobroker.Start(ctx, demobroker.Config{Broker: cfg, CaughtUpAfter: opts.caughtUpAfter, Fault: opts.faults.apply})
	if err != nil {
		return err
	}
	metrics.serve(b)
	cfg.Logger.Info("serving commands", "id", int32(cfg.ID), "control", b.ControlAddress(), "data", data.addr(), "metrics", metrics.addr(), "node", cfg.NodeUUID)
	return b.Wait()
}
