package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The manual's example of many runs comes to the numbers that it has.
func TestSimSweepOfTheManual(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile(filepath.Join("..", "..", "docs", "fabric.md"))
	if err != nil {
		t.Fatal(err)
	}
	const command = "$ rocev2 sim "
	_, example, _ := strings.Cut(string(manual), "compares them:\n\n```\n")
	example, _, _ = strings.Cut(example, "```")
	call, lines, _ := strings.Cut(example, "\n")
	args, ok := strings.CutPrefix(call, command)
	if !ok || !strings.Contains(args, "--seeds 1-8") {
		t.Fatalf("there is no example: %q", call)
	}
	code, out, errs := runSim(t, strings.Fields(args)...)
	if code != exitOK {
		t.Fatalf("exit status %d\n%s", code, errs)
	}
	for _, line := range strings.Split(strings.TrimRight(lines, "\n"), "\n") {
		if line != "  …" && !strings.Contains(out, line+"\n") {
			t.Errorf("docs/fabric.md says\n%s\nand what comes out is\n%s", line, out)
		}
	}
}
