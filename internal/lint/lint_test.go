package lint

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/controllerd/controllerd"
)

// TestTree is the linter: it checks this repository.
func TestTree(t *testing.T) {
	expect(t, root, nil)
}

// TestInjected copies each pure package out of this repository, finds nothing
// wrong with the copy, adds one file to it and finds exactly that.
func TestInjected(t *testing.T) {
	cases := []struct{ name, src, want string }{
		{"import from a floor above", "import _ \"" + module + "/cmd/controllerd\"", "3: floor: cmd/controllerd is on a floor above DIR"},
		{"etcd", "import _ \"go.etcd.io/etcd/client/v3\"", "3: etcd: DIR reaches etcd: go.etcd.io/etcd/client/v3"},
		{"clock", "import \"time\"\n\nvar started = time.Now()", "5: pure: use of time.Now"},
		{"clock as a value under another name", "import c \"time\"\n\nvar now = c.Now", "5: pure: use of time.Now"},
		{"goroutine", "func spawn(f func()) {\n\tgo f()\n}", "4: pure: go statement"},
		{"mutex", "import \"sync\"\n\nvar mu sync.Mutex", "3: pure: import of sync"},
	}
	copied := 0
	for _, r := range table {
		if r.purity == free || r.floor == support {
			continue
		}
		names, err := filepath.Glob(filepath.Join(root, r.dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		if len(names) == 0 {
			continue
		}
		copied++
		for _, c := range cases {
			t.Run(r.dir+"/"+c.name, func(t *testing.T) {
				dir := t.TempDir()
				write(t, dir, "go.mod", "module "+module+"\n")
				for _, name := range names {
					src, err := os.ReadFile(name)
					if err != nil {
						t.Fatal(err)
					}
					write(t, dir, filepath.Join(r.dir, filepath.Base(name)), string(src))
				}
				expect(t, dir, nil)
				write(t, dir, filepath.Join(r.dir, "injected.go"), "package "+path.Base(r.dir)+"\n\n"+c.src+"\n")
				expect(t, dir, []string{r.dir + "/injected.go:" + strings.Replace(c.want, "DIR", r.dir, 1)})
			})
		}
	}
	if copied == 0 {
		t.Error("no pure package in this repository")
	}
}

// TestRules shows each rule at work, and what it lets pass, on small trees.
// Every package gets a doc.go beside the files that a case names.
func TestRules(t *testing.T) {
	imports := func(pkg string, paths ...string) string {
		var b strings.Builder
		b.WriteString("package " + pkg + "\n\n")
		for _, p := range paths {
			b.WriteString("import _ \"" + strings.Replace(p, "~", module, 1) + "\"\n")
		}
		return b.String()
	}
	cases := []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{
			"downward",
			map[string]string{
				"controller/a.go":   imports("controller", "~/election", "~/rpc", "~/statemachine", "~/store"),
				"statemachine/a.go": imports("statemachine", "~/cluster", "~/store", "~/proto/controllerd/v1"),
			},
			nil,
		},
		{
			"siblings and upward",
			map[string]string{
				"election/a.go":     imports("election", "~/rpc"),
				"store/a.go":        imports("store", "~/proto/controllerd/v1"),
				"statemachine/a.go": imports("statemachine", "~/fencing", "~/rpc"),
			},
			[]string{
				"election/a.go:3: floor: rpc is on the same floor as election",
				"statemachine/a.go:3: floor: fencing is on the same floor as statemachine",
				"statemachine/a.go:4: floor: rpc is on a floor above statemachine",
				"store/a.go:3: floor: proto/controllerd/v1 is on the same floor as store",
			},
		},
		{
			"tests may import what their package must not",
			map[string]string{"broker/a_test.go": imports("broker", "~/rpc", "~/internal/etcdtest", "go.etcd.io/etcd/client/v3")},
			nil,
		},
		{
			"support",
			map[string]string{
				"cmd/controllerd/main.go": imports("main", "~/internal/sim", "~/internal/etcdtest"),
				"internal/bench/a.go":     imports("bench", "~/internal/etcdtest", "~/controller"),
				"controller/a.go":         imports("controller", "~/internal/sim"),
				"examples/broker/main.go": imports("main", "~/broker", "~/internal/sim"),
			},
			[]string{
				"controller/a.go:3: floor: internal/sim is for tests, cmd, examples and internal only",
			},
		},
		{
			"etcd through another package",
			map[string]string{
				"store/etcdstore/a.go": imports("etcdstore", "go.etcd.io/etcd/client/v3"),
				"cmd/x/main.go":        imports("main", "~/store/etcdstore"),
				"cluster/a.go":         imports("cluster", "go.etcd.io/etcd/api/v3/mvccpb"),
				"broker/a.go":          imports("broker", "~/cluster"),
				"fencing/a.go":         imports("fencing", "~/store"),
				"controller/a.go":      imports("controller", "~/broker", "go.etcd.io/etcd/client/v3"),
			},
			[]string{
				"broker/a.go:3: etcd: broker reaches etcd: cluster imports go.etcd.io/etcd/api/v3/mvccpb",
				"cluster/a.go:3: etcd: cluster reaches etcd: go.etcd.io/etcd/api/v3/mvccpb",
				"controller/a.go:3: etcd: controller reaches etcd: broker imports cluster imports go.etcd.io/etcd/api/v3/mvccpb",
				"controller/a.go:4: etcd: controller reaches etcd: go.etcd.io/etcd/client/v3",
			},
		},
		{
			"unknown package",
			map[string]string{
				"store/a.go": imports("store"),
				"utils/a.go": imports("utils"),
				"epoch/a.go": imports("epoch", "~/utils"),
			},
			[]string{
				"epoch/a.go:3: table: no row of the table names package utils",
				"utils/a.go:1: table: no row of the table names package utils",
			},
		},
		{
			"channels",
			map[string]string{"epoch/a.go": "package epoch\n\nfunc f(c interface{ Done() <-chan int }) {\n" +
				"\tc2 := make(chan int)\n\tc2 <- 1\n\t<-c.Done()\n\tselect {}\n}\n"},
			[]string{
				"epoch/a.go:3: pure: channel type",
				"epoch/a.go:4: pure: channel type",
				"epoch/a.go:5: pure: send on a channel",
				"epoch/a.go:6: pure: receive from a channel",
				"epoch/a.go:7: pure: select statement",
			},
		},
		{
			"randomness",
			map[string]string{
				"election/a.go": "package election\n\nimport \"math/rand/v2\"\n\n" +
					"var r *rand.Rand = rand.New(rand.NewPCG(1, 2))\nvar n = rand.IntN(5)\n",
				"epoch/a.go": imports("epoch", "crypto/rand"),
			},
			[]string{
				"election/a.go:6: pure: use of math/rand/v2.IntN",
				"epoch/a.go:3: pure: import of crypto/rand",
			},
		},
		{
			"context passed on, and made",
			map[string]string{
				"store/a.go": "package store\n\nimport \"context\"\n\n" +
					"var _ context.Context = context.Background()\n",
				"rpc/a.go":          imports("rpc", "context"),
				"statemachine/a.go": imports("statemachine", "context"),
			},
			[]string{
				"statemachine/a.go:3: pure: import of context: a decision waits for nothing",
				"store/a.go:5: pure: use of context.Background",
			},
		},
		{
			"input and output",
			map[string]string{"cluster/a.go": imports("cluster", "os/signal", "net/http", "net/netip", "log", "log/slog")},
			[]string{
				"cluster/a.go:3: pure: import of os/signal",
				"cluster/a.go:4: pure: import of net/http",
				"cluster/a.go:6: pure: import of log",
			},
		},
		{
			"names without their package",
			map[string]string{"cluster/a.go": "package cluster\n\nimport . \"time\"\n\nvar t = Now()\n"},
			[]string{"cluster/a.go:3: pure: import of time into the file's own names"},
		},
		{
			"where files that run are allowed",
			map[string]string{
				"rpc/run.go":         imports("rpc", "sync", "net"),
				"rpc/run_senders.go": imports("rpc", "sync"),
				"rpc/running.go":     imports("rpc", "sync"),
				"fencing/run.go":     imports("fencing", "sync"),
				"rpc/x.pb.go":        "// Code generated by hand. DO NOT EDIT.\n\n" + imports("rpc", "sync"),
				"rpc/a_test.go":      imports("rpc", "sync"),
			},
			[]string{
				"fencing/run.go:3: pure: import of sync",
				"rpc/running.go:3: pure: import of sync",
			},
		},
		{
			"sleep",
			map[string]string{"rpc/a_test.go": "package rpc\n\nimport \"time\"\n\nfunc f() {\n\ttime." + "Sleep(1)\n}\n"},
			[]string{"rpc/a_test.go:6: sleep: time.Sleep in a test: wait for a condition, or use testing/synctest"},
		},
		{
			"a safety part taken out",
			map[string]string{
				"internal/sim/a.go":   "package sim\n\nimport \"" + module + "/internal/unfenced\"\n\nvar s unfenced.Switch\nvar open = unfenced.Open()\n",
				"fencing/a.go":        "package fencing\n\nimport u \"" + module + "/internal/unfenced\"\n\nvar open = u.Open\n",
				"fencing/a_test.go":   "package fencing\n\nimport \"" + module + "/internal/unfenced\"\n\nvar out = unfenced.Open()\n",
				"internal/bench/a.go": "package bench\n\nimport \"os\"\n\nvar f, err = os.Open(\"x\")\n",
			},
			[]string{
				"fencing/a.go:5: unfenced: unfenced.Open outside a test: what runs keeps its safety parts",
				"internal/sim/a.go:6: unfenced: unfenced.Open outside a test: what runs keeps its safety parts",
			},
		},
		{
			"length",
			map[string]string{
				"rpc/a.go":      "package rpc\n" + strings.Repeat("\n", 499),
				"rpc/b.go":      "package rpc\n" + strings.Repeat("\n", 500),
				"rpc/a_test.go": "package rpc\n" + strings.Repeat("\n", 900),
			},
			[]string{"rpc/b.go:1: length: 501 lines, more than 500"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "go.mod", "module "+module+"\n")
			for _, name := range slices.Sorted(maps.Keys(c.files)) {
				src := c.files[name]
				_, pkg, _ := strings.Cut(src, "package ")
				pkg, _, _ = strings.Cut(pkg, "\n")
				write(t, dir, filepath.Join(filepath.Dir(name), "doc.go"), "// Package "+pkg+" is one.\npackage "+pkg+"\n")
				write(t, dir, name, src)
			}
			expect(t, dir, c.want)
		})
	}
}

