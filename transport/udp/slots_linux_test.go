//go:build !portable

package udp

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// A slot that is in use gets the packets for its QPNs, and one that is idle
// drops and counts them.
func TestSlots(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	for _, addr := range []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")} {
		s, err := OpenSlots(addr, Config{}, 8)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := OpenSlots(addr, Config{}, 8); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("the port is bound twice: %v", err)
		}
		links := map[int]*Link{}
		for _, i := range []int{3, 4} {
			if links[i], err = s.Link(i); err != nil {
				t.Fatal(err)
			}
		}
		path := transport.NewPath(addr, transport.Path{Dst: addr})
		tx, rx := transport.NewTxBatch(1<<16), transport.NewRxBatch(8)
		send := func(qpn rocev2.QPN) {
			t.Helper()
			tx.Reset()
			p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.UDSendOnly, DestQPN: qpn}}
			tx.Commit(len(p.AppendHeaders(tx.Room()[:0])), path)
			if err := links[4].Send(tx); err != nil {
				t.Fatal(err)
			}
		}
		receive := func(i int) int {
			t.Helper()
			n, err := links[i].Recv(rx)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		before := s.Drops(5)
		for _, q := range []rocev2.QPN{3, 8*77 + 3, 5, 8*5 + 5} {
			send(q)
		}
		n := receive(3)
		for k := receive(3); k > 0; k = receive(3) {
			n += k
		}
		if n != 2 || receive(4) != 0 || s.Drops(5)-before != 2 {
			t.Errorf("%v: slot 3 got %d packets, slot 5 dropped %d", addr, n, s.Drops(5)-before)
		}
		send(3)
		if err := s.Idle(3); err != nil {
			t.Fatal(err)
		}
		send(3)
		if err := s.Use(3, 1<<16, 1<<16); err != nil {
			t.Fatal(err)
		}
		if n := receive(3); n != 0 {
			t.Errorf("%v: %d packets of before came to the next user", addr, n)
		}
		for _, l := range links {
			l.Close()
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A link of another network namespace does not ask peers from this one.
func TestLinkOfOtherNamespaceDoesNotProbe(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	s, err := OpenSlots(netip.MustParseAddr("127.0.0.1"), Config{}, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for abroad := range uint64(2) {
		l, err := s.socks[0].adoptCopy(Adopted{Local: s.Local(), LinkMTU: 1500, Namespace: s.Namespace() + abroad}, Config{})
		if err != nil {
			t.Fatal(err)
		}
		if can := transport.CanProbePort(l); can != (abroad == 0) {
			t.Errorf("%d: it can probe: %v", abroad, can)
		}
		l.Close()
	}
}

// A link of another network namespace has no socket that asks for routes. It
// takes no file of the program for one.
func TestLinkOfOtherNamespaceLeavesStandardInput(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	s, err := OpenSlots(netip.MustParseAddr("127.0.0.1"), Config{}, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l, err := s.socks[0].adoptCopy(Adopted{Local: s.Local(), LinkMTU: 1500, Namespace: s.Namespace() + 1}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if list := l.Files(); slices.Contains(list, 0) {
		t.Errorf("its files are %v", list)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := unix.FcntlInt(0, unix.F_GETFD, 0); err != nil {
		t.Errorf("the standard input: %v", err)
	}
}

// What is no socket of the address is not taken for one.
func TestAdoptOtherDescriptor(t *testing.T) {
	t.Parallel()
	a := Adopted{Local: netip.MustParseAddrPort("127.0.0.1:4791")}
	pipe := make([]int, 2)
	if err := unix.Pipe2(pipe, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	udp, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range append(pipe, udp) {
		if _, err := Adopt([]int{fd}, a, Config{}); !errors.Is(err, errOtherSocket) {
			t.Errorf("descriptor %d: %v", fd, err)
		}
	}
}
