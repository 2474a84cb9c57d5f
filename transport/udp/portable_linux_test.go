//go:build portable

package udp

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/transport"
)

// TestPortableHeaders: packets leave unfragmented and with Identification 0
// (RFC 6864), for which they were sealed. One that does not fit is an error.
func TestPortableHeaders(t *testing.T) {
	t.Parallel()
	if !testnet.Isolated(t) {
		return
	}
	testnet.Veth(t, "here0", "there0", "1500")
	testnet.IP(t, "address add 198.18.0.1/24 dev here0")
	testnet.IP(t, "neighbor add 198.18.0.2 lladdr 02:00:00:00:00:02 dev here0")
	proto := int(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_IP)))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		t.Skipf("this user may not capture packets (run as root, or with CAP_NET_RAW): %v", err)
	}
	defer unix.Close(fd)
	l := open(t, netip.MustParseAddr("198.18.0.1"), Config{})
	path := transport.NewPath(l.Addr(), transport.Path{Dst: netip.MustParseAddr("198.18.0.2")})
	tx := transport.NewTxBatch(1 << 18)
	for i := range 3 {
		put(t, tx, path, packet(i, 1024))
	}
	if err := l.Send(tx); err != nil {
		t.Fatal(err)
	}
	for seen := 0; seen < 3; {
		b := make([]byte, 2048)
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n < 28 || b[9] != unix.IPPROTO_UDP {
			continue
		}
		seen++
		id, flags := binary.BigEndian.Uint16(b[4:]), binary.BigEndian.Uint16(b[6:])
		if id != 0 || flags != 0x4000 {
			t.Errorf("Identification %#x, flags and offset %#x", id, flags)
		}
	}
	tx.Reset()
	put(t, tx, path, packet(0, 4096))
	if err := l.Send(tx); !errors.Is(err, transport.ErrTooLong) {
		t.Errorf("a packet longer than the MTU: %v", err)
	}
}
