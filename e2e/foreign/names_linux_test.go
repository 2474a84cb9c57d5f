package foreign

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestNamesAreOfTests: every test that a list chooses or leaves out is there,
// in a package that the list is for. The emulated programs say nothing of one
// that has another name by now.
func TestNamesAreOfTests(t *testing.T) {
	t.Parallel()
	everywhere := slices.Concat(slow, noSIGBUS, noAddress)
	for _, r := range []run{{packages: core, skip: everywhere}, digests, operations, windows, sockets} {
		tests := testsOf(t, r.dir, r.packages)
		for _, name := range r.only {
			if !tests[name] {
				t.Errorf("%v have no %s", r.packages, name)
			}
		}
		for _, s := range r.skip {
			for _, name := range s.tests {
				if name, _, _ := strings.Cut(name, "/"); !tests[name] {
					t.Errorf("%v have no %s, which is left out: %s", r.packages, name, s.why)
				}
			}
		}
	}
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w*)\(`)

// testsOf returns the names of the tests in packages.
func testsOf(t *testing.T, dir string, packages []string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	add := func(file string) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunc.FindAllSubmatch(text, -1) {
			names[string(m[1])] = true
		}
	}
	for _, p := range packages {
		p, deep := strings.CutSuffix(p, "/...")
		root := filepath.Join("../..", dir, p)
		err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && path != root && !deep:
				return filepath.SkipDir
			case !d.IsDir() && strings.HasSuffix(path, "_test.go"):
				add(path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// TestNothingRan: go test passes though it has run nothing.
func TestNothingRan(t *testing.T) {
	t.Parallel()
	const ok, none, noFiles = "ok  \tx/a\t0.1s\n", "ok  \tx/b\t0.1s [no tests to run]\n", "?   \tx/c\t[no test files]\n"
	for _, c := range []struct {
		out    string
		chosen bool
		want   string
	}{
		{ok + noFiles, true, ""},
		{ok + none, true, "no test matches in x/b"},
		{ok + none, false, ""}, // one that has tests of other systems alone
		{noFiles, false, "no package has tests"},
		{"", true, "no package has tests"},
	} {
		if got := nothingRan(c.out, c.chosen); got != c.want {
			t.Errorf("%q: %q, want %q", c.out, got, c.want)
		}
	}
}

// TestExpressions: what is chosen and left out is exactly what is named.
func TestExpressions(t *testing.T) {
	t.Parallel()
	r := run{tags: "portable", packages: []string{"./p"}, only: []string{"TestA", "TestB"}, sub: "^x$",
		flags: []string{"-short"}, skip: []skip{{[]string{"TestC", "TestD/e"}, "why"}}}
	got := strings.Join(r.args("qemu"), " ")
	want := "test -vet=off -count=1 -timeout 9m -exec qemu -tags portable -skip ^TestC$|^TestD$/^e$ -run ^(TestA|TestB)$/^x$ -short ./p"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
