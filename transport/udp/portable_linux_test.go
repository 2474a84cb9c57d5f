//go:build portable

package udp

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

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

// spoil puts something in a socket's place that is always ready and is no
// socket. It returns a function that ends that.
func spoil(t *testing.T, s *ipSocket) (mend func()) {
	t.Helper()
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	kept, err := unix.Dup(int(s.fd))
	if err != nil {
		t.Fatal(err)
	}
	replace := func(fd int) {
		t.Helper()
		if err := unix.Dup3(fd, int(s.fd), unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
	}
	replace(null)
	return func() {
		replace(kept)
		unix.Close(kept)
	}
}

// TestPortableReceiveFails: receiving that fails takes no processor, and is
// over when the failure is, also where nothing comes.
func TestPortableReceiveFails(t *testing.T) {
	t.Parallel()
	a, b, path := hosts(t, false)
	rx := transport.NewRxBatch(4)
	mend := spoil(t, b.own)
	for i := range 4 {
		if n, err := b.Recv(rx); n != 0 || !errors.Is(err, unix.ENOTSOCK) {
			t.Fatalf("Recv: %d, %v", n, err)
		}
		if got := b.own.asleep(); got != time.Millisecond<<i {
			t.Errorf("after %d failures Wait lasts %v", i+1, got)
		}
		if err := b.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	b.own.failing.Store(1 << 20)
	if got := b.own.asleep(); got != maxPause {
		t.Errorf("Wait lasts %v at last", got)
	}
	b.Wake() // ends it before its time
	if err := b.Wait(); err != nil {
		t.Fatal(err)
	}
	mend()
	if n, err := b.Recv(rx); n != 0 || err != nil {
		t.Errorf("Recv of a socket that works again: %d, %v", n, err)
	}
	if b.own.asleep() != 0 {
		t.Error("failures are still counted")
	}
	send(t, a, transport.Path{Dst: path.Dst, DstPort: path.DstPort}, 1)
	receive(t, b, 1)
}

// TestPortableGroupFails: a group whose socket fails does not stop the link,
// nor is it the link's error, and it goes on when the failure is over.
func TestPortableGroupFails(t *testing.T) {
	t.Parallel()
	a, b, path := hosts(t, false)
	group := mustAddr("239.255.47.96")
	join(t, group, b)
	m := b.groups.members()[0]
	mend := spoil(t, m.ipSocket)
	rx := transport.NewRxBatch(4)
	for range 4 {
		if n, err := b.Recv(rx); n != 0 || err != nil {
			t.Fatalf("Recv: %d, %v", n, err)
		}
	}
	if m.asleep() == 0 || b.own.asleep() != 0 {
		t.Errorf("the group is left alone for %v, the link's own socket for %v", m.asleep(), b.own.asleep())
	}
	to := transport.Path{Dst: path.Dst, DstPort: path.DstPort}
	send(t, a, to, 3)
	receive(t, b, 3)
	mend()
	to.Dst = group
	send(t, a, to, 1)
	receive(t, b, 1)
	if m.asleep() != 0 {
		t.Error("failures are still counted")
	}
}

// What is remembered of headers is bounded, whatever a peer sends.
func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	_, b, _ := hosts(t, false)
	for i := range 10 * mostHeaders {
		b.own.headerOf(binary.BigEndian.AppendUint64(nil, uint64(i)))
	}
	if n := len(b.own.headers); n > mostHeaders {
		t.Errorf("%d are kept", n)
	}
}
