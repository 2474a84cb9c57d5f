package layering

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestNoTestSleeps keeps waiting for real time to pass out of the tests: it is
// slow, and too short on some machine.
func TestNoTestSleeps(t *testing.T) {
	t.Parallel()
	for _, problem := range sleepProblems(tree(t)) {
		t.Error(problem)
	}
}

// sleepProblems reports the sleeps of tests outside virtual time.
func sleepProblems(files []source) []string {
	packages := map[string][]source{} // the tests of each folder
	for _, s := range files {
		if s.isTest() {
			packages[path.Dir(s.path)] = append(packages[path.Dir(s.path)], s)
		}
	}
	var problems []string
	for _, tests := range packages {
		problems = append(problems, realSleeps(tests)...)
	}
	slices.Sort(problems)
	return problems
}

// outside is what a declaration does outside function literals that run in
// virtual time.
type outside struct {
	sleeps []string        // where
	names  map[string]bool // of what it uses
}

// realSleeps reports the sleeps in the tests of a package but those in a
// function literal that synctest.Test gets, and in functions that only such
// literals call. Names stand for functions: if two have the same name, both
// count as used where one is.
func realSleeps(tests []source) []string {
	functions, methods := map[string][]outside{}, map[string]bool{}
	used := map[string]bool{} // by any test, in whatever time
	var roots []outside       // what runs in real time
	for _, s := range tests {
		for _, decl := range s.file.Decls {
			out := s.outside(decl, used)
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || startsInRealTime(fn) {
				roots = append(roots, out)
				continue
			}
			functions[fn.Name.Name] = append(functions[fn.Name.Name], out)
			methods[fn.Name.Name] = methods[fn.Name.Name] || fn.Recv != nil
		}
	}
	for name, of := range functions {
		// Others call exported methods too, through an interface.
		if !used[name] || methods[name] && ast.IsExported(name) {
			roots = append(roots, of...)
			delete(functions, name)
		}
	}
	var problems []string
	for len(roots) > 0 {
		out := roots[0]
		roots = roots[1:]
		for _, where := range out.sleeps {
			problems = append(problems, where+" sleeps: wait for an event instead, or use virtual time (testing/synctest)")
		}
		for name := range out.names {
			roots = append(roots, functions[name]...)
			delete(functions, name)
		}
	}
	return problems
}

var entry = regexp.MustCompile(`^(Test|Fuzz|Example|init$)`)

// startsInRealTime reports whether the function is one that package testing
// calls.
func startsInRealTime(fn *ast.FuncDecl) bool {
	return fn.Recv == nil && entry.MatchString(fn.Name.Name)
}

// outside returns what a declaration does in real time, and adds all names that
// it uses to used.
func (s source) outside(decl ast.Decl, used map[string]bool) outside {
	out := outside{names: map[string]bool{}}
	fn, _ := decl.(*ast.FuncDecl)
	var cases, virtual []ast.Node // of a select; the literals in virtual time
	inside := func(n ast.Node) bool {
		return slices.ContainsFunc(virtual, func(v ast.Node) bool { return v.Pos() <= n.Pos() && n.End() <= v.End() })
	}
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			if fn != nil && n == fn.Name {
				break
			}
			used[n.Name] = true
			if !inside(n) {
				out.names[n.Name] = true
			}
		case *ast.CallExpr:
			if s.isFrom(n.Fun, "testing/synctest", "Test") && len(n.Args) == 2 {
				if literal, ok := n.Args[1].(*ast.FuncLit); ok {
					virtual = append(virtual, literal)
				}
			}
		case *ast.SelectorExpr:
			if s.isFrom(n, "time", "Sleep") && !inside(n) {
				out.sleeps = append(out.sleeps, s.at(n.Pos()))
			}
		case *ast.CommClause:
			cases = append(cases, n.Comm)
		case *ast.ExprStmt:
			if s.waitsForTime(n) && !inside(n) && !slices.Contains(cases, ast.Node(n)) {
				out.sleeps = append(out.sleeps, s.at(n.Pos()))
			}
		}
		return true
	})
	if fn != nil && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Benchmark") {
		return outside{} // it measures real time
	}
	return out
}

// waitsForTime reports whether the statement is <-time.After(d), which sleeps.
func (s source) waitsForTime(n *ast.ExprStmt) bool {
	receive, ok := n.X.(*ast.UnaryExpr)
	if !ok || receive.Op != token.ARROW {
		return false
	}
	call, ok := receive.X.(*ast.CallExpr)
	return ok && s.isFrom(call.Fun, "time", "After")
}

