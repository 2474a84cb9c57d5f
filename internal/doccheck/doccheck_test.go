package doccheck

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var root = filepath.Join("..", "..")

// tree is what the tests need to know of the repository. Paths are relative to
// its root, with slashes.
type tree struct {
	files map[string]bool     // directories too
	docs  map[string]string   // text of each Markdown file
	tests map[string][]string // Test and Fuzz functions, with their directories
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

func readTree(t *testing.T) tree {
	t.Helper()
	tr := tree{map[string]bool{}, map[string]string{}, map[string][]string{}}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch {
		case rel == ".git", rel == "bin", rel == "e2e/failures":
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case d.IsDir() && d.Name() == "testdata" && rel != "qp/qptest/testdata" && rel != "fabric/lab/testdata":
			return filepath.SkipDir
		case strings.HasSuffix(rel, ".md"), strings.HasSuffix(rel, "_test.go"):
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			if strings.HasSuffix(rel, ".md") {
				tr.docs[rel] = string(text)
			}
			for _, m := range testFunc.FindAllSubmatch(text, -1) {
				tr.tests[string(m[1])] = append(tr.tests[string(m[1])], path.Dir(rel))
			}
		}
		tr.files[rel] = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(tr.docs) < 8 || len(tr.tests) < 200 {
		t.Fatalf("saw %d Markdown files and %d tests: the test does not see the tree", len(tr.docs), len(tr.tests))
	}
	return tr
}

var (
	fence    = regexp.MustCompile("(?ms)^```.*?^```$")
	codeSpan = regexp.MustCompile("`[^`\n]+`")
	heading  = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// prose returns a text without its fenced blocks.
func prose(text string) string { return fence.ReplaceAllString(text, "") }

// anchors returns the anchors that GitHub gives the headings of a text.
func anchors(text string) map[string]bool {
	list := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(prose(text), -1) {
		base := slug(m[1])
		a := base
		for n := 1; list[a]; n++ {
			a = fmt.Sprintf("%s-%d", base, n)
		}
		list[a] = true
	}
	return list
}

func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// badLinks returns the relative links of a document that lead nowhere.
func (tr tree) badLinks(name string) (bad []string) {
	text := codeSpan.ReplaceAllString(prose(tr.docs[name]), "")
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		target, anchor, _ := strings.Cut(m[1], "#")
		if strings.Contains(target, ":") { // a URL
			continue
		}
		file := name
		if target != "" {
			file = path.Join(path.Dir(name), target)
		}
		_, isDoc := tr.docs[file]
		if !tr.files[file] || anchor != "" && (!isDoc || !anchors(tr.docs[file])[anchor]) {
			bad = append(bad, m[1])
		}
	}
	return bad
}

func TestLinks(t *testing.T) {
	t.Parallel()
	tr := readTree(t)
	for name := range tr.docs {
		for _, l := range tr.badLinks(name) {
			t.Errorf("%s: the link %s leads nowhere", name, l)
		}
	}
}

func TestBadLinksAreSeen(t *testing.T) {
	t.Parallel()
	tr := tree{
		files: map[string]bool{"a.md": true, "docs": true, "docs/b.md": true, "x.go": true},
		docs: map[string]string{
			"a.md":      "# One, two\n# One, two\n[1](docs/b.md) [2](docs/b.md#a-b) [3](#one-two-1) [4](docs) [5](https://x/y)\n```\n[6](no)\n```\n`[7](no)`",
			"docs/b.md": "# A `b`\n[1](../a.md#one-two) [2](a.md) [3](../a.md#one-two-2) [4](#c) [5](../x.go#L5)",
		},
	}
	if bad := tr.badLinks("a.md"); len(bad) > 0 {
		t.Errorf("good links are called bad: %q", bad)
	}
	if bad, want := tr.badLinks("docs/b.md"), []string{"a.md", "../a.md#one-two-2", "#c", "../x.go#L5"}; !slices.Equal(bad, want) {
		t.Errorf("bad links %q, expected %q", bad, want)
	}
}

var (
	namedTest   = regexp.MustCompile("`((?:Test|Fuzz)\\w+)(…?)[`/]")
	namedFile   = regexp.MustCompile("`([\\w.-]+(?:/[\\w.-]+)+\\.(?:go|s|md|txt|sh))`")
	spanTarget  = regexp.MustCompile("(?m)(?:`|^    )make ([a-z][a-z0-9-]*)")
	blockTarget = regexp.MustCompile(`(?m)^(?:\$ )?make ([a-z][a-z0-9-]*)`)
	target      = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
)

// namedTargets returns the make targets in the code of a text: in its spans,
// and at the beginnings of the lines of its blocks.
func namedTargets(text string) (list []string) {
	found := spanTarget.FindAllStringSubmatch(prose(text), -1)
	for _, block := range fence.FindAllString(text, -1) {
		found = append(found, blockTarget.FindAllStringSubmatch(block, -1)...)
	}
	for _, m := range found {
		list = append(list, m[1])
	}
	return list
}

// dirs returns the directories of the tests that have the name, or with open
// begin with it.
func (tr tree) dirs(name string, open bool) (dirs []string) {
	if !open {
		return tr.tests[name]
	}
	for have, in := range tr.tests {
		if strings.HasPrefix(have, name) {
			dirs = append(dirs, in...)
		}
	}
	return dirs
}

// TestNames checks that what the documentation names is there.
func TestNames(t *testing.T) {
	t.Parallel()
	tr := readTree(t)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range target.FindAllSubmatch(makefile, -1) {
		targets[string(m[1])] = true
	}
	tests, files, makes := 0, 0, 0
	for name, text := range tr.docs {
		for _, m := range namedTest.FindAllStringSubmatch(text, -1) {
			if tests++; len(tr.dirs(m[1], m[2] != "")) == 0 {
				t.Errorf("%s: there is no test %s", name, m[1]+m[2])
			}
		}
		for _, m := range namedFile.FindAllStringSubmatch(text, -1) {
			if files++; !tr.files[m[1]] && !tr.files[path.Join(path.Dir(name), m[1])] {
				t.Errorf("%s: there is no file %s", name, m[1])
			}
		}
		for _, to := range namedTargets(text) {
			if makes++; !targets[to] {
				t.Errorf("%s: there is no target make %s", name, to)
			}
		}
	}
	if tests < 50 || files < 3 || makes < 15 {
		t.Errorf("saw %d names of tests, %d of files, %d of make targets: the test does not see them", tests, files, makes)
	}
}

// Packages are named right before their tests: `qp`, `engine` `TestA`,
// `TestB…`.
var (
	testsOf = regexp.MustCompile("((?:`[\\w/]+`(?:, | and )?)+) ((?:`(?:Test|Fuzz)\\w+…?`(?:, )?)+)")
	span    = regexp.MustCompile("`([\\w/]+)(…?)`")
)

// misplaced returns the names of tests in a text that are not in the package
// that the text says.
func (tr tree) misplaced(text string) (bad []string, seen int) {
	for _, m := range testsOf.FindAllStringSubmatch(text, -1) {
		var dirs []string
		for _, d := range span.FindAllStringSubmatch(m[1], -1) {
			dirs = append(dirs, d[1])
		}
		dirs = slices.DeleteFunc(dirs, func(d string) bool { return !tr.files[d] }) // scripts
		for _, name := range span.FindAllStringSubmatch(m[2], -1) {
			in := tr.dirs(name[1], name[2] != "")
			for _, d := range dirs {
				if seen++; !slices.Contains(in, d) {
					bad = append(bad, d+" "+name[1])
				}
			}
		}
	}
	return bad, seen
}

// TestPackagesOfTests checks that tests are in the packages that the
// documentation says.
func TestPackagesOfTests(t *testing.T) {
	t.Parallel()
	tr := readTree(t)
	total := 0
	for name, text := range tr.docs {
		bad, seen := tr.misplaced(text)
		for _, b := range bad {
			t.Errorf("%s: there is no test %s", name, b)
		}
		total += seen
	}
	if total < 40 {
		t.Errorf("saw %d tests with their packages: the test does not see them", total)
	}
}

func TestMisplacedTestsAreSeen(t *testing.T) {
	t.Parallel()
	tr := tree{files: map[string]bool{"a": true, "b/c": true}, tests: map[string][]string{"TestOne": {"a"}, "TestTwo": {"a", "b/c"}}}
	bad, seen := tr.misplaced("| `script`; `a`, `b/c` `TestOne`, `TestTw…`; `a` `TestTwo`, `TestOn…` |")
	if want := []string{"b/c TestOne"}; !slices.Equal(bad, want) || seen != 6 {
		t.Errorf("misplaced %q of %d, expected %q", bad, seen, want)
	}
}

var namedScript = regexp.MustCompile("`([a-z][a-z0-9_]*)`")

// TestScriptsExist checks the last column of the tables of docs/compliance.md,
// where a name in lower case is a script. A package may have the same form.
func TestScriptsExist(t *testing.T) {
	t.Parallel()
	tr := readTree(t)
	seen := 0
	for line := range strings.Lines(tr.docs["docs/compliance.md"]) {
		cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(line), "|"), "|")
		if len(cells) < 3 {
			continue
		}
		for _, m := range namedScript.FindAllStringSubmatch(cells[len(cells)-1], -1) {
			if seen++; !tr.files["qp/qptest/testdata/"+m[1]+".script"] && !tr.files[m[1]] {
				t.Errorf("there is no script and no package %s", m[1])
			}
		}
	}
	if seen < 80 {
		t.Errorf("saw %d names of scripts", seen)
	}
}
