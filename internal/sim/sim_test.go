package sim

import (
	"flag"
	"maps"
	"slices"
	"testing"
	"time"
)

var (
	seeds = flag.Int("seeds", 200, "how many seeds TestSeeds plays")
	seed  = flag.Uint64("seed", 0, "the only seed that TestSeeds plays; with -v it prints the whole trace")
)

// play runs one seed, and says what went wrong and how to see it again.
func play(t *testing.T, cfg Config) Report {
	t.Helper()
	began := time.Now()
	r := Run(cfg)
	t.Logf("seed %d: %d steps, %v, %d terms, %d faults, in %v", r.Seed, r.Steps, r.Virtual.Round(time.Second), r.Terms, r.Faults, time.Since(began).Round(time.Millisecond))
	return r
}

func TestSeeds(t *testing.T) {
	seen := map[string]int{}
	first, last := uint64(1), uint64(*seeds)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	for n := first; n <= last; n++ {
		cfg := Config{Seed: n}
		if *seed != 0 && testing.Verbose() {
			cfg.Trace = func(line string) { t.Log(line) }
		}
		r := play(t, cfg)
		for what, n := range r.Seen {
			seen[what] += n
		}
		if n := r.Seen["block guard failed"]; n > mostFailed {
			t.Errorf("seed %d: %d transactions failed on blocks: somebody tries again and again", r.Seed, n)
		}
		for _, v := range r.Violations {
			t.Errorf("seed %d: %v", n, v)
		}
		if len(r.Violations) > 0 {
			for _, line := range r.Trace {
				t.Log(line)
			}
			t.Fatalf("again with: go test ./internal/sim -run TestSeeds -seed=%d -v", n)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%7d  %s", seen[what], what)
	}
	if *seed == 0 && *seeds >= 200 {
		checkSeen(t, seen)
	}
}

// mustSee is what the seeds have to bring about: a safety part that is never
// needed is not tested.
var mustSee = []string{
	"command ADMITTED", "command ISR_ADOPTED", "command ALREADY",
	"command STALE_CONTROLLER_EPOCH", "command STALE_BROKER_EPOCH", "command UNAVAILABLE", "command of an ended stream",
	"claim guard failed", "block guard failed",
	"call after its caller had given up", "call whose answer was lost",
	"watch that was compacted away", "missed change that was healed",
	"look at I6",
}

// mostFailed is how many transactions may fail in one seed because somebody else
// had written: more of them is a loop that decides from the same image again.
const mostFailed = 50

func checkSeen(t *testing.T, seen map[string]int) {
	for _, what := range mustSee {
		if seen[what] == 0 {
			t.Errorf("in no seed was there a %s", what)
		}
	}
}
