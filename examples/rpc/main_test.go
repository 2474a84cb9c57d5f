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

// program builds the example.
func program(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has all of 127.0.0.0/8 without setting it up")
	}
	path := filepath.Join(t.TempDir(), "example")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// serving starts the server, on an address that nobody else has, and waits
// until it serves.
func serving(t *testing.T, path string, args ...string) (addr string) {
	t.Helper()
	addr = fmt.Sprintf("127.%d.%d.%d:7471", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	server := exec.Command(path, append([]string{"serve", addr}, args...)...)
	server.Stderr = os.Stderr
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Process.Kill(); server.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(line, addr) {
		t.Fatalf("the server says %q (%v)", line, err)
	}
	return addr
}

// output runs a client and returns what it prints.
func output(t *testing.T, path string, args ...string) string {
	t.Helper()
	client := exec.Command(path, args...)
	var stderr bytes.Buffer
	client.Stderr = &stderr
	out, err := client.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, stderr.String())
	}
	return string(out)
}

// A procedure of another process is called.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	path := program(t)
	addr := serving(t, path)
	for range 3 {
		if got := output(t, path, "call", addr, "7", "6"); got != "42\n" {
			t.Errorf("got %q", got)
		}
	}
}