func (s source) at(p token.Pos) string { return fmt.Sprintf("%s:%d", s.path, s.line(p)) }

// isFrom reports whether e is the function of that name in a package, by
// whatever name the file imports it.
func (s source) isFrom(e ast.Expr, pkg, name string) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok {
		return false
	}
	for _, spec := range s.file.Imports {
		if strings.Trim(spec.Path.Value, `"`) == pkg {
			return spec.Name == nil && x.Name == path.Base(pkg) || spec.Name != nil && x.Name == spec.Name.Name
		}
	}
	return false
}

func TestSleepsAreSeen(t *testing.T) {
	t.Parallel()
	const (
		head    = "package x\nimport (\"time\"; \"testing/synctest\")\n"
		sleeps  = "func f() { time.Sleep(1) }\n"
		real    = "func TestR(t *T) { f() }\n"
		virtual = "func TestV(t *T) { synctest.Test(t, func(t *T) { f() }) }\n"
	)
	for _, c := range []struct {
		rel, text string
		want      int // the line, 0: nothing is wrong
	}{
		{"hca/x_test.go", "func TestR(t *T) {\n\ttime.Sleep(1)\n}\n", 4},
		{"hca/x_test.go", "func TestR(t *T) {\n\t<-time.After(1)\n}\n", 4},
		{"hca/x_test.go", "func TestR(t *T) { select { case <-time.After(1): } }\n", 0},
		{"hca/x_test.go", "func TestR(t *T) {\n\tsynctest.Test(t, func(t *T) {})\n\ttime.Sleep(1)\n}\n", 5},
		{"hca/x_test.go", "func TestR(t *T) {\n\tuse(time.Sleep)\n}\n", 4},
		{"hca/x_test.go", "func TestV(t *T) { synctest.Test(t, func(t *T) { go func() { time.Sleep(1) }() }) }\n", 0},
		{"hca/x_test.go", "func TestR(t *T) { another.Test(t, func(t *T) { time.Sleep(1) }) }\n", 3},
		{"hca/x_test.go", sleeps, 3},
		{"hca/x_test.go", sleeps + real, 3},
		{"hca/x_test.go", sleeps + virtual, 0},
		{"hca/x_test.go", sleeps + virtual + real, 3},
		{"hca/x_test.go", sleeps + virtual + "func g() { f() }\nfunc TestR(t *T) { g() }\n", 3},
		{"hca/x_test.go", sleeps + virtual + "func (g g) g() { f() }\nfunc TestR(t *T) { go x.g() }\n", 3},
		{"hca/x_test.go", sleeps + virtual + "func (g g) G() { f() }\n", 3},
		{"hca/x_test.go", sleeps + virtual + "func (g g) f() {}\nfunc TestR(t *T) { x.f() }\n", 3},
		{"hca/x_test.go", sleeps + virtual + "var table = []func(){f}\n", 3},
		{"hca/x_test.go", sleeps + "func TestV(t *T) { synctest.Test(t, func(t *T) { g() }) }\nfunc g() { f() }\n", 0},
		{"hca/x_test.go", "func BenchmarkR(b *B) { time.Sleep(1) }\n", 0},
		{"hca/x_test.go", sleeps + "func BenchmarkR(b *B) { f() }\n", 0},
		{"hca/x_test.go", sleeps + "func BenchmarkR(b *B) { f() }\n" + real, 3},
		{"hca/x.go", sleeps + real, 0},
		{"e2e/x_test.go", sleeps + real, 3},
	} {
		other := mustParse(t, "fabric/x_test.go", head+real)
		got := sleepProblems([]source{mustParse(t, c.rel, head+c.text), other})
		if c.want == 0 && len(got) > 0 || c.want > 0 && (len(got) != 1 || !strings.HasPrefix(got[0], fmt.Sprintf("%s:%d sleeps", c.rel, c.want))) {
			t.Errorf("%s with %q gives %q, want one of line %d", c.rel, c.text, got, c.want)
		}
	}
	renamed := mustParse(t, "hca/x_test.go", "package x\nimport clock \"time\"\nfunc TestR(t *T) { clock.Sleep(1) }\n")
	if got := sleepProblems([]source{renamed}); len(got) != 1 {
		t.Errorf("time by another name: %q", got)
	}
}
