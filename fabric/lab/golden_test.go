package lab

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the tables of experiments into testdata")

// golden compares the table of an experiment with the one that is committed.
// Results are facts of the code: they are the same on every machine. If a
// change of the code is meant to change them, -rewrite writes the new ones.
func golden(t *testing.T, name, got string) {
	t.Helper()
	goldenFile(t, filepath.Join("testdata", name+".txt"), got)
}

// goldenFile is golden with a file of any folder.
func goldenFile(t *testing.T, file, got string) {
	t.Helper()
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: run the test with -rewrite", err)
	}
	if got != string(want) {
		t.Errorf("what came out differs from %s; if that is meant, run the test with -rewrite\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

// inManual checks that docs/fabric.md has a line, which results have come to.
func inManual(t *testing.T, line string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "fabric.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), line+"\n") {
		t.Errorf("docs/fabric.md has no line\n%s", line)
	}
}
