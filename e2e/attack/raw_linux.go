package attack

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// rawWire forges IPv4 packets on a raw socket.
type rawWire struct{ fd int }

// OpenRaw returns a wire that forges IPv4 packets on a raw socket, which needs
// CAP_NET_RAW.
func OpenRaw() (Wire, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, fmt.Errorf("attack: open a raw socket (it needs CAP_NET_RAW): %w", err)
	}
	return &rawWire{fd}, nil
}

const ipv4Len, udpLen = 20, 8

// Send writes the IP header with don't-fragment and Identification 0, as the
// devices do, and no UDP checksum. The kernel fills in the IP checksum.
func (w *rawWire) Send(src, dst netip.AddrPort, b []byte) error {
	p := make([]byte, ipv4Len+udpLen, ipv4Len+udpLen+len(b))
	be := binary.BigEndian
	p[0], p[6], p[8], p[9] = 0x45, 0x40, 64, unix.IPPROTO_UDP
	be.PutUint16(p[2:], uint16(cap(p)))
	s, d := src.Addr().As4(), dst.Addr().As4()
	copy(p[12:], s[:])
	copy(p[16:], d[:])
	be.PutUint16(p[20:], src.Port())
	be.PutUint16(p[22:], dst.Port())
	be.PutUint16(p[24:], uint16(udpLen+len(b)))
	err := unix.Sendto(w.fd, append(p, b...), 0, &unix.SockaddrInet4{Addr: d})
	if err == unix.ENOBUFS || err == unix.EAGAIN {
		return nil // lost, as packets are
	}
	return err
}

func (w *rawWire) Close() error { return unix.Close(w.fd) }
