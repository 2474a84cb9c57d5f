package layering

import (
	"fmt"
	"strings"
	"testing"
)

func mustParse(t *testing.T, rel, text string) source {
	t.Helper()
	s, err := parse(rel, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTheSizesCanFail feeds the limits what is just within and just beyond
// them.
func TestTheSizesCanFail(t *testing.T) {
	t.Parallel()
	function := func(lines int) string {
		return "package x\n\nfunc f() {\n" + strings.Repeat("\tf()\n", lines-2) + "}\n"
	}
	comment := func(indent string, wide int) string {
		return "package x\n\nfunc f() {\n" + indent + "// " + strings.Repeat("é", wide-8*len(indent)-3) + "\n}\n"
	}
	for _, c := range []struct {
		rel, text, want string
	}{
		{"fabric/x.go", "package x\n" + strings.Repeat("\n", maxFileLines-1), ""},
		{"fabric/x.go", "package x\n" + strings.Repeat("\n", maxFileLines), "501 lines"},
		{"fabric/x_test.go", "package x\n" + strings.Repeat("\n", maxFileLines), "501 lines"},
		{"fabric/x.go", function(maxFunctionLines), ""},
		{"fabric/x.go", function(maxFunctionLines + 1), "56 lines"},
		{"fabric/x_test.go", function(maxFunctionLines + 1), ""},
		{"fabric/x.go", comment("\t", maxColumns), ""},
		{"fabric/x.go", comment("\t", maxColumns+1), "81 columns"},
		{"fabric/x_test.go", comment("\t\t", maxColumns+1), "81 columns"},
		{"fabric/x.go", "package x\n\n/*\n" + strings.Repeat("x", 81) + "\n*/\n", "81 columns"},
		{"fabric/x.go", "package x\n\n//go:generate " + strings.Repeat("x", 81) + "\n", ""},
		{"fabric/x.go", "package x\n\nvar " + strings.Repeat("x", 81) + " int // behind code\n", ""},
		{"fabric/x.go", "package x\n\nvar x = `\n// " + strings.Repeat("x", 81) + "`\n", ""},
	} {
		got := sizeProblems(mustParse(t, c.rel, c.text))
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
			t.Errorf("%s with %q gives %q, want %q", c.rel, c.text, got, c.want)
		}
	}
}

func TestTheMethodsCanFail(t *testing.T) {
	t.Parallel()
	text := "package x\n"
	for i := range maxMethods {
		text += fmt.Sprintf("func (t *T[K]) m%d() {}\n", i)
	}
	one := mustParse(t, "fabric/x.go", text)
	again := mustParse(t, "fabric/x_linux.go", "package x\nfunc (t T[K]) m0() {}\n")
	test := mustParse(t, "fabric/x_test.go", "package x\nfunc (t T[K]) helper() {}\n")
	elsewhere := mustParse(t, "fabric/y/x.go", "package y\nfunc (t T) more() {}\n")
	if got := methodProblems([]source{one, again, test, elsewhere}); len(got) != 0 {
		t.Errorf("%d methods give %q", maxMethods, got)
	}
	more := mustParse(t, "fabric/y.go", "package x\nfunc (t T[K]) more() {}\n")
	if got := methodProblems([]source{one, more}); len(got) != 1 || !strings.Contains(got[0], "fabric.T has 41 methods") {
		t.Errorf("%d methods give %q", maxMethods+1, got)
	}
}
