package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// rounds are measured after one that warms up.
const rounds = 5

// row is one benchmark.
type row struct {
	name string
	what string // for docs/BENCHMARKS.md
	run  func(ctx context.Context, b *bench) ([]figure, error)
}

var rows = []row{handoverRow, freezeRow, brokerLossRow}

// rowTimeout bounds one row.
const rowTimeout = 8 * time.Minute

func main() {
	pattern := flag.String("run", "", "`regexp` of the rows to run (default: all)")
	watch := flag.String("watch", "", "only watch the etcd at this `address`; how the bench starts itself")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := error(nil)
	if *watch != "" {
		err = printWatch(ctx, *watch)
	} else {
		err = run(ctx, *pattern)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, pattern string) error {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, root)
	if err != nil {
		return err
	}
	defer b.close()
	ran := 0
	for _, r := range rows {
		if !re.MatchString(r.name) {
			continue
		}
		ran++
		fmt.Fprintf(os.Stderr, "%s: %d rounds after a warm-up\n", r.name, rounds)
		where := machine(ctx, root) // before it is busy
		limited, cancel := context.WithTimeout(ctx, rowTimeout)
		figures, err := r.run(limited, b)
		cancel()
		if err != nil {
			return fmt.Errorf("row %s: %w", r.name, err)
		}
		text := section(r, figures, where)
		fmt.Println(text)
		if err := updateFile(filepath.Join(root, "docs", "BENCHMARKS.md"), r.name, text); err != nil {
			return err
		}
	}
	if ran == 0 {
		return errors.New("no row is called like that")
	}
	return nil
}

// measure runs a round once to warm up and then as often as it counts. A round
// returns one duration for each series.
func measure(ctx context.Context, what string, round func(context.Context) ([]time.Duration, error)) ([][]time.Duration, error) {
	var series [][]time.Duration
	for n := range rounds + 1 {
		took, err := round(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s, round %d: %w", what, n, err)
		}
		fmt.Fprintf(os.Stderr, "  %s, round %d: %v\n", what, n, took)
		if n == 0 {
			series = make([][]time.Duration, len(took))
			continue
		}
		for i, d := range took {
			series[i] = append(series[i], d)
		}
	}
	return series, nil
}
