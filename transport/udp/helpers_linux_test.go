package udp

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }

func families(t *testing.T, f func(t *testing.T, v6 bool)) {
	for _, v6 := range []bool{false, true} {
		name := map[bool]string{false: "IPv4", true: "IPv6"}[v6]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, v6)
		})
	}
}

// foreign returns a function that sends datagrams as another implementation
// does, from a socket with the options given.
func foreign(t *testing.T, src, dst netip.AddrPort, connect bool, opts ...[3]int) func(data []byte) {
	t.Helper()
	family := unix.AF_INET6
	if !dst.IsValid() {
		dst = src // binds only
	}
	var from, to unix.Sockaddr = &unix.SockaddrInet6{Addr: src.Addr().As16(), Port: int(src.Port())}, &unix.SockaddrInet6{Addr: dst.Addr().As16(), Port: int(dst.Port())}
	if src.Addr().Is4() {
		family = unix.AF_INET
		from, to = &unix.SockaddrInet4{Addr: src.Addr().As4(), Port: int(src.Port())}, &unix.SockaddrInet4{Addr: dst.Addr().As4(), Port: int(dst.Port())}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	for _, o := range opts {
		if err := unix.SetsockoptInt(fd, o[0], o[1], o[2]); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Bind(fd, from); err != nil {
		t.Fatal(err)
	}
	if connect {
		if err := unix.Connect(fd, to); err != nil {
			t.Fatal(err)
		}
		to = nil
	}
	return func(data []byte) {
		if err := unix.Sendto(fd, data, 0, to); err != nil {
			t.Fatal(err)
		}
	}
}
