package lint

import (
	"go/ast"
	"strings"
)

// maxLines is the length of the longest file, tests and generated files apart.
const maxLines = 500

// checkHabits refuses files that are too long and tests that sleep.
func (t *tree) checkHabits(f file) {
	if lines := t.fset.File(f.ast.FileStart).LineCount(); !f.test && !f.generated && lines > maxLines {
		t.report(f.ast.Package, "length", "%d lines, more than %d", lines, maxLines)
	}
	if !f.test {
		return
	}
	names := f.importNames()
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && names[x.Name] == "time" && sel.Sel.Name == "Sleep" {
				t.report(sel.Pos(), "sleep", "time.Sleep in a test: wait for a condition, or use testing/synctest")
			}
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
