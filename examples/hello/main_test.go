package main

import (
	"bufio"
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

// The README shows the program as it is.
func TestReadme(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(readme, []byte("\n```go\n"+string(program)+"```\n")) {
		t.Error("README.md does not show examples/hello/main.go, or another state of it")
	}
}

// Two processes do what the README says.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has all of 127.0.0.0/8 without setting it up")
	}
	hello := filepath.Join(t.TempDir(), "hello")
	if out, err := exec.Command("go", "build", "-o", hello, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	addr := fmt.Sprintf("127.%d.%d.2:7471", 1+rand.IntN(254), rand.IntN(256)) // nobody else has it
	server := exec.CommandContext(t.Context(), hello, addr)
	var said bytes.Buffer
	server.Stdout = &said
	log, err := server.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(30*time.Second, func() { _ = server.Process.Kill() })
	defer late.Stop()
	if line, err := bufio.NewReader(log).ReadString('\n'); err != nil || !strings.Contains(line, "listening") {
		t.Errorf("%q, %v", line, err)
	}
	if out, err := exec.CommandContext(t.Context(), hello, addr, "hello").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("the writing side: %v, %q", err, out)
	}
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
	if said.String() != "hello\n" {
		t.Errorf("the other side said %q", said.String())
	}
}
