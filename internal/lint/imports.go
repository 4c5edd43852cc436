package lint

import (
	"go/ast"
	"path"
	"strconv"
	"strings"
)

// pathOf is the path that an import names.
func pathOf(spec *ast.ImportSpec) string {
	p, _ := strconv.Unquote(spec.Path.Value) // the parser accepts valid strings only
	return p
}

// importNames maps the name that each import has in the file to its path. For
// an import without a name of its own that is the last element of the path
// that is not a major version.
func (f file) importNames() map[string]string {
	names := make(map[string]string, len(f.ast.Imports))
	for _, spec := range f.ast.Imports {
		p := pathOf(spec)
		switch base := path.Base(p); {
		case spec.Name != nil:
			names[spec.Name.Name] = p
		case base == "v2":
			names[path.Base(path.Dir(p))] = p
		default:
			names[base] = p
		}
	}
	return names
}

// inside returns the directory that an import path of this module names.
func (t *tree) inside(importPath string) (dir string, ok bool) {
	return strings.CutPrefix(importPath, t.module+"/")
}

// checkFloor refuses imports that do not go downward.
func (t *tree) checkFloor(f file, r row) {
	for _, spec := range f.ast.Imports {
		dir, ok := t.inside(pathOf(spec))
		if !ok {
			continue
		}
		target, ok := rowOf(dir)
		if !ok {
			t.report(spec.Pos(), "table", "no row of the table names package %s", dir)
		} else if why := r.whyNot(f.dir, dir, target); why != "" {
			t.report(spec.Pos(), "floor", "%s", why)
		}
	}
}

// checkEtcd refuses each import by which a package reaches etcd, directly or
// through other packages of the module.
func (t *tree) checkEtcd(p *pkg) {
	for _, f := range p.files {
		if f.test {
			continue
		}
		for _, spec := range f.ast.Imports {
			if chain := t.chainToEtcd(pathOf(spec), map[string]bool{p.dir: true}); chain != nil {
				t.report(spec.Pos(), "etcd", "%s reaches etcd: %s", p.dir, strings.Join(chain, " imports "))
			}
		}
	}
}

// chainToEtcd returns the imports that lead from importPath to etcd, both ends
// included, or nil. Directories already seen are not searched again.
func (t *tree) chainToEtcd(importPath string, seen map[string]bool) []string {
	if within(importPath, etcdModules) {
		return []string{importPath}
	}
	dir, ok := t.inside(importPath)
	if !ok || seen[dir] || t.pkgs[dir] == nil {
		return nil
	}
	seen[dir] = true
	for _, f := range t.pkgs[dir].files {
		if f.test {
			continue
		}
		for _, spec := range f.ast.Imports {
			if chain := t.chainToEtcd(pathOf(spec), seen); chain != nil {
				return append([]string{dir}, chain...)
			}
		}
	}
	return nil
}
