package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testprogram"
)

// The guide shows the functions of the program as they are.
func TestGuide(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../../docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(guide), "```go\n// ")
	if len(blocks) != 4 {
		t.Fatalf("docs/guide.md shows %d parts of the program, want 3", len(blocks)-1)
	}
	for _, b := range blocks[1:] {
		code, _, _ := strings.Cut("// "+b, "```")
		if !bytes.Contains(program, []byte(code)) {
			t.Errorf("docs/guide.md shows another state of the program:\n%s", code)
		}
	}
}

// Two processes do what the guide says.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	first := testprogram.Build(t)
	a, b := testprogram.Addresses()
	listener := first.Start("listening", "listen", b+":7471")
	out, _, err := first.Run("dial", a, b+":7471")
	if want := "the counter was 0, and the memory of the peer says \"hello\"\n"; err != nil || out != want {
		t.Errorf("the dialing side: %v, %q, want %q", err, out, want)
	}
	if said, want := listener.Wait(), "the peer wrote \"hello\" and counted to 1\n"; said != want {
		t.Errorf("the listening side said %q, want %q", said, want)
	}
}
