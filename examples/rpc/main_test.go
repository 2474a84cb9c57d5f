package main

import (
	"testing"

	"github.com/gosoftroce/rocev2/internal/testprogram"
)

// A procedure of another process is called.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	rpc := testprogram.Build(t)
	addr, _ := testprogram.Addresses()
	addr += ":7471"
	rpc.Start(addr, "serve", addr)
	for range 3 {
		if got := rpc.Output("call", addr, "7", "6"); got != "42\n" {
			t.Errorf("got %q", got)
		}
	}
}
