package lint

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Check reads the module at root and returns what it finds, sorted, each as
// "path:line: rule: message". It fails if root holds no module, no package
// that the table names, or a file that does not parse.
func Check(root string) ([]string, error) {
	t, err := load(root)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", root, err)
	}
	for _, p := range t.sorted() {
		r, ok := rowOf(p.dir)
		if !ok {
			t.report(p.files[0].ast.Package, "table", "no row of the table names package %s", p.dir)
			continue
		}
		t.checkDoc(p, r)
		if !r.etcd {
			t.checkEtcd(p)
		}
		for _, f := range p.files {
			t.checkHabits(f)
			if f.test {
				continue
			}
			t.checkFloor(f, r)
			if f.mustBePure(r) {
				t.checkPure(f, r)
			}
		}
	}
	slices.Sort(t.found)
	return t.found, nil
}

// tree is the module as parsed, and what was found in it so far.
type tree struct {
	module string
	fset   *token.FileSet
	pkgs   map[string]*pkg // by directory
	found  []string
}

// pkg is a directory with Go files.
type pkg struct {
	dir   string // relative to the root, with slashes
	files []file // in order of name
}

type file struct {
	name, dir       string
	test, generated bool
	ast             *ast.File
}

// mustBePure reports whether the file falls under the purity that r asks for.
func (f file) mustBePure(r row) bool {
	if f.generated || r.purity == free {
		return false
	}
	runs := f.name == "run.go" || strings.HasPrefix(f.name, "run_")
	return r.purity == wholly || !runs
}

func (t *tree) report(pos token.Pos, rule, format string, args ...any) {
	p := t.fset.Position(pos)
	t.found = append(t.found, fmt.Sprintf("%s:%d: %s: %s", p.Filename, p.Line, rule, fmt.Sprintf(format, args...)))
}

func (t *tree) sorted() []*pkg {
	var ps []*pkg
	for _, p := range t.pkgs {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b *pkg) int { return strings.Compare(a.dir, b.dir) })
	return ps
}

// load parses every Go file of the module, whatever its build constraints say.
func load(root string) (*tree, error) {
	module, err := moduleOf(root)
	if err != nil {
		return nil, err
	}
	t := &tree{module: module, fset: token.NewFileSet(), pkgs: map[string]*pkg{}}
	fsys := os.DirFS(root)
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return enter(fsys, name)
		case path.Ext(name) != ".go":
			return nil
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		return t.add(name, src)
	})
	if err != nil {
		return nil, err
	}
	for dir := range t.pkgs {
		if _, ok := rowOf(dir); ok {
			return t, nil
		}
	}
	return nil, errors.New("no package that the table names")
}

// enter skips the directories that the go command skips, and bin.
func enter(fsys fs.FS, dir string) error {
	base := path.Base(dir)
	if dir == "." {
		return nil
	}
	if base == "testdata" || base == "vendor" || dir == "bin" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return fs.SkipDir
	}
	if _, err := fs.Stat(fsys, path.Join(dir, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

func (t *tree) add(name string, src []byte) error {
	parsed, err := parser.ParseFile(t.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	dir := path.Dir(name)
	p := t.pkgs[dir]
	if p == nil {
		p = &pkg{dir: dir}
		t.pkgs[dir] = p
	}
	p.files = append(p.files, file{
		name:      path.Base(name),
		dir:       dir,
		test:      strings.HasSuffix(name, "_test.go"),
		generated: ast.IsGenerated(parsed),
		ast:       parsed,
	})
	return nil
}

// moduleOf reads the module's path from go.mod.
func moduleOf(root string) (string, error) {
	src, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(src)) {
		if module, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(module), nil
		}
	}
	return "", errors.New("go.mod names no module")
}
