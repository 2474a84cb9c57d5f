package layering

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"slices"
	"testing"
)

// parts are packages of types that are made to be understood, and tested, each
// without the others: for each type of a part its part. A part writes its own
// fields alone, and calls at most maxSeam methods of another. Types that are
// not listed are parts of their own, and functions are of none.
var parts = map[string]map[string]string{
	"qp/responder": {"executor": "executor", "answers": "answers", "transmitter": "transmitter", "gap": "gap"},
	"qp/requester": {
		"stream": "stream", "accepted": "stream",
		"recovery": "recovery", "gaps": "recovery", "lateness": "recovery", "wait": "recovery", "twins": "recovery",
		"repair": "recovery", "retry": "recovery", "rnr": "recovery", "rtt": "recovery", "flushICRC": "recovery",
		"encoder": "encoder", "credit": "Requester", "Requester": "Requester",
	},
}

// mayWrite has what else types write: those that live for a call the part that
// they act for, and a snapshot its copies.
var mayWrite = map[string][]string{"turn": {"Requester"}, "response": {"Requester"}, "Snapshot": {"stream", "recovery"}}

const maxSeam = 15

func TestPartsKeepToThemselves(t *testing.T) {
	t.Parallel()
	set := token.NewFileSet()
	imports := importer.ForCompiler(set, "source", nil)
	files := tree(t)
	for dir, of := range parts {
		problems, seams, err := partProblems(set, imports, files, dir, of)
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range problems {
			t.Error(problem)
		}
		if seams < len(of)/2 {
			t.Errorf("%s: %d seams: the test does not see them", dir, seams)
		}
	}
}

// seams looks at one package.
type seams struct {
	set      *token.FileSet
	part     map[string]string // of types
	info     *types.Info
	called   map[[2]string]set // methods of a part, by another
	problems []string
}

// partProblems reports what crosses the seams of a package, whose types are of
// the parts that of says, and how many seams there are.
func partProblems(fset *token.FileSet, imports types.Importer, files []source, dir string, of map[string]string) (problems []string, count int, err error) {
	s := &seams{set: fset, part: of, called: map[[2]string]set{}, info: &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}}
	var asts []*ast.File
	for _, f := range files {
		if path.Dir(f.path) == dir && !f.isTest() {
			a, err := parser.ParseFile(fset, f.path, f.text, 0)
			if err != nil {
				return nil, 0, err
			}
			asts = append(asts, a)
		}
	}
	config := types.Config{Importer: imports}
	if _, err := config.Check(dir, fset, asts, s.info); err != nil {
		return nil, 0, err
	}
	for _, f := range asts {
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
				s.function(fn)
			}
		}
	}
	for pair, methods := range s.called {
		if len(methods) > maxSeam {
			s.problems = append(s.problems, fmt.Sprintf("%s: %s calls %d methods of %s, more than %d: %v",
				dir, pair[0], len(methods), pair[1], maxSeam, slices.Sorted(maps.Keys(methods))))
		}
	}
	return s.problems, len(s.called), nil
}

// partOf returns the part of what has a field or method, "" if it is of none.
func (s *seams) partOf(t types.Type) string {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := t.(*types.Named); ok {
		return s.part[n.Obj().Name()]
	}
	return ""
}

// function looks at what a function writes and calls.
func (s *seams) function(fn *ast.FuncDecl) {
	from := ""
	if fn.Recv != nil {
		name := nameOf(fn.Recv.List[0].Type)
		from = cmp.Or(s.part[name], name)
	}
	ast.Inspect(fn, func(x ast.Node) bool {
		switch x := x.(type) {
		case *ast.AssignStmt:
			for _, e := range x.Lhs {
				s.written(e, from)
			}
		case *ast.IncDecStmt:
			s.written(x.X, from)
		case *ast.SelectorExpr:
			sel := s.info.Selections[x]
			if sel == nil || sel.Kind() != types.MethodVal {
				break
			}
			if to := s.partOf(sel.Recv()); to != "" && to != from {
				pair := [2]string{from, to}
				if s.called[pair] == nil {
					s.called[pair] = set{}
				}
				s.called[pair][x.Sel.Name] = true
			}
		}
		return true
	})
}

// written looks at what from writes: e, and all that e lies in.
func (s *seams) written(e ast.Expr, from string) {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			sel := s.info.Selections[x]
			if sel == nil {
				return
			}
			if to := s.partOf(sel.Recv()); to != "" && to != from && !slices.Contains(mayWrite[from], to) {
				s.problems = append(s.problems, fmt.Sprintf("%s: %s writes %s of %s", s.set.Position(x.Pos()), cmp.Or(from, "a function"), x.Sel.Name, to))
				return
			}
			if _, ok := sel.Recv().(*types.Pointer); ok {
				return // what lies there is not in x.X
			}
			e = x.X
		default:
			return
		}
	}
}

// TestTheSeamsCanFail crosses them in each way.
func TestTheSeamsCanFail(t *testing.T) {
	t.Parallel()
	const head = "package x\ntype whole struct{ a one; b *other; n int }\ntype one struct{ n int; list []int }\ntype other struct{ n int; a *one }\n" +
		"func (o *one) set() { o.n = 1; o.list[0]++ }\n"
	many := ""
	for i := range maxSeam + 1 {
		many += fmt.Sprintf("func (o *one) m%d() {}; func (w *whole) f%d() { w.a.m%d() }\n", i, i, i)
	}
	for text, bad := range map[string]bool{
		"func (w *whole) f() { w.n = w.a.n; w.a.set(); w.b.a.set() }": false,
		"func (w *whole) f() { w.a = one{}; n := w.a.n; n++ }":        false,
		"func (w *whole) f() { p := &w.a.n; _ = p; *w = whole{} }":    false,
		"func (w *whole) f() { w.a.n = 1 }":                           true,
		"func (w *whole) f() { w.n, w.a.n = 1, 2 }":                   true,
		"func (w *whole) f() { w.a.n++ }":                             true,
		"func (w *whole) f() { w.a.list[1] = 2 }":                     true,
		"func (w *whole) f() { w.b.a.n += 1 }":                        true,
		"func (w *whole) f() { o := &w.a; o.n = 1 }":                  true,
		"func (w *whole) f() { b := w.b; o := b.a; o.n = 1 }":         true,
		"func (o *other) f() { o.a.n = 1 }":                           true,
		"func f(o *one) { o.n = 1 }":                                  true,
		many:                                                          true,
	} {
		problems, _, err := partProblems(token.NewFileSet(), nil, []source{mustParse(t, "fabric/x.go", head+text+"\n")}, "fabric",
			map[string]string{"one": "one", "other": "other"})
		if err != nil {
			t.Fatal(err)
		}
		if bad != (len(problems) == 1) || !bad && len(problems) > 0 {
			t.Errorf("%.80s gives %q", text, problems)
		}
	}
}

// nameOf returns the name of a type of the package, "" if it is none.
func nameOf(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return nameOf(t.X)
	case *ast.IndexExpr:
		return nameOf(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}
