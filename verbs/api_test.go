package verbs_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/gosoftroce/rocev2/"

// api looks at the exported interface of a package, as go doc shows it.
type api struct {
	t       *testing.T
	dir     string // of the module, relative to the test
	imports map[string]string
	bad     []string
	seen    int
}

func (a *api) problem(name, format string, args ...any) {
	a.bad = append(a.bad, name+": "+fmt.Sprintf(format, args...))
}

// parseDir parses the files of a package without its tests.
func parseDir(t *testing.T, dir string) []*ast.File {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check(t, err)
	var files []*ast.File
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, parser.ParseComments)
		check(t, err)
		files = append(files, f)
	}
	return files
}

// TestInterfaceIsOneImport: programs import verbs and nothing else. What is a
// struct of another package of the module is documented as if it were its own,
// and nothing that it exports mentions a type of another package.
func TestInterfaceIsOneImport(t *testing.T) {
	t.Parallel()
	a := &api{t: t, dir: ".."}
	for _, f := range parseDir(t, ".") {
		a.file(f)
	}
	for _, problem := range a.bad {
		t.Error(problem)
	}
	if a.seen < 100 {
		t.Errorf("saw %d exported names: the test does not see the package", a.seen)
	}
}

// The compiler checks all: nothing is seen as another type.
func TestNothingIsUnsafe(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	check(t, err)
	for _, name := range files {
		src, err := os.ReadFile(name)
		check(t, err)
		if bytes.Contains(src, []byte("\"unsafe\"\n")) {
			t.Errorf("%s imports unsafe", name)
		}
	}
}

// The checks see what they forbid.
func TestInterfaceChecksCanFail(t *testing.T) {
	t.Parallel()
	for _, src := range []string{
		"// T is.\ntype T = ib.SendWR",
		"// T is.\ntype T struct {\n// F is.\nF []ib.SGE }",
		"// T is.\ntype T func(*ib.Attr)",
		"// F does.\nfunc F() ib.WC { return ib.WC{} }",
		"// T is.\ntype T struct{}\n// M does.\nfunc (T) M(map[string]*ib.Attr) {}",
		"// V is.\nvar V ib.WC",
		"type T int",
		"// T is.\ntype T struct { F int }",
		"const C = 1",
		"func F() {}",
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package verbs\nimport \""+module+"ib\"\n"+src, parser.ParseComments)
		check(t, err)
		a := &api{t: t, dir: ".."}
		if a.file(f); len(a.bad) != 1 {
			t.Errorf("%s\ngives %v", src, a.bad)
		}
	}
	good := &api{t: t, dir: ".."}
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package verbs\nimport \""+module+"ib\"\n"+`// S is.
type S = ib.Status
// W is.
//
//	type W struct {
//		A int
//	}
type W = ib.SendWR
// H is.
//
//	// Close closes.
//	func (h *H) Close() error
type H = ib.AddressHandle
// T is.
type T struct {
	A, B int // are
	c ib.WC
}
func (t *T) hidden(ib.WC) {}
`, parser.ParseComments)
	check(t, err)
	if good.file(f); len(good.bad) > 0 {
		t.Error(good.bad)
	}
}

// file looks at the declarations of one file.
func (a *api) file(f *ast.File) {
	a.imports = map[string]string{}
	for _, s := range f.Imports {
		path, err := strconv.Unquote(s.Path.Value)
		check(a.t, err)
		if own, ok := strings.CutPrefix(path, module); ok {
			a.imports[filepath.Base(own)] = own
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			a.function(d)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				a.spec(d, s)
			}
		}
	}
}

func (a *api) function(d *ast.FuncDecl) {
	name := d.Name.Name
	if !d.Name.IsExported() {
		return
	}
	if d.Recv != nil {
		recv := d.Recv.List[0].Type
		if p, ok := recv.(*ast.StarExpr); ok {
			recv = p.X
		}
		id, ok := recv.(*ast.Ident)
		if !ok || !id.IsExported() {
			return
		}
		name = id.Name + "." + name
	}
	a.seen++
	if d.Doc == nil {
		a.problem(name, "no documentation")
	}
	if name != "HCA" { // which faces of the engine call, and no program
		a.mentions(name, d.Type)
	}
}

func (a *api) spec(d *ast.GenDecl, s ast.Spec) {
	switch s := s.(type) {
	case *ast.TypeSpec:
		name := s.Name.Name
		if !s.Name.IsExported() {
			return
		}
		a.seen++
		if s.Doc == nil && (d.Doc == nil || d.Lparen.IsValid()) {
			a.problem(name, "no documentation")
		}
		if sel, ok := s.Type.(*ast.SelectorExpr); ok && s.Assign.IsValid() {
			if k := a.kind(sel); k == "struct" && !shown(name, d.Doc.Text()) {
				a.problem(name, "an alias of a struct, of which go doc shows neither fields nor methods")
			}
			return
		}
		if st, ok := s.Type.(*ast.StructType); ok {
			a.fields(name, st)
			return
		}
		a.mentions(name, s.Type)
	case *ast.ValueSpec:
		for _, id := range s.Names {
			if !id.IsExported() {
				continue
			}
			a.seen++
			if s.Doc == nil && s.Comment == nil && d.Doc == nil {
				a.problem(id.Name, "no documentation")
			}
			if s.Type != nil {
				a.mentions(id.Name, s.Type)
			}
		}
	}
}

// shown reports whether the documentation of a struct has what go doc does not
// find: its fields, or where none is for programs its methods.
func shown(name, doc string) bool {
	return strings.Contains(doc, "\ttype "+name+" struct {\n") ||
		regexp.MustCompile(`(?m)^\tfunc \(\w+ \*?`+name+`\) `).MatchString(doc)
}

func (a *api) fields(name string, st *ast.StructType) {
	for _, f := range st.Fields.List {
		for _, id := range f.Names {
			if !id.IsExported() {
				continue
			}
			a.seen++
			if f.Doc == nil && f.Comment == nil && (f.Tag == nil || !strings.Contains(f.Tag.Value, "help:")) {
				a.problem(name+"."+id.Name, "no documentation")
			}
			a.mentions(name+"."+id.Name, f.Type)
		}
	}
}

// mentions looks for types of other packages of the module.
func (a *api) mentions(name string, n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if ok && a.kind(sel) != "" {
			a.problem(name, "mentions %v.%v, which programs would have to import", sel.X, sel.Sel)
		}
		return true
	})
}

// kind returns what a type of another package of the module is: "struct",
// "interface" or "other". It is empty for what is not of the module.
func (a *api) kind(sel *ast.SelectorExpr) string {
	id, ok := sel.X.(*ast.Ident)
	if !ok || a.imports[id.Name] == "" {
		return ""
	}
	kind := "other"
	for _, f := range parseDir(a.t, filepath.Join(a.dir, a.imports[id.Name])) {
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.TypeSpec); ok && s.Name.Name == sel.Sel.Name {
				switch s.Type.(type) {
				case *ast.StructType:
					kind = "struct"
				case *ast.InterfaceType:
					kind = "interface"
				}
			}
			return true
		})
	}
	return kind
}
