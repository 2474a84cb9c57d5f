//go:build !portable

package owner_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/transport/lease"
	"github.com/gosoftroce/rocev2/transport/owner"
	"github.com/gosoftroce/rocev2/verbs"
)

// A process that has a lease is told of those of its user, also of past ones.
// One that has none is not: then the owner may be one of another network.
func TestListOfLeases(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	t.Setenv(lease.RunEnv, "some-run")
	o := own(t, owner.Config{Past: func() []owner.Lease {
		return []owner.Lease{{PID: 7, UID: uint32(os.Geteuid()), Command: "past"}, {PID: 8, UID: 12345}}
	}})
	if _, _, err := owner.List(o.Addr(), 0); !errors.Is(err, lease.ErrNoOwner) {
		t.Errorf("without a lease: %v", err)
	}
	dev, err := verbs.OpenLease(o.Socket(), verbs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	leases, ended, err := owner.List(o.Addr(), 0)
	if err != nil || len(leases) != 1 || leases[0].PID != os.Getpid() || leases[0].Run != "some-run" || !leases[0].Told || leases[0].Last {
		t.Errorf("leases: %+v, %v", leases, err)
	}
	if len(ended) != 2 || ended[0].Command != "past" { // the owner's own user sees the processes of all users
		t.Errorf("past leases: %+v", ended)
	}
	if at, _, err := owner.ListAt(o.Socket()); err != nil || len(at) != 1 {
		t.Errorf("%d leases at %s: %v", len(at), o.Socket(), err)
	}
	if found := lease.Sockets(); !slices.ContainsFunc(found, func(s string) bool { return filepath.Base(s) == "127.0.0.1" }) {
		t.Errorf("sockets: %v", found)
	}
	if s := o.Stats(); s.Granted != 1 || s.Refused != 0 {
		t.Errorf("%+v", s)
	}
}

// An owner of an earlier release does not know the question, and others answer
// nonsense: that is an error, and no list without leases.
func TestListOfAnotherRelease(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	o := own(t, owner.Config{})
	path, addr := o.Socket(), o.Addr()
	o.Close()
	for _, answer := range []string{`{"refused":{"reason":"bad request","text":"?"}}`, "", "nonsense", `{}`, `{"lease":7}`} {
		door, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			conn, err := door.AcceptUnix()
			if err != nil {
				return
			}
			defer conn.Close()
			if _, err := conn.Read(make([]byte, lease.MaxMessage)); err == nil && answer != "" {
				_, _ = conn.Write([]byte(answer)) // the test sees what comes of it
			}
		}()
		if _, _, err := owner.List(addr, 0); err == nil {
			t.Errorf("%q is a list", answer)
		}
		door.Close()
	}
}
