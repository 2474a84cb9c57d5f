package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
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
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has all of 127.0.0.0/8 without setting it up")
	}
	first := filepath.Join(t.TempDir(), "first")
	if out, err := exec.Command("go", "build", "-o", first, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	net := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(256)) // nobody else has it
	server := exec.CommandContext(t.Context(), first, "listen", net+"2:7471")
	var said bytes.Buffer
	server.Stdout = &said
	log, err := server.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(30*time.Second, func() { _ = server.Process.Kill() })
	defer stop.Stop()
	if _, err := log.Read(make([]byte, 100)); err != nil { // it listens
		t.Error(err)
	}
	out, err := exec.CommandContext(t.Context(), first, "dial", net+"1", net+"2:7471").CombinedOutput()
	if want := "the counter was 0, and the memory of the peer says \"hello\"\n"; err != nil || string(out) != want {
		t.Errorf("the dialing side: %v, %q, want %q", err, out, want)
	}
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
	if want := "the peer wrote \"hello\" and counted to 1\n"; said.String() != want {
		t.Errorf("the listening side said %q, want %q", said.String(), want)
	}
}
