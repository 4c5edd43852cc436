package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/controllerd/controllerd/internal/machine"
)

func main() {
	endpoint := flag.String("etcd", "", "`host:port` of an etcd that nobody else uses")
	candidates := flag.String("candidates", "3,9,27", "numbers of nodes")
	partitions := flag.String("partitions", "100,1000,3000", "numbers of partitions")
	rounds := flag.Int("rounds", 3, "trials of each, of which the median by time is shown")
	replicas := flag.Int("replicas", 3, "replicas of each partition, at most as many as the fewest nodes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, os.Stdout, *endpoint, *candidates, *partitions, *replicas, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "herd:", err)
		os.Exit(1)
	}
}

// measure prints the table, a row as soon as it is known.
func measure(ctx context.Context, out io.Writer, endpoint, candidates, partitions string, replicas, rounds int) error {
	nodes, err := numbers("candidates", candidates, replicas)
	if err != nil {
		return err
	}
	parts, err := numbers("partitions", partitions, 1)
	if err != nil {
		return err
	}
	if endpoint == "" || replicas < 2 || rounds < 1 {
		return errors.New("want the address of an etcd, at least 2 replicas and a round")
	}
	root, err := machine.ModuleRoot(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n\n", machine.Describe(ctx, root, "docs/HERD.md"))
	fmt.Fprintf(out, "`scripts/herd -candidates %s -partitions %s -replicas %d -rounds %d`\n\n%s", candidates, partitions, replicas, rounds, head)
	for _, p := range parts {
		for _, n := range nodes {
			for _, s := range schemes {
				r, err := median(ctx, endpoint, s, size{n, p, replicas}, rounds)
				if err != nil {
					return fmt.Errorf("%s, %d candidates, %d partitions: %w", s.name, n, p, err)
				}
				fmt.Fprint(out, r.row())
			}
		}
	}
	return nil
}

// median is the trial of so many that took neither long nor short.
func median(ctx context.Context, endpoint string, s *scheme, n size, rounds int) (result, error) {
	var all []result
	for range rounds {
		r, err := run(ctx, endpoint, s, n)
		if err != nil {
			return r, err
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b result) int { return cmp.Compare(a.took, b.took) })
	return all[rounds/2], nil
}

// head begins the table.
const head = "| partitions | candidates | scheme | etcd requests | watch events | time until all have a leader |\n|---:|---:|---|---:|---:|---:|\n"

func (r result) row() string {
	return fmt.Sprintf("| %d | %d | %s | %.0f | %.0f | %v |\n", r.size.partitions, r.size.candidates, r.scheme.name, r.cost.Requests, r.cost.Events,
		r.took.Round(100*time.Microsecond))
}

// numbers reads a list of numbers, none below least.
func numbers(flag, list string, least int) ([]int, error) {
	var out []int
	for _, s := range strings.Split(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < least {
			return nil, fmt.Errorf("-%s: %q is not a number from %d", flag, s, least)
		}
		out = append(out, n)
	}
	return out, nil
}
