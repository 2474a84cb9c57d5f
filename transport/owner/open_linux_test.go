//go:build !portable

package owner_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/transport/lease"
	"github.com/gosoftroce/rocev2/transport/owner"
)

// A second owner is told that there is one, which can be asked for a lease.
func TestSecondOwner(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	addr := netip.MustParseAddr("127.0.0.1")
	if pid := lease.OwnerPID(addr, 0); pid != 0 {
		t.Fatalf("process %d", pid)
	}
	o, err := owner.Listen(owner.Config{Addr: addr, Slots: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	second, err := owner.Listen(owner.Config{Addr: addr, Slots: 8})
	if err == nil {
		second.Close()
	}
	if !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), "owns UDP port 4791 on 127.0.0.1 already, and leases parts of it") {
		t.Errorf("%v", err)
	}
}
