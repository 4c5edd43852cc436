package lint

import "strings"

// purity says how much of a package must be pure: free of clocks, global
// randomness, goroutines, channels, locks and I/O. Tests and generated files
// are always exempt.
type purity uint8

const (
	free      purity = iota // nothing
	exceptRun               // every file but run.go and run_*.go
	wholly                  // every file
)

// row is what the table says about one package.
type row struct {
	dir    string // relative to the root; "dir/..." covers everything below dir
	floor  int    // it may import lower floors only, never its own
	purity purity
	etcd   bool // it may reach etcd's modules
}

// support is the floor of what stands beside the library: the simulation, the
// test servers, the benchmarks. Its packages may import every floor and each
// other; only tests, cmd, examples and they themselves may import them.
const support = 9

// table is the architecture. The floors are described in docs/DESIGN.md.
var table = []row{
	{dir: "cmd/...", floor: 5, etcd: true},
	{dir: "examples/...", floor: 5, etcd: true},
	{dir: "controller", floor: 4, purity: exceptRun},
	{dir: "election", floor: 3, purity: exceptRun},
	{dir: "rpc", floor: 3, purity: exceptRun},
	{dir: "broker/brokermetrics", floor: 4},
	{dir: "broker", floor: 3, purity: exceptRun},
	{dir: "recovery", floor: 3, purity: exceptRun},
	{dir: "store/etcdstore", floor: 3, etcd: true},
	{dir: "store/memstore", floor: 3, purity: exceptRun},
	{dir: "statemachine", floor: 2, purity: wholly},
	{dir: "fencing", floor: 2, purity: wholly},
	{dir: "epoch", floor: 2, purity: wholly},
	{dir: "cluster", floor: 1, purity: wholly},
	{dir: "store", floor: 0, purity: wholly},
	{dir: "proto/...", floor: 0},
	{dir: "store/storetest", floor: support},
	{dir: "internal/unfenced", floor: 0, purity: wholly}, // a switch that other modules cannot reach
	{dir: "internal/durations", floor: 0, purity: wholly},
	{dir: "internal/prom", floor: 1}, // what daemons and the SDK of brokers share
	{dir: "internal/sim", floor: support, purity: exceptRun, etcd: true},
	{dir: "internal/...", floor: support, etcd: true},
}

// rowOf finds the row of a directory: the one that names it, or else the first
// that covers it.
func rowOf(dir string) (row, bool) {
	for _, r := range table {
		if r.dir == dir {
			return r, true
		}
	}
	for _, r := range table {
		tree, ok := strings.CutSuffix(r.dir, "/...")
		if ok && within(dir, tree) {
			return r, true
		}
	}
	return row{}, false
}

// whyNot says why package from, of row r, must not import package to, or "".
func (r row) whyNot(from, to string, target row) string {
	switch {
	case r.dir == target.dir: // two packages of one tree
		return ""
	case target.floor == support && (r.floor == support || within(from, "cmd") || within(from, "examples")):
		return ""
	case target.floor == support:
		return to + " is for tests, cmd, examples and internal only"
	case target.floor == r.floor:
		return to + " is on the same floor as " + from
	case target.floor > r.floor:
		return to + " is on a floor above " + from
	}
	return ""
}

// within reports whether an import path or directory is tree or below it.
func within(path, tree string) bool {
	return path == tree || strings.HasPrefix(path, tree+"/")
}

// etcdModules is the prefix of the import paths of etcd's modules.
const etcdModules = "go.etcd.io"

// impureImports are the packages that pure code does without, each with all
// that is below it.
var impureImports = []string{
	"crypto/rand",
	"golang.org/x/sync",
	"log",
	"net",
	"os",
	"sync",
	"syscall",
}

// pureImports are exceptions from impureImports: data types without I/O.
var pureImports = []string{"log/slog", "net/netip", "net/url"}

// impureNames are what pure code does not use of packages that it may import.
var impureNames = map[string][]string{
	"fmt": {"Print", "Printf", "Println"},
	"time": {
		"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Ticker", "Timer", "Until",
	},
}

// pureNames are all that pure code may use of packages whose rest is impure:
// of randomness what has a source that the caller seeds, of contexts what
// passes one on.
var pureNames = map[string][]string{
	"context":      {"Canceled", "Cause", "Context", "DeadlineExceeded"},
	"math/rand":    {"New", "NewSource", "NewZipf", "Rand", "Source", "Source64", "Zipf"},
	"math/rand/v2": {"ChaCha8", "New", "NewChaCha8", "NewPCG", "NewZipf", "PCG", "Rand", "Source", "Zipf"},
}
