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
	// Nobody else has these addresses, so their ports are free. The client
	// is first, as it may be where both are started at once.
	net := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(256))
	client, server := exec.Command(hello, net+"1", net+"2"), exec.Command(hello, net+"2")
	started(t, client)
	var said bytes.Buffer
	server.Stdout = &said
	started(t, server)
	if err := client.Wait(); err != nil {
		server.Process.Kill()
		t.Errorf("the client: %v", err)
	}
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
	if want := "hello from " + net + "1\n"; said.String() != want {
		t.Errorf("the server said %q, want %q", said.String(), want)
	}
}

// started starts one of the two and returns when it waits for the other.
func started(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	if line, err := bufio.NewReader(stderr).ReadString('\n'); err != nil || !strings.Contains(line, "waiting") {
		t.Fatalf("%q, %v", line, err)
	}
}
