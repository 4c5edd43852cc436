package sim

import (
	"flag"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"testing"
	"time"
)

var (
	seeds = flag.Int("seeds", 200, "how many seeds TestSeeds plays")
	seed  = flag.Uint64("seed", 0, "the only seed that TestSeeds plays; with -v it prints the whole trace")
)

// A run allocates much and keeps little.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

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

// mustSee is what the seeds have to bring about, and how often at least: a
// safety part that is never needed is not tested.
var mustSee = map[string]int{
	"command ADMITTED":                   1000,
	"command ISR_ADOPTED":                1000,
	"command ALREADY":                    1000,
	"command STALE_CONTROLLER_EPOCH":     20,
	"command STALE_BROKER_EPOCH":         3,
	"command UNAVAILABLE":                100,
	"command of an ended stream":         50,
	"claim guard failed":                 20,
	"block guard failed":                 10,
	"call after its caller had given up": 100,
	"call whose answer was lost":         100,
	"watch that was compacted away":      20,
	"missed change that was healed":      10,
	"seed with small blocks":             50,
	"look at I6":                         1000,
	"storage error":                      100,
	"stray":                              20,
	"broker marked as unreachable":       20,
	"term cut off":                       2,

	"proof of an active's death":               20,
	"active that lived and was taken for dead": 20,
	"proof of a broker's death":                50,

	"garbled: brokers":                                50,
	"garbled: nodes":                                  50,
	"garbled: topics":                                 50,
	"garbled: partitions":                             50,
	"garbled: tombstones":                             3,
	"repaired: brokers":                               20,
	"repaired: nodes":                                 50,
	"repaired: topics":                                50,
	"repaired: partitions":                            50,
	"repaired: tombstones":                            3,
	"term begun over a garbled key":                   50,
	"broker started over its garbled key":             15,
	"broker started over the garbled key of its node": 30,
	"topic deleted":                                   50,
	"data deleted by a broker that was away when the topic was":             100,
	"data deleted by a broker that was away, the topic's name taken again":  100,
	"stream ended between the acks of a chunk":                              10,
	"stream ended with all acks and without all results":                    50,
	"active killed between the blocks and the record of a new topic":        5,
	"active killed between the blocks and the record of a topic that grows": 15,
	"active killed between the mark and the deletion of a topic":            15,
	"stream that went on":                                 100,
	"stream that began with everything":                   100,
	"hello with a resume point of another history":        10,
	"resume point of another history refused":             10,
	"resume point from before what is remembered refused": 20,
	"hidden block swept":                                  100,
	"ISR member that had restarted refused":               20,
	"broker drained as asked":                             10,
	"settings altered":                                    30,
	"partition moving":                                    80,
	"partition queued to move":                            15,
	"move cancelled":                                      3,
	"topic expanded":                                      15,
	"ELECTION_TYPE_PREFERRED":                             10,
	"ELECTION_TYPE_UNCLEAN":                               3,
	"ELECTION_TYPE_DESIGNATED":                            2,
}

// mostFailed is how many transactions may fail in one seed because somebody else
// had written: more of them is a loop that decides from the same image again.
const mostFailed = 50

func checkSeen(t *testing.T, seen map[string]int) {
	for _, what := range slices.Sorted(maps.Keys(mustSee)) {
		if seen[what] < mustSee[what] {
			t.Errorf("%s: %d times in all seeds, want at least %d", what, seen[what], mustSee[what])
		}
	}
}
