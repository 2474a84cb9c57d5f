//go:build !portable

package udp

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// fragmenter returns a function that sends datagrams in fragments.
func fragmenter(t *testing.T, src, dst netip.AddrPort) func(data []byte) {
	t.Helper()
	v4 := dst.Addr().Is4()
	family, to := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: dst.Addr().As16()})
	if v4 {
		family, to = unix.AF_INET, &unix.SockaddrInet4{Addr: dst.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW) // with the header of IP
	if errors.Is(err, unix.EPERM) {
		t.Skip("needs a raw socket: run it as root")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	ids := uint32(0)
	return func(data []byte) {
		udp := binary.BigEndian.AppendUint16(nil, src.Port())
		udp = binary.BigEndian.AppendUint16(udp, dst.Port())
		udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(data)))
		udp = append(append(udp, 0, 0), data...) // without a checksum
		ids++
		const part = 1024
		for at := 0; at < len(udp); at += part {
			end := min(at+part, len(udp))
			more := uint16(0)
			if end < len(udp) {
				more = 1
			}
			var ip []byte
			if v4 {
				ip = []byte{0x45, 0, 0, 0, 0, byte(ids), 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
				binary.BigEndian.PutUint16(ip[6:], more<<13|uint16(at/8))
				ip = append(append(ip, src.Addr().AsSlice()...), dst.Addr().AsSlice()...)
			} else {
				ip = []byte{0x60, 0, 0, 0, 0, 0, unix.IPPROTO_FRAGMENT, 64}
				binary.BigEndian.PutUint16(ip[4:], uint16(8+end-at))
				ip = append(append(ip, src.Addr().AsSlice()...), dst.Addr().AsSlice()...)
				ip = binary.BigEndian.AppendUint16(append(ip, unix.IPPROTO_UDP, 0), uint16(at)|more)
				ip = binary.BigEndian.AppendUint32(ip, ids)
			}
			if err := unix.Sendto(fd, append(ip, udp[at:end]...), 0, to); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A datagram that came in fragments is dropped, and counted; one that came
// whole is taken (IBTA A17: packets are not fragmented).
func TestFragmentsAreDropped(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, v6 bool) {
		src, dst := loopback(), loopback()
		if v6 {
			src, dst = mustAddr("::1"), mustAddr("::1")
		}
		l := open(t, dst, Config{Port: port()})
		from, to := netip.AddrPortFrom(src, port()), netip.AddrPortFrom(dst, l.local.Port())
		parts := fragmenter(t, from, to)
		whole := foreign(t, netip.AddrPortFrom(src, port()), to, false)
		for psn := range 3 {
			parts(packet(10+psn, 3000))
			whole(packet(psn, 3000))
			got := receive(t, l, 1)
			if n := int(binary.BigEndian.Uint32(got[0].Data[8:])) & 0xffffff; len(got) != 1 || n != psn {
				t.Fatalf("%d datagrams, the first with PSN %d, want %d alone", len(got), n, psn)
			}
		}
		if s := l.Stats(); s.RxMalformed != 3 {
			t.Errorf("%d are counted as malformed", s.RxMalformed)
		}
	})
}
