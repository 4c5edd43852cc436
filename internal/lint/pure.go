package lint

import (
	"go/ast"
	"go/token"
	"slices"
)

// checkPure refuses what would make a pure file depend on anything but its
// inputs.
func (t *tree) checkPure(f file, r row) {
	for _, spec := range f.ast.Imports {
		p := pathOf(spec)
		switch {
		case isImpure(p):
			t.report(spec.Pos(), "pure", "import of %s", p)
		case p == "context" && r.purity == wholly && r.floor > 1:
			t.report(spec.Pos(), "pure", "import of context: a decision waits for nothing")
		case spec.Name != nil && spec.Name.Name == ".":
			t.report(spec.Pos(), "pure", "import of %s into the file's own names", p)
		}
	}
	names := f.importNames()
	ast.Inspect(f.ast, func(n ast.Node) bool {
		t.checkNode(n, names)
		return true
	})
}

func (t *tree) checkNode(n ast.Node, names map[string]string) {
	switch n := n.(type) {
	case *ast.GoStmt:
		t.report(n.Pos(), "pure", "go statement")
	case *ast.ChanType:
		t.report(n.Pos(), "pure", "channel type")
	case *ast.SendStmt:
		t.report(n.Arrow, "pure", "send on a channel")
	case *ast.SelectStmt:
		t.report(n.Pos(), "pure", "select statement")
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			t.report(n.Pos(), "pure", "receive from a channel")
		}
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok && isImpureName(names[x.Name], n.Sel.Name) {
			t.report(n.Pos(), "pure", "use of %s.%s", names[x.Name], n.Sel.Name)
		}
	}
}

func isImpure(importPath string) bool {
	under := func(tree string) bool { return within(importPath, tree) }
	return slices.ContainsFunc(impureImports, under) && !slices.ContainsFunc(pureImports, under)
}

func isImpureName(importPath, name string) bool {
	if pure, ok := pureNames[importPath]; ok {
		return !slices.Contains(pure, name)
	}
	return slices.Contains(impureNames[importPath], name)
}
