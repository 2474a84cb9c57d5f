package lab

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the tables of experiments into testdata")

// golden compares the table of an experiment with the one that is committed.
// Results are facts of the code: they are the same on every machine. If a
// change of the code is meant to change them, -rewrite writes the new ones.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o777); err != nil {
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
		t.Errorf("the table differs from %s; if that is meant, run the test with -rewrite\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}
