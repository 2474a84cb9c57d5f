package layering

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	maxFileLines     = 650
	maxFunctionLines = 85
)

// tooLong lists what may be longer than the rest, by file or by file and
// function, and why.
var tooLong = map[string]string{}

// TestNothingGrowsWithoutEnd keeps files and functions at a size that can be
// read in one go. Tests count too, their tables excepted by name above.
func TestNothingGrowsWithoutEnd(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	files := 0
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		files++
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		checkSizes(t, filepath.ToSlash(rel), src)
		if sleepsForReal(filepath.ToSlash(rel), src) {
			t.Errorf("%s sleeps: wait for an event instead, or use virtual time (testing/synctest)", rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 {
		t.Errorf("saw %d files: the test does not see the tree", files)
	}
}

func checkSizes(t *testing.T, rel string, src []byte) {
	t.Helper()
	if n := bytes.Count(src, []byte("\n")); n > maxFileLines && tooLong[rel] == "" {
		t.Errorf("%s has %d lines, more than %d", rel, n, maxFileLines)
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, rel, src, 0)
	if err != nil {
		t.Error(err)
		return
	}
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		n := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1
		name := rel + " " + fn.Name.Name
		if n > maxFunctionLines && tooLong[name] == "" && !strings.HasSuffix(rel, "_test.go") {
			t.Errorf("%s: function %s has %d lines, more than %d", rel, fn.Name.Name, n, maxFunctionLines)
		}
	}
}

// sleepsForReal reports whether a test waits for time to pass that is not
// virtual. Tests with guests may.
func sleepsForReal(rel string, src []byte) bool {
	return strings.HasSuffix(rel, "_test.go") && !strings.HasPrefix(rel, "e2e/") && !strings.HasPrefix(rel, "internal/layering/") &&
		bytes.Contains(src, []byte("time.Sleep(")) && !bytes.Contains(src, []byte(`"testing/synctest"`))
}

func TestSleepsAreSeen(t *testing.T) {
	t.Parallel()
	sleeps, virtual := "package x\nfunc f() { time.Sleep(1) }\n", "package x\nimport \"testing/synctest\"\nfunc f() { time.Sleep(1) }\n"
	if !sleepsForReal("hca/x_test.go", []byte(sleeps)) || sleepsForReal("hca/x_test.go", []byte(virtual)) || sleepsForReal("hca/x.go", []byte(sleeps)) {
		t.Error("sleeps in tests are not told from virtual ones")
	}
}
