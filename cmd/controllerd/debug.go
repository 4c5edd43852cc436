package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/store"
	"github.com/controllerd/controllerd/store/etcdstore"
)

// direct is how a command reaches etcd itself, and how it shows what is there.
type direct struct {
	output
	etcdConfig
	cluster string
	timeout time.Duration
}

func newDebug() *cobra.Command {
	d := &direct{}
	group := newGroup("debug", "Look at the records in etcd, and write them by hand", newDebugDump(d), newDebugPut(d))
	group.Long = `Look at the records in etcd, and write them by hand. No daemon is asked: etcd must
be reached from here.

A key is named as docs/DESIGN.md lists it, with or without the cluster's prefix:
topics/orders, or /controllerd/default/topics/orders. A topic id within a key may
also be given as Kafka writes it, in 22 characters.

The cluster's name and what leads to etcd are also taken from the environment, as by
serve: $CONTROLLERD_ETCD_ENDPOINTS, say. A password is taken from there or a file.`
	f := group.PersistentFlags()
	d.addFlags(f)
	f.DurationVar(&d.timeout, "timeout", 10*time.Second, "how long to try in all")
	d.output.addFlags(f)
	f.BoolVar(&d.noHeaders, "no-headers", false, "tables without headers")
	return group
}

// addFlags gives a command the flags for a cluster's keys in etcd.
func (d *direct) addFlags(f *pflag.FlagSet) {
	d.addEtcdFlags(f)
	f.StringVar(&d.cluster, "cluster", "default", "name under which the cluster's keys are kept: a-z, 0-9 and -")
	d.takeEnv(f)
}

// takeEnv makes what the environment holds the defaults of the flags so far.
func (d *direct) takeEnv(f *pflag.FlagSet) {
	f.VisitAll(func(fl *pflag.Flag) {
		switch env := os.Getenv(envName(fl.Name)); {
		case env == "":
		case fl.Name == "etcd-endpoints": // to set it would make the flag add to it
			d.endpoints, fl.DefValue = strings.Split(env, ","), "["+env+"]"
		default:
			_ = fl.Value.Set(env) // a string
			fl.DefValue = env
		}
	})
	d.password = os.Getenv(envName(passwordKey))
}

func (d *direct) keys() cluster.Keys { return cluster.KeysOf(d.cluster) }

// key is the whole key for one as people name it.
func (d *direct) key(name string) string {
	name = strings.TrimPrefix(name, d.keys().Prefix())
	dir, rest, ok := strings.Cut(name, "/")
	if ok && (dir == "partitions" || dir == "tombstones") {
		first, tail, _ := strings.Cut(rest, "/")
		if id, err := cluster.ParseTopicID(first); err == nil {
			name = strings.TrimSuffix(dir+"/"+id.Hex()+"/"+tail, "/")
			if dir == "partitions" && tail == "" {
				name += "/"
			}
		}
	}
	return d.keys().Prefix() + name
}

// name is a key as people name it.
func (d *direct) name(key string) string { return strings.TrimPrefix(key, d.keys().Prefix()) }

// with calls fn with the store, within the time that the command has.
func (d *direct) with(ctx context.Context, fn func(context.Context, store.Store) error) error {
	return d.dialed(ctx, func(ctx context.Context, client *clientv3.Client) error { return fn(ctx, etcdstore.New(client)) })
}

// dialed calls fn with a client of etcd, within the time that the command has.
func (d *direct) dialed(ctx context.Context, fn func(context.Context, *clientv3.Client) error) error {
	if err := d.validate(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	client, err := d.dial(limited, slog.New(slog.DiscardHandler))
	if err == nil {
		defer func() { _ = client.Close() }()
		err = fn(limited, client)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errInterrupted
	case errors.Is(err, errInterrupted): // by the time limit, while it logged in
		return noAnswer{strings.Join(d.endpoints, ","), context.DeadlineExceeded}
	case errors.Is(err, store.ErrUnknown) && !errors.Is(err, store.ErrNoSpace):
		return noAnswer{strings.Join(d.endpoints, ","), err}
	}
	return err
}

// validate reports what is wrong with the flags, as a wrong usage.
func (d *direct) validate() error {
	faults := errors.Join(d.etcdFaults(), cluster.ValidateName(d.cluster))
	if d.timeout <= 0 {
		faults = errors.Join(faults, fmt.Errorf("timeout %v is not positive", d.timeout))
	}
	if faults != nil {
		return usageError{faults}
	}
	return nil
}

// noAnswer says that etcd gave no answer.
type noAnswer struct {
	etcd  string
	cause error
}

func (e noAnswer) Error() string {
	what := fmt.Sprintf("no answer from etcd at %s: %v", e.etcd, e.cause)
	if errors.Is(e.cause, context.DeadlineExceeded) {
		what = fmt.Sprintf("no answer from etcd at %s in time", e.etcd)
	}
	if errors.As(e.cause, new(maybeWritten)) {
		what += ": the record may have been written or not, look before you try again"
	}
	return what
}

func (e noAnswer) Unwrap() error { return e.cause }
