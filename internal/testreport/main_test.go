package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReportShowsSkipsAndFailures(t *testing.T) {
	t.Parallel()
	const in = `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: no such tool\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:9: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:9: report: | a table |\n"}
{"Action":"pass","Package":"p","Test":"TestC"}
{"Action":"fail","Package":"p","Elapsed":1}
`
	var out strings.Builder
	r := newReport(&out)
	if err := r.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	r.summary()
	for _, want := range []string{
		"p TestA: a_test.go:3: no such tool",
		"b_test.go:9: wrong",
		"| a table |\n",
		"FAIL  p",
		"\n1 passed, 1 failed, 1 skipped\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
}

// A process that ends in the middle of a test gives that no result.
func TestReportShowsCrashes(t *testing.T) {
	t.Parallel()
	const in = `{"Action":"output","Package":"p","Test":"TestA","Output":"fatal error: out of memory\n"}
{"Action":"fail","Package":"p","Elapsed":1}
`
	var out strings.Builder
	r := newReport(&out)
	if err := r.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	r.summary()
	for _, want := range []string{"fatal error: out of memory", "p TestA (did not end)", "\n0 passed, 1 failed, 0 skipped\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
}

// What a process writes when it panics is taken for output of the test that has
// ended last, and the result of that test comes after it.
func TestReportShowsPanicsBehindAResult(t *testing.T) {
	t.Parallel()
	const in = `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: a log\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- PASS: TestA (0.00s)\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"panic: boom\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p","Elapsed":1}
`
	var out strings.Builder
	r := newReport(&out)
	if err := r.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, "panic: boom\n") != 1 || strings.Contains(got, "a log") {
		t.Errorf("the report is:\n%s", got)
	}
}

// The report is of all directories, and the status that of what has failed.
func TestModules(t *testing.T) {
	t.Parallel()
	dirs := make([]string, 2)
	for i, test := range []string{"func TestA(t *testing.T) { t.Error() }", `func TestB(t *testing.T) { t.Skip("no tool") }`} {
		dirs[i] = t.TempDir()
		for name, text := range map[string]string{"go.mod": "module example.net/m\n", "m_test.go": "package m\nimport \"testing\"\n" + test + "\n"} {
			if err := os.WriteFile(filepath.Join(dirs[i], name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	var out strings.Builder
	code, err := run([]string{"GOFLAGS=-mod=mod"}, []string{dirs[0], dirs[1] + " ./..."}, []string{"-count=1"}, &out)
	if got := out.String(); code != 1 || err != nil || !strings.Contains(got, "m_test.go:3: no tool") || !strings.HasSuffix(got, "\n0 passed, 1 failed, 1 skipped\n") {
		t.Errorf("%d, %v, and the report is:\n%s", code, err, got)
	}
}
