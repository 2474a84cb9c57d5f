package layering

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The sizes that a reader can take in. Those of functions and types are for the
// product; tests may have long tables.
const (
	maxFileLines     = 500
	maxFunctionLines = 55
	maxMethods       = 40 // that a type really has, see count_test.go
	maxColumns       = 80 // of a line that is a comment; a tab counts as 8
)

// source is a Go file of the tree. Its path is relative to the module.
type source struct {
	path string
	text []byte
	fset *token.FileSet
	file *ast.File
}

func parse(rel string, text []byte) (source, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, rel, text, parser.ParseComments|parser.SkipObjectResolution)
	return source{rel, text, fset, f}, err
}

func (s source) line(p token.Pos) int { return s.fset.Position(p).Line }

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// tree returns the Go files of the repository, all modules and systems.
func tree(t *testing.T) []source {
	t.Helper()
	root := filepath.Join("..", "..")
	var files []source
	err := filepath.WalkDir(root, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		s, err := parse(filepath.ToSlash(rel), text)
		files = append(files, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("saw %d files: the test does not see the tree", len(files))
	}
	return files
}

// TestNothingGrowsWithoutEnd keeps files, functions, types and the lines of
// comments at a size that can be read in one go.
func TestNothingGrowsWithoutEnd(t *testing.T) {
	t.Parallel()
	files := tree(t)
	for _, s := range files {
		for _, problem := range sizeProblems(s) {
			t.Error(problem)
		}
	}
	for _, problem := range methodProblems(files) {
		t.Error(problem)
	}
}

func sizeProblems(s source) []string {
	var problems []string
	if n := bytes.Count(s.text, []byte("\n")); n > maxFileLines {
		problems = append(problems, fmt.Sprintf("%s has %d lines, more than %d", s.path, n, maxFileLines))
	}
	for _, decl := range s.file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || s.isTest() {
			continue
		}
		if n := s.line(fn.End()) - s.line(fn.Pos()) + 1; n > maxFunctionLines {
			problems = append(problems, fmt.Sprintf("%s: function %s has %d lines, more than %d", s.path, fn.Name.Name, n, maxFunctionLines))
		}
	}
	return append(problems, commentProblems(s)...)
}

// directive matches the comments that are for tools.
var directive = regexp.MustCompile(`^//([a-z0-9]+:[a-z0-9]|export )`)

// commentProblems reports the lines that are a comment and nothing else, and
// too wide.
func commentProblems(s source) []string {
	lines := strings.Split(string(s.text), "\n")
	var problems []string
	if ast.IsGenerated(s.file) {
		return nil // its comments quote code, whose lines are what they are
	}
	for _, group := range s.file.Comments {
		if output := strings.TrimSpace(group.Text()); s.isTest() && strings.HasPrefix(output, "Output:") {
			continue // of an example, whose lines are what they are
		}
		for n := s.line(group.Pos()); n <= s.line(group.End()); n++ {
			text := strings.TrimLeft(lines[n-1], " \t")
			behindCode := n == s.line(group.Pos()) && !strings.HasPrefix(text, "/")
			if wide := columns(lines[n-1]); wide > maxColumns && !behindCode && !directive.MatchString(text) {
				problems = append(problems, fmt.Sprintf("%s:%d: a comment of %d columns, more than %d", s.path, n, wide, maxColumns))
			}
		}
	}
	return problems
}

func columns(line string) int {
	return utf8.RuneCountInString(line) + 7*(len(line)-len(strings.TrimLeft(line, "\t")))
}

// methodProblems reports the types that have too much (count_test.go).
func methodProblems(files []source) []string {
	var problems []string
	all := count(files)
	for _, name := range slices.SortedFunc(maps.Keys(all), compareNames) {
		if n := len(all[name]); n > maxMethods {
			problems = append(problems, fmt.Sprintf("%s has %d methods, more than %d: %s", name, n, maxMethods,
				strings.Join(slices.Sorted(maps.Keys(all[name])), " ")))
		}
	}
	return problems
}

func compareNames(a, b typeName) int { return strings.Compare(a.String(), b.String()) }
