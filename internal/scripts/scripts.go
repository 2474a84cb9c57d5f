// Package scripts runs tests that read as prose: commands, then ----, then what
// they print, then a blank line. The first line of a script is a comment that
// names the rule or the bug that it guards.
package scripts

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Rewrite says that the scripts get what is printed now as what they expect.
var Rewrite = flag.Bool("rewrite", false, "rewrite the expected output of the scripts, and other files that tests compare with")

// block is one group of commands of a script with its expected output.
type block struct {
	line     int // of the first command, from 1
	before   []string
	commands []string
	want     []string
}

// parse splits a script into blocks. Comment and blank lines in front of a
// block belong to it.
func parse(text string) (blocks []block, tail []string, err error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	var cur block
	inOutput := false
	flush := func() {
		if len(cur.commands) > 0 {
			blocks = append(blocks, cur)
			cur = block{}
		}
		inOutput = false
	}
	for i, l := range lines {
		l = strings.TrimRight(l, " \t")
		switch {
		case inOutput && l == "":
			flush()
			cur.before = append(cur.before, l)
		case inOutput:
			cur.want = append(cur.want, l)
		case l == "----":
			if len(cur.commands) == 0 {
				return nil, nil, fmt.Errorf("line %d: output without a command", i+1)
			}
			inOutput = true
		case l == "" || strings.HasPrefix(l, "#"):
			if len(cur.commands) > 0 {
				return nil, nil, fmt.Errorf("line %d: a comment or blank line between command and ----", i+1)
			}
			cur.before = append(cur.before, l)
		default:
			if len(cur.commands) == 0 {
				cur.line = i + 1
			}
			cur.commands = append(cur.commands, l)
		}
	}
	if len(cur.commands) > 0 && !inOutput {
		return nil, nil, fmt.Errorf("line %d: commands without ----", cur.line)
	}
	if inOutput {
		flush()
	}
	return blocks, cur.before, nil
}

// Run runs every testdata/*.script of the test's package, each as a subtest.
// scene makes what one script plays in: a function that runs a command and
// returns what it prints.
func Run(t *testing.T, scene func() func(command string) ([]string, error)) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.script")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".script"), func(t *testing.T) {
			t.Parallel()
			runFile(t, f, scene())
		})
	}
}

func runFile(t *testing.T, file string, run func(string) ([]string, error)) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(text), "# ") {
		t.Errorf("%s: the first line must be a comment that names the rule", file)
	}
	blocks, tail, err := parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	var out strings.Builder
	for _, b := range blocks {
		got := runBlock(t, file, b, run)
		for _, l := range [][]string{b.before, b.commands, {"----"}, got} {
			for _, l := range l {
				out.WriteString(l + "\n")
			}
		}
	}
	for _, l := range tail {
		out.WriteString(l + "\n")
	}
	if *Rewrite && out.String() != string(text) {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func runBlock(t *testing.T, file string, b block, run func(string) ([]string, error)) (got []string) {
	for i, c := range b.commands {
		lines, err := run(c)
		if err != nil {
			t.Fatalf("%s:%d: %s: %v", file, b.line+i, c, err)
		}
		got = append(got, lines...)
	}
	if !*Rewrite && strings.Join(got, "\n") != strings.Join(b.want, "\n") {
		t.Fatalf("%s:%d: %s\ngot:\n\t%s\nwant:\n\t%s\nAfter a change that is understood: go test -run TestScripts -rewrite",
			file, b.line, b.commands[0], strings.Join(got, "\n\t"), strings.Join(b.want, "\n\t"))
	}
	return got
}
