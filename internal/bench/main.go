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

	"github.com/controllerd/controllerd/internal/machine"
)

// rounds are measured after one that warms up.
const rounds = 5

// row is one benchmark.
type row struct {
	name string
	what string // for docs/BENCHMARKS.md
	run  func(ctx context.Context, b *bench) ([]figure, error)
}

var rows = []row{
	handoverRow, handover1mRow, controllerKillRow, freezeRow, brokerKillRow, brokerLossRow, brokerLoss100kRow, brokerLoss20Row, createRow,
	alterRow, alterLoadRow, blockSizeRow, oneKeyRow, coldLoadRow, heapRow,
	manyBrokersRow,
}

// rowTimeout bounds one row.
const rowTimeout = 8 * time.Minute

func main() {
	pattern := flag.String("run", ".*", "`regexp` of the whole names of the rows to run")
	scale := flag.Float64("scale", 1, "multiplies the numbers of partitions and brokers, to try out a row: its table is not kept")
	list := flag.String("list", "", "only list the etcd at this `address`; how the bench starts itself")
	watch := flag.String("watch", "", "only watch the etcd at this `address`; how the bench starts itself")
	hold := flag.String("hold", "", "only listen at this `address`; how the bench starts itself")
	brokerID := flag.Int("broker", -1, "only be the broker of this `id`, with a session TTL and daemons as arguments; how the bench starts itself")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := error(nil)
	switch {
	case *watch != "":
		err = printWatch(ctx, *watch)
	case *hold != "":
		err = holdAddress(ctx, *hold)
	case *brokerID >= 0:
		err = beBroker(ctx, *brokerID, flag.Args())
	case *list != "":
		err = printList(ctx, *list)
	default:
		err = run(ctx, *pattern, *scale)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, pattern string, scale float64) error {
	re, err := regexp.Compile("^(?:" + pattern + ")$")
	if err != nil {
		return err
	}
	root, err := machine.ModuleRoot(ctx)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, root, scale)
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
		where := machine.Describe(ctx, root, "docs/BENCHMARKS.md") // before it is busy
		if scale != 1 {
			where += fmt.Sprintf(" · SCALED by %g", scale)
		}
		limited, cancel := context.WithTimeout(ctx, rowTimeout)
		figures, err := r.run(limited, b)
		cancel()
		if err != nil {
			return fmt.Errorf("row %s: %w", r.name, err)
		}
		text := section(r, figures, where)
		fmt.Println(text)
		if scale != 1 {
			continue
		}
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
// returns one duration for each series, which is in seconds.
func measure(ctx context.Context, what string, round func(context.Context) ([]time.Duration, error)) ([][]float64, error) {
	return measureValues(ctx, what, func(ctx context.Context) ([]float64, error) {
		took, err := round(ctx)
		values := make([]float64, len(took))
		for i, d := range took {
			values[i] = d.Seconds()
		}
		return values, err
	})
}

// measureOne is measure for a single series.
func measureOne(ctx context.Context, what string, round func(context.Context) (time.Duration, error)) ([]float64, error) {
	series, err := measure(ctx, what, func(ctx context.Context) ([]time.Duration, error) {
		took, err := round(ctx)
		return []time.Duration{took}, err
	})
	if err != nil {
		return nil, err
	}
	return series[0], nil
}

// measureValues is measure for values of any kind.
func measureValues(ctx context.Context, what string, round func(context.Context) ([]float64, error)) ([][]float64, error) {
	var series [][]float64
	for n := range rounds + 1 {
		values, err := round(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s, round %d: %w", what, n, err)
		}
		fmt.Fprintf(os.Stderr, "  %s, round %d: %.6g\n", what, n, values)
		if n == 0 {
			series = make([][]float64, len(values))
			continue
		}
		for i, v := range values {
			series[i] = append(series[i], v)
		}
	}
	return series, nil
}