func TestPackageComment(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "go.mod", "module "+module+"\n")
	write(t, dir, "cmd/x/main.go", "// Command x does it.\npackage main\n")
	write(t, dir, "cmd/y/main.go", "package main\n")
	write(t, dir, "rpc/a.go", "// Package rpc says it in the wrong file.\npackage rpc\n")
	write(t, dir, "epoch/doc.go", "package epoch\n")
	write(t, dir, "proto/v1/x.pb.go", "// Code generated by hand. DO NOT EDIT.\n\npackage v1\n")
	write(t, dir, "internal/sim/a_test.go", "package sim\n")
	expect(t, dir, []string{
		"cmd/y/main.go:1: doc: package cmd/y has no doc.go with a package comment",
		"epoch/doc.go:1: doc: package epoch has no doc.go with a package comment",
		"rpc/a.go:2: doc: package rpc has no doc.go with a package comment",
	})
}

// TestNothingToCheck: a tree without the packages of the table is no success.
func TestNothingToCheck(t *testing.T) {
	dir := t.TempDir()
	if _, err := Check(dir); err == nil {
		t.Error("no error for a directory without go.mod")
	}
	write(t, dir, "go.mod", "module "+module+"\n")
	write(t, dir, "other/a.go", "package other\n")
	if _, err := Check(dir); err == nil {
		t.Error("no error for a module without a package that the table names")
	}
	write(t, dir, "store/a.go", "package store\nfunc {\n")
	if _, err := Check(dir); err == nil || !strings.Contains(err.Error(), "store/a.go:2") {
		t.Errorf("error for a file that does not parse: %v, want one that names store/a.go:2", err)
	}
}

func expect(t *testing.T, root string, want []string) {
	t.Helper()
	found, err := Check(root)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(found, want) {
		t.Errorf("found:\n\t%s\nwant:\n\t%s", strings.Join(found, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func write(t *testing.T, root, name, src string) {
	t.Helper()
	name = filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
}
