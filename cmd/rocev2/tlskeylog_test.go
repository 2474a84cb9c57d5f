package main

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/internal/tlsfiles"
	"github.com/gosoftroce/rocev2/rdma"
)

// wantOpened dumps a capture with a key log: all that is sealed opens.
func wantOpened(t *testing.T, capture, keys string, least int) {
	t.Helper()
	r := invoke(t.Context(), "dump", capture, "--keys", keys)
	if n := strings.Count(r.out, "[opened]"); r.code != 0 || r.err != "" || n < least {
		t.Errorf("dump: %d, %s; %d packets were opened, want %d:\n%.2000s", r.code, r.err, n, least, r.out)
	}
}

// TestPerfKeyLog: with the key log of a run, each packet of its capture opens.
func TestPerfKeyLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	capture, keys := filepath.Join(dir, "run.pcapng"), filepath.Join(dir, "keys.log")
	run := []string{"perf", "write_bw", "-n", "50", "-s", "3000", "-q", "3", "--psk", secretFile(t, secretText)}
	sides(t, run, slices.Concat(run, []string{"--pcap", capture, "--tls-keylog", keys}))
	wantOpened(t, capture, keys, 100)
}

// TestRegionKeyLog does the same with a region.
func TestRegionKeyLog(t *testing.T) {
	t.Parallel()
	files := tlsfiles.Files{PSK: secretFile(t, secretText)}
	server, err := files.Server()
	if err != nil {
		t.Fatal(err)
	}
	addr := freeAddress()
	lc := rdma.ListenConfig{Device: openSealing(t, addr), TLS: server}
	lc.Export("data", rdma.Region{Memory: make([]byte, 1<<16), Writable: true})
	l, err := lc.Listen(t.Context(), net.JoinHostPort(addr, strconv.Itoa(config.DefaultRegionsPort)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			if _, err := l.Accept(context.Background()); err != nil {
				return
			}
		}
	}()
	dir := t.TempDir()
	capture, keys := filepath.Join(dir, "region.pcapng"), filepath.Join(dir, "keys.log")
	r := regionCLI(t, strings.Repeat("what is written ", 1000), "write", addr+"/data", "--psk", files.PSK, "-d", freeAddress(), "--pcap", capture, "--tls-keylog", keys)
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	wantOpened(t, capture, keys, 5)
}
