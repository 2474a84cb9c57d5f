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

// full is a type T of package x with as many methods as it may have.
func full() string {
	text := "package x\ntype T[K any] struct{ n int; hook func() }\n"
	for i := range maxMethods {
		text += fmt.Sprintf("func (t *T[K]) m%d() {}\n", i)
	}
	return text
}

// TestTheMethodsCanFail gives a type that is full one thing more, each way that
// there is.
func TestTheMethodsCanFail(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dir, text string
		more      bool
	}{
		{"fabric", "", false},
		{"fabric", "func (t *T[K]) more() {}", true},
		{"fabric", "func (t T[K]) m0() {}", false}, // as for another system
		{"fabric", "func more(t *T[int]) {}", true},
		{"fabric", "func more(t T[int]) {}", true},
		{"fabric", "func more[K any](t *T[K]) {}", true},
		{"fabric", "func more(t ...*T[int]) {}", true},
		{"fabric", "func more(n int, t *T[int]) {}", false},
		{"fabric", "func more() *T[int] { return nil }", false},
		{"fabric", "func newOther(t *T[int]) *other { return nil }; type other struct{ t *T[int]; n int }", false},
		{"fabric", "func newState(t *T[int]) error { return nil }", true},
		{"fabric", "type same = T[int]; func (s *same) more() {}", true},
		{"fabric", "type same = T[int]; func more(s *same) {}", true},
		{"fabric", "type derived T[int]; func (d *derived) more() {}", true},
		{"fabric", "type derived T[int]; type again derived; func more(a *again) {}", true},
		{"fabric", "type pointer *T[int]; func more(p pointer) {}", true},
		{"fabric", "type view struct{ *T[int] }; func (v view) more() {}", true},
		{"fabric", "type view struct{ t *T[int] }; func more(v view) {}", true},
		{"fabric", "type part struct{ t *T[int]; n int }; func (p *part) work() {}", false},
		{"fabric", "func more[P *T[int]](p P) {}", true},
		{"fabric", "func more[P interface{ *T[int]; m0() }](p P) {}", true},
		{"fabric", "type oneOf interface{ ~int | *T[int] }; func more[P oneOf](p P) {}", true},
		{"fabric", "func more(i interface{ m0() }) {}", true},
		{"fabric", "type only interface{ m0(); m1() }; func more(o only) {}", true},
		{"fabric", "type only interface{ m0() }; func more[P only](p P) {}", true},
		{"fabric", "type both interface{ m0() }; type other int; func (other) m0() {}; func work(b both) {}", false},
		{"fabric", "func work(a any) {}", false},
		{"fabric", "var more = func(t *T[int]) {}", true},
		{"fabric", "var more = struct{ f func(t *T[int]) }{f: func(t *T[int]) {}}", true},
		{"fabric", "func (t *T[K]) m1() { t.hook = func() {} }", true},
		{"fabric", "var one = T[int]{hook: func() {}}", true},
		{"fabric/y", "import x \"" + module + "/fabric\"\nfunc more(t *x.T[int]) { t.n++ }", true},
		{"fabric/y", "import x \"" + module + "/fabric\"\ntype same = x.T[int]; func more(t *same) { t.n++ }", true},
		{"fabric/y", "import x \"" + module + "/fabric\"\nfunc use(t *x.T[int]) { t.m0() }", false},
		{"fabric/y", "type T[K any] struct{}; func (t T[K]) work() {}", false},
	} {
		files := []source{mustParse(t, "fabric/x.go", full()), mustParse(t, c.dir+"/y.go", "package x\n"+c.text+"\n")}
		got := methodProblems(files)
		if c.more && !strings.Contains(strings.Join(got, " "), "fabric.T has 41 methods") || !c.more && len(got) > 0 {
			t.Errorf("%s gives %.200q", c.text, got)
		}
		test := mustParse(t, c.dir+"/y_test.go", "package x\n"+c.text+"\n")
		if got := methodProblems([]source{files[0], test}); len(got) > 0 {
			t.Errorf("%s in a test gives %.200q", c.text, got)
		}
	}
}

// TestWhatIsEmbeddedCounts: what is embedded, by whatever way, is one's own.
func TestWhatIsEmbeddedCounts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"type U struct{ T[int] }; func (u U) more() {}",
		"type U struct{ *T[int] }; func more(u *U) {}",
		"type middle struct{ T[int]; n int }; type U struct{ *middle; n int }; func (u U) more() {}",
		"type same = T[int]; type U struct{ same; n int }; func (u U) more() {}",
		"type U struct{ *part; T[int] }; type part struct{ n int }; func (p *part) more() {}",
		"type U struct{ *part; T[int] }; type part struct{ n int }; func more(p *part) {}",
		"type face interface{ m0(); more() }; type U struct{ T[int]; face }",
	} {
		got := count([]source{mustParse(t, "fabric/x.go", full()), mustParse(t, "fabric/y.go", "package x\n"+text+"\n")})
		if n := len(got[typeName{"fabric", "U"}]); n != maxMethods+1 {
			t.Errorf("%s: %d methods", text, n)
		}
	}
}
