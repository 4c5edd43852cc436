package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/demobroker"
	"github.com/controllerd/controllerd/rpc"
)

// options are what the flags say.
type options struct {
	broker        broker.Config
	dataDir       string
	log           string
	caughtUpAfter time.Duration
	faults        faults
	data          dataConfig
	dataAdvertise string
	metricsListen string
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{faults: faults{delay: map[string]time.Duration{}, hang: map[string]bool{}, fail: map[string]bool{}}}
	fs := flag.NewFlagSet("broker", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // the caller prints the error, once
	fs.Usage = func() {
		fs.SetOutput(stderr)
		fmt.Fprintln(stderr, "usage: broker --id N --daemons host:port[,host:port...] [flags]")
		fs.PrintDefaults()
		fs.SetOutput(io.Discard)
	}
	o.broker.ID = noID
	fs.Func("id", "broker `id`, 0 and above (required)", o.setID)
	daemons := fs.String("daemons", "", "`addresses` of daemons, separated by commas (required)")
	fs.StringVar(&o.broker.NodeUUID, "node-uuid", "", "`uuid` of the node that owns the id (default: kept in --data-dir, else derived from host name and id)")
	fs.StringVar(&o.dataDir, "data-dir", "", "`directory` that keeps the node uuid")
	fs.StringVar(&o.broker.ControlListen, "listen", broker.DefaultControlListen, "`address` to serve commands on")
	fs.StringVar(&o.broker.AdvertiseControl, "advertise", "", "`address` where the controller reaches that (default: the same)")
	fs.StringVar(&o.broker.Rack, "rack", "", "failure `domain`")
	fs.DurationVar(&o.broker.SessionTTL, "session-ttl", broker.DefaultSessionTTL, "how long a silent broker counts as live")
	fs.StringVar(&o.log, "log", "", "`file` to append decisions on commands to (default: standard output)")
	fs.DurationVar(&o.caughtUpAfter, "caught-up-after", demobroker.DefaultCaughtUpAfter, "how long a follower that is back takes to catch up")
	fs.StringVar(&o.data.listen, "data-listen", "127.0.0.1:0", "`address` to serve clients on, which get their requests back")
	fs.StringVar(&o.dataAdvertise, "data-advertise", "", "`address` where clients reach that (default: the same)")
	fs.IntVar(&o.data.handlers, "data-handlers", 8, "how many requests of clients are handled at a time")
	fs.IntVar(&o.data.queue, "data-queue", 500, "how many more may wait for that")
	fs.DurationVar(&o.data.delay, "data-delay", 0, "how long each of them takes")
	fs.StringVar(&o.metricsListen, "metrics-listen", "", "`address` to serve /metrics on, for Prometheus (default: none)")
	fs.Func("delay", "`topic/partition=duration` by which a new leader epoch is applied late (repeatable)", o.faults.addDelay)
	fs.Func("hang", "`topic/partition` that is applied only when something newer cancels it (repeatable)", mark(o.faults.hang))
	fs.Func("fail", "`topic/partition` that always fails (repeatable)", mark(o.faults.fail))
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	var faults []error
	if fs.NArg() > 0 {
		faults = append(faults, fmt.Errorf("unexpected argument %q", fs.Arg(0)))
	}
	if o.broker.ID == noID {
		faults = append(faults, errors.New("--id is required"))
	}
	for d := range strings.SplitSeq(*daemons, ",") {
		if d = strings.TrimSpace(d); d == "" {
			continue
		}
		if err := checkAddress(d); err != nil {
			faults = append(faults, fmt.Errorf("--daemons: %w", err))
		}
		o.broker.Daemons = append(o.broker.Daemons, d)
	}
	if len(o.broker.Daemons) == 0 {
		faults = append(faults, errors.New("--daemons is required"))
	}
	return o, errors.Join(append(faults, o.check()...)...)
}

// What one process can still run.
const (
	maxHandlers = 10_000
	maxQueue    = 1_000_000
)

// check reports every value that is out of range, or that no daemon accepts.
func (o *options) check() []error {
	var faults []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	listen := map[string]string{"listen": o.broker.ControlListen, "data-listen": o.data.listen}
	if o.metricsListen != "" {
		listen["metrics-listen"] = o.metricsListen
	}
	for flag, address := range listen {
		_, port, err := net.SplitHostPort(address)
		_, bad := strconv.ParseUint(port, 10, 16)
		fault(err != nil || bad != nil, "--%s: %q is no address, want host:port", flag, address)
	}
	for flag, address := range map[string]string{"advertise": o.broker.AdvertiseControl, "data-advertise": o.dataAdvertise} {
		if address != "" {
			err := checkAddress(address)
			fault(err != nil, "--%s: %w", flag, err)
		}
	}
	for flag, text := range map[string]string{"node-uuid": o.broker.NodeUUID, "rack": o.broker.Rack} {
		fault(!utf8.ValidString(text), "--%s %q is not UTF-8", flag, text)
		fault(len(text) > rpc.MaxText, "--%s has %d bytes, want at most %d", flag, len(text), rpc.MaxText)
	}
	ttl := o.broker.SessionTTL
	fault(ttl < rpc.MinSessionTTL || ttl > rpc.MaxSessionTTL, "--session-ttl is %v, want %v to %v", ttl, rpc.MinSessionTTL, rpc.MaxSessionTTL)
	fault(o.caughtUpAfter <= 0, "--caught-up-after is %v, want more than 0", o.caughtUpAfter)
	fault(o.data.handlers < 1 || o.data.handlers > maxHandlers, "--data-handlers is %d, want 1 to %d", o.data.handlers, maxHandlers)
	fault(o.data.queue < 1 || o.data.queue > maxQueue, "--data-queue is %d, want 1 to %d", o.data.queue, maxQueue)
	fault(o.data.delay < 0, "--data-delay is %v, want 0 or more", o.data.delay)
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return faults
}

// noID is the id before one is given.
const noID = cluster.BrokerID(-1)

func (o *options) setID(arg string) error {
	n, err := strconv.ParseInt(arg, 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && n < 0:
		return fmt.Errorf("out of range, want 0 to %d", math.MaxInt32)
	case err != nil:
		return errors.New("want a number")
	}
	o.broker.ID = cluster.BrokerID(n)
	return nil
}

func checkAddress(a string) error {
	host, port, err := net.SplitHostPort(a)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || host == "" || n == 0 {
		return fmt.Errorf("%q is no address, want host:port", a)
	}
	return nil
}

// nodeUUID is the uuid of the node: the same each time that the process starts.
func (o *options) nodeUUID() (string, error) {
	if o.broker.NodeUUID != "" {
		return o.broker.NodeUUID, nil
	}
	if o.dataDir == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("derive the node uuid: %w", err)
		}
		name := fmt.Sprintf("controllerd:example:%s:%d", host, o.broker.ID)
		return uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)).String(), nil
	}
	file := filepath.Join(o.dataDir, "node-uuid")
	data, err := os.ReadFile(file)
	if err == nil {
		return strings.TrimSpace(string(data)), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read the node uuid: %w", err)
	}
	id := uuid.NewString()
	if err := os.MkdirAll(o.dataDir, 0o755); err != nil {
		return "", fmt.Errorf("keep the node uuid: %w", err)
	}
	if err := os.WriteFile(file, []byte(id+"\n"), 0o644); err != nil {
		return "", fmt.Errorf("keep the node uuid: %w", err)
	}
	return id, nil
}

