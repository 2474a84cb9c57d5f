package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPipesInPlaceOfFiles names a pipe without a writer where a file is meant:
// each command says so, and does not wait.
func TestPipesInPlaceOfFiles(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"region ls 127.0.0.1 --psk PIPE",
		"perf write_bw --tls-cert PIPE --tls-key PIPE --tls-ca PIPE",
		"sim PIPE",
		"sim --merge PIPE",
		"dump --keys PIPE ../../docs/conformance/linux-6.12/requester-read-short.pcapng",
		"top --token-file PIPE",
		"rcopy -d " + freeAddress() + " PIPE 127.0.0.1:copy",
	} {
		r := invoke(t.Context(), strings.Fields(strings.ReplaceAll(args, "PIPE", pipe))...)
		if r.code == 0 || !strings.Contains(r.err, "is a pipe, and no regular file") {
			t.Errorf("%s: %+v", args, r)
		}
	}
}
