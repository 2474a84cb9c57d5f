package requester

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"strings"
	"testing"
)

// sideOf says which side of a seam the methods of a type are on: a part, or one
// of the three that compose them.
var sideOf = map[string]string{
	"stream": "stream", "accepted": "stream",
	"recovery": "recovery", "gaps": "recovery", "lateness": "recovery", "wait": "recovery", "twins": "recovery", "repair": "recovery",
	"retry": "recovery", "rnr": "recovery", "rtt": "recovery", "flushICRC": "recovery",
	"encoder":   "encoder",
	"Requester": "Requester", "credit": "Requester",
	"turn": "turn", "response": "response",
}

// composes says whose fields those that compose the parts may write.
var composes = map[string]string{"turn": "Requester", "response": "Requester"}

// mostInSeam is how many methods of a part one side calls at most.
const mostInSeam = 15

// TestParts holds the parts to their seams: a part reads the fields of another
// and calls what it offers, which is little. It writes none of them.
func TestParts(t *testing.T) {
	t.Parallel()
	set := token.NewFileSet()
	var files []*ast.File
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			f, err := parser.ParseFile(set, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
	}
	info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
	config := types.Config{Importer: importer.ForCompiler(set, "source", nil)}
	if _, err := config.Check("requester", set, files, info); err != nil {
		t.Fatal(err)
	}
	seams := map[[2]string]map[string]bool{}
	for _, f := range files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			from := sideOf[typeName(fn.Recv.List[0].Type)]
			if from == "" {
				continue
			}
			for _, problem := range foreignWrites(fn, from, info, set) {
				t.Error(problem)
			}
			for to, method := range calls(fn, info) {
				if to != from {
					seam := [2]string{from, to}
					if seams[seam] == nil {
						seams[seam] = map[string]bool{}
					}
					for m := range method {
						seams[seam][m] = true
					}
				}
			}
		}
	}
	for seam, methods := range seams {
		t.Logf("%s calls %d methods of %s", seam[0], len(methods), seam[1])
		if len(methods) > mostInSeam {
			t.Errorf("%s calls %d methods of %s, more than %d: %v", seam[0], len(methods), seam[1], mostInSeam, methods)
		}
	}
	if len(seams) < 6 {
		t.Errorf("only the seams %v were found", seams)
	}
}

// typeName returns the name of the type of a receiver.
func typeName(e ast.Expr) string {
	if p, ok := e.(*ast.StarExpr); ok {
		e = p.X
	}
	if id, ok := e.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// side returns the side of what has the field or method of a selection.
func side(s *types.Selection) string {
	t := s.Recv()
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := t.(*types.Named); ok {
		return sideOf[n.Obj().Name()]
	}
	return ""
}

// foreignWrites says which fields of another side a method writes.
func foreignWrites(fn *ast.FuncDecl, from string, info *types.Info, set *token.FileSet) (problems []string) {
	check := func(e ast.Expr) {
		for {
			x, ok := e.(*ast.SelectorExpr)
			if !ok || info.Selections[x] == nil {
				return
			}
			s := info.Selections[x]
			if to := side(s); to != "" && to != from && to != composes[from] {
				problems = append(problems, set.Position(x.Pos()).String()+": "+from+" writes "+x.Sel.Name+" of "+to)
				return
			}
			if _, ok := s.Recv().(*types.Pointer); ok {
				return // what lies there is not in x.X
			}
			e = x.X
		}
	}
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				check(e)
			}
		case *ast.IncDecStmt:
			check(n.X)
		}
		return true
	})
	return problems
}

// calls returns the methods that a method calls, by their side.
func calls(fn *ast.FuncDecl, info *types.Info) map[string]map[string]bool {
	found := map[string]map[string]bool{}
	ast.Inspect(fn, func(n ast.Node) bool {
		x, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if s := info.Selections[x]; s != nil && s.Kind() == types.MethodVal && side(s) != "" {
			if found[side(s)] == nil {
				found[side(s)] = map[string]bool{}
			}
			found[side(s)][x.Sel.Name] = true
		}
		return true
	})
	return found
}
