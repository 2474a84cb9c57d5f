package layering

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"testing"
)

// parts are the types of a package that are made to be understood, and tested,
// each without the others. Only methods of a part write its fields, and no
// other type calls more than maxSeam methods of it.
var parts = map[string][]string{
	"qp/responder": {"executor", "answers", "transmitter", "gap"},
}

const maxSeam = 15

func TestPartsKeepToThemselves(t *testing.T) {
	t.Parallel()
	files := tree(t)
	for dir, names := range parts {
		problems, calls := partProblems(files, dir, names)
		for _, problem := range problems {
			t.Error(problem)
		}
		if calls == 0 {
			t.Errorf("%s: no part calls another: the test does not see them", dir)
		}
	}
}

// seams looks at one package.
type seams struct {
	parts    []string
	fields   map[string]map[string]string // struct: field: its type, if that is of the package
	called   map[[2]string]set            // of a part, by a type
	problems []string
}

// partProblems reports what crosses the seams of a package, and how many
// methods are called across them.
func partProblems(files []source, dir string, names []string) (problems []string, calls int) {
	s := &seams{parts: names, fields: map[string]map[string]string{}, called: map[[2]string]set{}}
	for _, f := range files {
		if path.Dir(f.path) == dir && !f.isTest() {
			ast.Inspect(f.file, s.declare)
		}
	}
	for _, f := range files {
		if path.Dir(f.path) != dir || f.isTest() {
			continue
		}
		for _, decl := range f.file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
				s.function(f, fn)
			}
		}
	}
	for pair, methods := range s.called {
		calls += len(methods)
		if len(methods) > maxSeam {
			s.problems = append(s.problems, fmt.Sprintf("%s: %s calls %d methods of %s, more than %d: %v",
				dir, pair[0], len(methods), pair[1], maxSeam, slices.Sorted(maps.Keys(methods))))
		}
	}
	return s.problems, calls
}

func (s *seams) declare(x ast.Node) bool {
	t, ok := x.(*ast.TypeSpec)
	if !ok {
		return true
	}
	if st, ok := t.Type.(*ast.StructType); ok {
		s.fields[t.Name.Name] = map[string]string{}
		for _, f := range st.Fields.List {
			for _, name := range f.Names {
				s.fields[t.Name.Name][name.Name] = nameOf(f.Type)
			}
		}
	}
	return false
}

// function looks at what a function writes and calls. The types of its
// variables are those of its parameters, and of fields that they are set to.
func (s *seams) function(f source, fn *ast.FuncDecl) {
	types, of := map[string]string{}, ""
	lists := []*ast.FieldList{fn.Type.Params}
	if fn.Recv != nil {
		of = nameOf(fn.Recv.List[0].Type)
		lists = append(lists, fn.Recv)
	}
	for _, list := range lists {
		for _, p := range list.List {
			for _, name := range p.Names {
				types[name.Name] = nameOf(p.Type)
			}
		}
	}
	written := func(x ast.Expr) {
		for {
			index, ok := x.(*ast.IndexExpr)
			if !ok {
				break
			}
			x = index.X
		}
		if sel, ok := x.(*ast.SelectorExpr); ok {
			if part := s.typeOf(types, sel.X); part != of && slices.Contains(s.parts, part) {
				s.problems = append(s.problems, fmt.Sprintf("%s:%d: %s writes %s.%s", f.path, f.line(sel.Pos()), fn.Name.Name, part, sel.Sel.Name))
			}
		}
	}
	ast.Inspect(fn.Body, func(x ast.Node) bool {
		switch x := x.(type) {
		case *ast.AssignStmt:
			for i, l := range x.Lhs {
				if name, ok := l.(*ast.Ident); ok && x.Tok == token.DEFINE && len(x.Lhs) == len(x.Rhs) {
					types[name.Name] = s.typeOf(types, x.Rhs[i])
				}
				written(l)
			}
		case *ast.IncDecStmt:
			written(x.X)
		case *ast.CallExpr:
			if sel, ok := x.Fun.(*ast.SelectorExpr); ok {
				if part := s.typeOf(types, sel.X); part != of && slices.Contains(s.parts, part) {
					pair := [2]string{of, part}
					if s.called[pair] == nil {
						s.called[pair] = set{}
					}
					s.called[pair][sel.Sel.Name] = true
				}
			}
		}
		return true
	})
}

// typeOf returns the type of a variable or a field, "" if it is not known.
func (s *seams) typeOf(types map[string]string, x ast.Expr) string {
	switch x := x.(type) {
	case *ast.ParenExpr:
		return s.typeOf(types, x.X)
	case *ast.StarExpr:
		return s.typeOf(types, x.X)
	case *ast.UnaryExpr:
		return s.typeOf(types, x.X)
	case *ast.Ident:
		return types[x.Name]
	case *ast.SelectorExpr:
		return s.fields[s.typeOf(types, x.X)][x.Sel.Name]
	}
	return ""
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
		problems, _ := partProblems([]source{mustParse(t, "fabric/x.go", head+text+"\n")}, "fabric", []string{"one", "other"})
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
