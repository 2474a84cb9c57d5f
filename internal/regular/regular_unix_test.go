//go:build unix

package regular

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOthers opens what is no regular file: that neither waits nor succeeds.
func TestOthers(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "") // the address of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	pipe, socket := filepath.Join(dir, "pipe"), filepath.Join(dir, "socket")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, want := range map[string]string{pipe: "is a pipe", socket: "is a socket", "/dev/zero": "is a device"} {
		for _, flag := range []int{os.O_RDONLY, os.O_RDWR} {
			if f, err := OpenFile(name, flag, 0); err == nil || f != nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
