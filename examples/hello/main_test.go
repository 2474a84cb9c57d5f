package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testprogram"
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
	hello := testprogram.Build(t)
	addr, _ := testprogram.Addresses()
	addr += ":7471"
	listener := hello.Start("listening", addr)
	if out, errs, err := hello.Run(addr, "hello"); err != nil || out != "" || !strings.Contains(errs, "connecting to "+addr) {
		t.Errorf("the writing side: %v, %q", err, out+errs)
	}
	if said := listener.Wait(); said != "hello\n" {
		t.Errorf("the other side said %q", said)
	}
}
