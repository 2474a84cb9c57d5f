//go:build linux && cgo

package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
)

// A device is opened as its file says.
func TestDeviceFile(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr("192.0.2.1")
	for text, want := range map[string]verbs.Config{
		"address=192.0.2.1\n": {},
		"address=192.0.2.1\nname=rxe_eth0\nleased=1\nloopback=1\n":       {Leased: true, Loopback: true},
		"shm=1\naddress=192.0.2.1\n":                                     {SharedMemory: true},
		"address=192.0.2.1\nloopback=1\nshm=1\ncolour=blue\n":            {Loopback: true, SharedMemory: true},
		"address=192.0.2.1\nloopback=0\nshm=0\nloopback\nshm=yes\n1=1\n": {},
	} {
		path := filepath.Join(t.TempDir(), "uverbs3")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := readNode(path)
		if err != nil || n.addr != addr || n.index != 3 {
			t.Errorf("%q: %+v, %v", text, n, err)
		}
		if n.config.Loopback != want.Loopback || n.config.SharedMemory != want.SharedMemory || n.config.Leased != want.Leased {
			t.Errorf("%q: %+v", text, n.config)
		}
	}
	for _, text := range []string{"", "loopback=1\n", "address=here\nshm=1\n"} {
		path := filepath.Join(t.TempDir(), "uverbs0")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if n, err := readNode(path); err == nil {
			t.Errorf("%q: %+v", text, n)
		}
	}
}
