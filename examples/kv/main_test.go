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

// What one process puts another one gets, also when many write at once.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	kv := program(t)
	addr := serving(t, kv)
	output(t, kv, "put", addr, "colour", "red")
	output(t, kv, "put", addr, "colour", "blue")
	if got := output(t, kv, "get", addr, "colour"); got != "blue\n" {
		t.Errorf("got %q", got)
	}
	if out, err := exec.Command(kv, "get", addr, "size").CombinedOutput(); err == nil || !strings.Contains(string(out), `no key "size"`) {
		t.Errorf("a key that nobody has put: %q (%v)", out, err)
	}
	errs := make(chan error)
	const writers, each = 4, 200
	for w := range writers {
		go func() {
			errs <- client(addr, func(s *store) error {
				for i := range each {
					if err := s.put("shared", strings.Repeat(fmt.Sprint(w), 1+i%100)); err != nil {
						return err
					}
					value, err := s.get("shared")
					if err != nil {
						return err
					}
					if value == "" || strings.Trim(value, value[:1]) != "" {
						return fmt.Errorf("a value of two writers: %q", value)
					}
				}
				return nil
			})
		}()
	}
	for range writers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
