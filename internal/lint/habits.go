package lint

import (
	"go/ast"
	"strings"
)

// maxLines is the length of the longest file, tests and generated files apart.
const maxLines = 500

// unfencedDir is the package of the switch that takes safety parts out.
const unfencedDir = "internal/unfenced"

// checkHabits refuses files that are too long, tests that sleep, and files
// other than tests that take a safety part out.
func (t *tree) checkHabits(f file) {
	if lines := t.fset.File(f.ast.FileStart).LineCount(); !f.test && !f.generated && lines > maxLines {
		t.report(f.ast.Package, "length", "%d lines, more than %d", lines, maxLines)
	}
	names := f.importNames()
	ast.Inspect(f.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if !ok {
			return true
		}
		dir, _ := t.inside(names[x.Name])
		switch {
		case f.test && names[x.Name] == "time" && sel.Sel.Name == "Sleep":
			t.report(sel.Pos(), "sleep", "time.Sleep in a test: wait for a condition, or use testing/synctest")
		case !f.test && dir == unfencedDir && sel.Sel.Name == "Open":
			t.report(sel.Pos(), "unfenced", "unfenced.Open outside a test: what runs keeps its safety parts")
		}
		return true
	})
}

// checkDoc asks each package for a doc.go that says what it owns; of commands
// and examples only a package comment. Packages that hold nothing but tests or
// generated files need neither.
func (t *tree) checkDoc(p *pkg, r row) {
	var first *file
	for i, f := range p.files {
		if f.test || f.generated {
			continue
		}
		if first == nil {
			first = &p.files[i]
		}
		if f.ast.Doc != nil && (f.name == "doc.go" || strings.HasPrefix(r.dir, "cmd/") || strings.HasPrefix(r.dir, "examples/")) {
			return
		}
	}
	if first != nil {
		t.report(first.ast.Package, "doc", "package %s has no doc.go with a package comment", p.dir)
	}
}
