package doccheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	compliance  = "docs/compliance.md"
	threatModel = "docs/threat-model.md"
)

// row is one row of a Markdown table.
type row struct {
	line   int
	header []string // of its table
	cells  []string
}

// tables returns the rows of all tables of a text, without headers.
func tables(text string) (rows []row) {
	var header []string
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			header = nil
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case header == nil:
			header = cells
		case strings.Trim(line, "|-: ") != "":
			rows = append(rows, row{n, header, cells})
		}
	}
	return rows
}

var (
	// A row without a test gives a reason in one of these forms. The reason
	// has some words, or it is none.
	reason = regexp.MustCompile(`^(?:Does not apply|Not supported): \S+(?: \S+){3,}`)
	cited  = regexp.MustCompile("`((?:Test|Fuzz)\\w+)(…?)[`/]")
)

// shown reports whether the last cell of a row of the compliance table names a
// test or script that exists, or gives a reason why there is none.
func (tr tree) shown(cell string) bool {
	if reason.MatchString(cell) {
		return true
	}
	for _, m := range cited.FindAllStringSubmatch(cell, -1) {
		if len(tr.dirs(m[1], m[2] != "")) > 0 {
			return true
		}
	}
	for _, m := range namedScript.FindAllStringSubmatch(cell, -1) {
		if tr.files["qp/qptest/testdata/"+m[1]+".script"] {
			return true
		}
	}
	return false
}

// unshown returns what is wrong with the tables of tests of a document: rows
// of another number of cells than their header, rows with an empty cell, and
// rows without test and without reason.
func (tr tree) unshown(text string) (bad []string, rows int) {
	for _, r := range tables(text) {
		if !strings.HasPrefix(r.header[len(r.header)-1], "test") && r.header[len(r.header)-1] != "script" {
			continue // a table of something else
		}
		rows++
		last := r.cells[len(r.cells)-1]
		switch {
		case len(r.cells) != len(r.header):
			bad = append(bad, fmt.Sprintf("line %d: %d cells under a header of %d", r.line, len(r.cells), len(r.header)))
		case slices.Contains(r.cells, ""):
			bad = append(bad, fmt.Sprintf("line %d: an empty cell", r.line))
		case !tr.shown(last):
			bad = append(bad, fmt.Sprintf("line %d: neither a test nor a reason: %q", r.line, last))
		}
	}
	return bad, rows
}

// TestComplianceRows checks that every row of the tables of docs/compliance.md
// and docs/threat-model.md names a test that exists, or says why there is none.
func TestComplianceRows(t *testing.T) {
	t.Parallel()
	tr := readTree(t)
	for name, least := range map[string]int{compliance: 140, threatModel: 30} {
		bad, rows := tr.unshown(tr.docs[name])
		for _, b := range bad {
			t.Errorf("%s: %s", name, b)
		}
		if rows < least {
			t.Errorf("saw %d rows of %s: the test does not see the tables", rows, name)
		}
	}
}

func TestUnshownRowsAreSeen(t *testing.T) {
	t.Parallel()
	tr := tree{files: map[string]bool{"qp/qptest/testdata/send.script": true, "qp": true}, tests: map[string][]string{"TestOne": {"qp"}}}
	const header = "| rule | test |\n| --- | --- |\n"
	for _, c := range []struct {
		row  string
		good bool
	}{
		{"| a | `TestOne` |", true},
		{"| a | `qp` `TestO…` and more |", true},
		{"| a | `TestOne/case` |", true},
		{"| a | `send` |", true},
		{"| a | Does not apply: nobody has ever built one |", true},
		{"| a | Not supported: a socket has no such field |", true},
		{"| a | `TestTwo` |", false},
		{"| a | `TestTw…` |", false},
		{"| a | `gone` |", false},
		{"| a | `qp` |", false},
		{"| a | World |", false},
		{"| a | Does not apply |", false},
		{"| a | Does not apply: no |", false},
		{"| a | Not yet: somebody will do it soon enough |", false},
		{"| a | |", false},
		{"| | `TestOne` |", false},
		{"| `TestOne` |", false},
		{"| a | b | `TestOne` |", false},
	} {
		bad, rows := tr.unshown("text\n\n" + header + c.row + "\n\ntext\n")
		if rows != 1 || (len(bad) == 0) != c.good {
			t.Errorf("%s: %d rows, wrong is %q, expected good: %v", c.row, rows, bad, c.good)
		}
	}
}

// exported returns what package verbs exports: functions, types, values, and
// methods and fields as Type.Name.
func exported(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			exportedOf(d, names)
		}
	}
	return names
}

func exportedOf(d ast.Decl, names map[string]bool) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			of := d.Recv.List[0].Type
			if p, ok := of.(*ast.StarExpr); ok {
				of = p.X
			}
			if id, ok := of.(*ast.Ident); ok {
				name = id.Name + "." + name
			}
		}
		names[name] = true
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				names[s.Name.Name] = true
				exportedOfCode(d.Doc.Text(), names)
				if fields, ok := s.Type.(*ast.StructType); ok {
					for _, f := range fields.Fields.List {
						for _, n := range f.Names {
							names[s.Name.Name+"."+n.Name] = true
						}
					}
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names[n.Name] = true
				}
			}
		}
	}
}

// exportedOfCode adds what the code in the documentation of a type declares:
// that of an alias shows the fields and methods of what it stands for.
func exportedOfCode(doc string, names map[string]bool) {
	var code strings.Builder
	for line := range strings.Lines(doc) {
		if strings.HasPrefix(line, "\t") {
			code.WriteString(line)
		}
	}
	f, err := parser.ParseFile(token.NewFileSet(), "", "package x\n"+code.String(), parser.SkipObjectResolution)
	if err != nil || code.Len() == 0 {
		return // code of another kind
	}
	for _, d := range f.Decls {
		exportedOf(d, names)
	}
}

var goName = regexp.MustCompile("`([A-Z]\\w*(?:\\.[A-Z]\\w*)?)`")

// unknownNames returns the names of the columns headed "in package verbs" that
// are not among the names of that package.
func unknownNames(text string, names map[string]bool) (bad []string, seen int) {
	for _, r := range tables(text) {
		for i, cell := range r.cells {
			if i >= len(r.header) || r.header[i] != "in package `verbs`" {
				continue
			}
			for _, m := range goName.FindAllStringSubmatch(cell, -1) {
				if seen++; !names[m[1]] {
					bad = append(bad, m[1])
				}
			}
		}
	}
	return bad, seen
}

// TestComplianceNames checks that what the table of the verbs names is in
// package verbs.
func TestComplianceNames(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, compliance))
	if err != nil {
		t.Fatal(err)
	}
	bad, seen := unknownNames(string(text), exported(t, "verbs"))
	for _, b := range bad {
		t.Errorf("%s: package verbs has no %s", compliance, b)
	}
	if seen < 30 {
		t.Errorf("saw %d names: the test does not see the table", seen)
	}
}

func TestUnknownNamesAreSeen(t *testing.T) {
	t.Parallel()
	names := exported(t, "verbs")
	text := "| verb | in package `verbs` | test |\n| --- | --- | --- |\n" +
		"| a | `Open`, `Device.Close`, `Attr.QKey`, `OpSend` | `NotLooked` |\n| b | `Device.Cloze`, `Opened` | x |\n"
	bad, seen := unknownNames(text, names)
	if want := []string{"Device.Cloze", "Opened"}; !slices.Equal(bad, want) || seen != 6 {
		t.Errorf("unknown %q of %d, expected %q of 6", bad, seen, want)
	}
}
