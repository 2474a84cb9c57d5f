package doccheck

import (
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// wording is a phrase that a native reader stumbles over, or that says less
// than the field's own words.
type wording struct {
	phrase *regexp.Regexp
	unless *regexp.Regexp // the phrase is right with these words around it
	use    string
}

func phrase(text string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b(?:` + text + `)\b`) }

// people are who "who" stands for.
const people = `(?:users?|people|persons?|programmers?|readers?|reviewers?|operators?|administrators?|attackers?|authors?|engineers?|builders?|developers?|researchers?|newcomers?|those|anyone|someone)`

// wordings are looked for in comments of Go and C and in the prose of
// documents.
var wordings = []wording{
	{phrase(`behind`), regexp.MustCompile(`(?i)behind (?:a|an|the|that|this|one|its|their)?\s*(?:NAT|router|firewall|proxy|bridge|switch|gateway|bond|interface)`), `"after" for what comes later, "below" for what lies under`},
	{phrase(`nobody|somebody|anybody|everybody|whoever`), nil, `the name of the component: "no goroutine", "another process", "the caller"`},
	{phrase(`who|whom`), regexp.MustCompile(`(?i)\b` + people + `(?:,| that .{1,40}|)\s+(?:who|whom)\b`), `"which" or "that": a component is no person`},
	{phrase(`takes? note|took note|taking note`), nil, `"notes", "records"`},
	{phrase(`in vain`), nil, `"without result", or what did not happen`},
	{phrase(`at the most|at the least`), nil, `"at most", "at least"`},
	{phrase(`so many`), regexp.MustCompile(`(?i)so many\b[^.]{0,60}\bthat\b`), `"that many", "n", or the number`},
}

// faults returns what is wrong with a text, which is one sentence or more
// without line breaks.
func (w *wording) faults(text string) (bad []string) {
	for _, at := range w.phrase.FindAllStringIndex(text, -1) {
		around := text[max(0, at[0]-60):min(len(text), at[1]+80)]
		if w.unless == nil || !w.unless.MatchString(around) {
			bad = append(bad, strings.TrimSpace(text[max(0, at[0]-30):min(len(text), at[1]+30)]))
		}
	}
	return bad
}

// badEnglish returns the faults of a text.
func badEnglish(text string) (bad []string) {
	text = strings.Join(strings.Fields(text), " ")
	for i := range wordings {
		for _, f := range wordings[i].faults(text) {
			bad = append(bad, "\""+f+"\": use "+wordings[i].use)
		}
	}
	return bad
}

// output begins what an example prints.
var output = regexp.MustCompile(`(?m)^(?:Unordered output|Output):`)

// goComments returns the groups of comments of a file, by their first lines,
// without those that say what an example prints.
func goComments(name string, text []byte) (map[int]string, error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		if _, ok := err.(scanner.ErrorList); ok {
			return nil, nil // a file that is to be wrong
		}
		return nil, err
	}
	groups := map[int]string{}
	for _, g := range f.Comments {
		if text := g.Text(); !output.MatchString(text) {
			groups[set.Position(g.Pos()).Line] = text
		}
	}
	return groups, nil
}

var cComment = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)

// cComments returns the comments of a file in C, by their first lines.
func cComments(text string) map[int]string {
	groups := map[int]string{}
	for _, at := range cComment.FindAllStringIndex(text, -1) {
		lines := strings.Split(strings.Trim(text[at[0]:at[1]], "/*"), "\n")
		for i, l := range lines {
			lines[i] = strings.TrimLeft(l, " \t*")
		}
		groups[1+strings.Count(text[:at[0]], "\n")] = strings.Join(lines, " ")
	}
	return groups
}

// paragraphs returns the paragraphs of a document, by their first lines.
func paragraphs(text string) map[int]string {
	groups := map[int]string{}
	text = fence.ReplaceAllStringFunc(text, func(block string) string { return strings.Repeat("\n", strings.Count(block, "\n")) })
	start, so := 1, []string{}
	for i, l := range append(strings.Split(text, "\n"), "") {
		if strings.TrimSpace(l) == "" || strings.HasPrefix(l, "|") || strings.HasPrefix(strings.TrimSpace(l), "- ") {
			groups[start] = strings.Join(so, " ")
			so = nil
			start = i + 1
		}
		so = append(so, l)
	}
	return groups
}

// TestEnglish holds comments and documents to plain technical English: subject,
// verb, object, and the words of the field.
func TestEnglish(t *testing.T) {
	t.Parallel()
	tr := readTree(t)
	seen := 0
	for name := range tr.files {
		if strings.HasPrefix(name, "internal/doccheck/") || strings.HasPrefix(name, "bench/report/") {
			continue // the words themselves; what a program has written
		}
		var groups map[int]string
		switch filepath.Ext(name) {
		case ".go", ".c", ".h", ".md":
		default:
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		switch filepath.Ext(name) {
		case ".go":
			if groups, err = goComments(name, text); err != nil {
				t.Fatal(err)
			}
		case ".md":
			groups = paragraphs(string(text))
		default:
			groups = cComments(string(text))
		}
		for line, comment := range groups {
			seen++
			for _, bad := range badEnglish(comment) {
				t.Errorf("%s:%d: %s", name, line, bad)
			}
		}
	}
	if seen < 1000 {
		t.Errorf("only %d comments and paragraphs were seen", seen)
	}
}

// The test sees what it forbids, and no more.
func TestBadEnglishIsSeen(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"the packet behind a gap", "nobody reads it", "says who shares the time", "takes note of a packet",
		"a call in vain", "2 s at the most", "pings so many times",
	} {
		if len(badEnglish(text)) != 1 {
			t.Errorf("%q: %q", text, badEnglish(text))
		}
	}
	for _, text := range []string{
		"the packet after a gap", "a host behind a NAT", "users who write programs", "so many that the queue is full", "at most 2 s",
	} {
		if bad := badEnglish(text); bad != nil {
			t.Errorf("%q: %q", text, bad)
		}
	}
}
