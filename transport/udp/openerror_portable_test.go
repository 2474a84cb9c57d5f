//go:build !linux || portable

package udp

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestPortableTellsWhy: an error of Open is that of package syscall, and says
// what to do.
func TestPortableTellsWhy(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr("127.0.0.1")
	taken := open(t, addr, Config{Port: port()}).Capabilities().Port
	_, err := Open(addr, Config{Port: taken})
	if !errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL) || !strings.Contains(err.Error(), "another socket has UDP port") {
		t.Errorf("a port that is taken: %v", err)
	}
	at := netip.AddrPortFrom(addr, 4791)
	for _, c := range []struct {
		err  error
		want string
	}{
		{addrNotLocal, "not an address of this machine; local are "},
		{noPermission, "no permission to bind UDP port 4791"},
		{manyFiles, "ulimit -n"},
		{noRoom, ""},
	} {
		if hint := bindHint(at, os.NewSyscallError("bind", c.err)); !strings.Contains(hint, c.want) || c.want == "" && hint != "" {
			t.Errorf("%v: %q", c.err, hint)
		}
	}
}
