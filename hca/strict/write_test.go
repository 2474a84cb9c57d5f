package strict

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var write = flag.Bool("write", false, "write the tables of docs/strict.md")

// TestWriteDocumentation writes the tables between the marks, if it is asked
// to.
func TestWriteDocumentation(t *testing.T) {
	if !*write {
		t.Skip("it writes the tables of docs/strict.md with -write (go test ./hca/strict -write)")
	}
	const file = "../../docs/strict.md"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	put := func(head string, rows []string) {
		head = "\n" + head
		i := strings.Index(text, head)
		if i < 0 {
			t.Fatalf("%s lacks %q", file, head)
		}
		from := i + len(head)
		end := strings.Index(text[from-1:], "\n\n") - 1
		text = text[:from] + strings.Join(rows, "\n") + "\n" + text[max(from+end+1, from):]
	}
	put("|---|---|---|---|---|\n", ruleLines())
	var limits, sources []string
	for i, l := range profileLines() {
		if i%2 == 0 {
			limits = append(limits, l)
		} else {
			sources = append(sources, l)
		}
	}
	put("|---|---|---|---|---|---|---|---|---|---|---|---|\n", limits)
	put("|---|---|---|\n", sources)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