// faults are what goes wrong on purpose, by "topic/partition".
type faults struct {
	delay      map[string]time.Duration
	hang, fail map[string]bool
}

func (f *faults) addDelay(arg string) error {
	name, value, ok := strings.Cut(arg, "=")
	if !ok {
		return errors.New("want topic/partition=duration")
	}
	if err := checkPartition(name); err != nil {
		return err
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return err
	}
	if d < 0 {
		return fmt.Errorf("%v is negative, want 0 or more", d)
	}
	f.delay[name] = d
	return nil
}

func mark(set map[string]bool) func(string) error {
	return func(name string) error {
		set[name] = true
		return checkPartition(name)
	}
}

func checkPartition(name string) error {
	topic, index, ok := strings.Cut(name, "/")
	if n, err := strconv.ParseInt(index, 10, 32); !ok || err != nil || n < 0 {
		return errors.New("want topic/partition")
	}
	return cluster.ValidateTopicName(topic)
}

// apply is called before a partition's new leader epoch is applied.
func (f *faults) apply(ctx context.Context, s broker.PartitionState) error {
	name := fmt.Sprintf("%s/%d", s.Topic, s.Partition.Index)
	if f.fail[name] {
		return errors.New("told to fail")
	}
	if f.hang[name] {
		<-ctx.Done()
		return ctx.Err()
	}
	if d := f.delay[name]; d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
