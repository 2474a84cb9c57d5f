package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/gosoftroce/rocev2/programs"
	"github.com/gosoftroce/rocev2/verbs"
)

// A run that comes while a daemon begins waits until the devices are there.
func TestRunWhileADaemonBegins(t *testing.T) {
	t.Parallel()
	parent, err := os.MkdirTemp("", "roce") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(parent) })
	dir := filepath.Join(parent, "d")
	host, err := programs.Listen(programs.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	done := make(chan error, 1)
	go func() {
		held, err := holdOrStart(t.Context(), dir, programFlags{}, nil)
		if err == nil {
			_, err = os.Stat(filepath.Join(dir, "dev/infiniband/uverbs0"))
			held.file.Close()
		}
		done <- err
	}()
	if err := host.OpenDevice(netip.MustParseAddr(freeAddress()), verbs.Config{}); err != nil {
		t.Fatal(err)
	}
	if err := host.Ready(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A run on an address whose port another process owns shares it at once: it
// tries no second time.
func TestRunBesideAnOwner(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr(freeAddress())
	for i := range 2 {
		parent, err := os.MkdirTemp("", "roce")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(parent) })
		host, err := programs.Listen(programs.Config{Dir: filepath.Join(parent, "d")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { host.Close() })
		if err := openOrShare(host, addr, verbs.Config{}); err != nil {
			t.Fatalf("host %d: %v", i, err)
		}
	}
}
