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
	// Nobody else has these addresses, so their ports are free.
	net := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(256))
	server := exec.Command(hello, net+"2")
	var said bytes.Buffer
	server.Stdout = &said
	stderr, err := server.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stderr).ReadString('\n'); err != nil || !strings.Contains(line, "waiting") {
		t.Fatalf("%q, %v", line, err)
	}
	if out, err := exec.Command(hello, net+"1", net+"2").CombinedOutput(); err != nil {
		t.Errorf("the client: %v\n%s", err, out)
	}
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
	if want := "hello from " + net + "1\n"; said.String() != want {
		t.Errorf("the server said %q, want %q", said.String(), want)
	}
}
