package qptest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expected output of the scripts and the goodput table")

// block is one group of commands of a script with its expected output.
type block struct {
	line     int // of the first command, from 1
	before   []string
	commands []string
	want     []string
}

// parseScript splits a script into blocks. Comment and blank lines in front of
// a block belong to it.
func parseScript(text string) (blocks []block, tail []string, err error) {
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

// TestScripts runs every script of testdata. A script is a conversation between
// two queue pairs that reads as prose; its header says which rule it guards.
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.script")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".script"), func(t *testing.T) {
			t.Parallel()
			runScript(t, f)
		})
	}
}

func runScript(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(text), "# ") {
		t.Errorf("%s: the first line must be a comment that names the rule", file)
	}
	blocks, tail, err := parseScript(string(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	s := newScene()
	var out strings.Builder
	for _, b := range blocks {
		var got []string
		for i, c := range b.commands {
			lines, err := s.run(c)
			if err != nil {
				t.Fatalf("%s:%d: %s: %v", file, b.line+i, c, err)
			}
			got = append(got, lines...)
		}
		if !*rewrite && strings.Join(got, "\n") != strings.Join(b.want, "\n") {
			t.Fatalf("%s:%d: %s\ngot:\n\t%s\nwant:\n\t%s\nAfter a change that is understood: go test ./qp/qptest -run TestScripts -rewrite",
				file, b.line, b.commands[0], strings.Join(got, "\n\t"), strings.Join(b.want, "\n\t"))
		}
		for _, l := range [][]string{b.before, b.commands, {"----"}, got} {
			for _, l := range l {
				out.WriteString(l + "\n")
			}
		}
	}
	for _, l := range tail {
		out.WriteString(l + "\n")
	}
	if *rewrite && out.String() != string(text) {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestScriptParser checks that a script survives parsing and printing, and that
// a broken one is refused.
func TestScriptParser(t *testing.T) {
	t.Parallel()
	blocks, tail, err := parseScript("# rule\n\nqp ab\n----\n\n# next\npost a send id=1\ndeliver\n----\na> X\nb> Y\n")
	if err != nil || len(blocks) != 2 || len(tail) != 0 {
		t.Fatalf("%d blocks, tail %q, %v", len(blocks), tail, err)
	}
	b := blocks[1]
	if b.line != 7 || len(b.commands) != 2 || len(b.want) != 2 || len(b.before) != 2 {
		t.Errorf("second block is %+v", b)
	}
	for _, bad := range []string{"----\n", "# x\ncq a\n", "cq a\n\n----\n"} {
		if _, _, err := parseScript(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
