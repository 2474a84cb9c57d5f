package foreign

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gosoftroce/rocev2/internal/debian"
	"github.com/gosoftroce/rocev2/internal/testnet"
)

// TestWindowsDemo runs the demo of two processes as programs of Windows. They
// have IPv6 addresses: Wine 8 binds all IPv4 sockets of an interface to one
// address.
func TestWindowsDemo(t *testing.T) {
	need(t, debian.Need{File: wineFile, Package: "wine64"}) // which is elsewhere than in the namespace
	// Built before the namespace, which has no module proxy.
	program := filepath.Join(t.TempDir(), "rocev2.exe")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/rocev2")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=windows", "GOARCH=amd64")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !testnet.Isolated(t) {
		return
	}
	testnet.IP(t, "address add fd18::1/128 dev lo nodad")
	testnet.IP(t, "address add fd18::2/128 dev lo nodad")
	f := wine(t)
	demo := exec.CommandContext(t.Context(), f.by, program, "demo", "--rates", "0", "--local", "fd18::2", "--peer", "fd18::1")
	demo.Env = append(os.Environ(), f.env...)
	if out, err := demo.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
