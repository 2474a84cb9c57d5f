//go:build linux && !portable

package udp

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/transport"
	"golang.org/x/sys/unix"
)

// When a device refuses a segmentation buffer, its packets leave one by one,
// sealed for Identification 0 (RFC 6864), and so do all later ones to that
// destination.
func TestOffloadRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		port uint16
	}{{"own port", 0}, {"source port", 61500}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, b, path := ends(t, false, Config{}, transport.Path{SrcPort: c.port})
			testOffloadRefused(t, a, b, path)
		})
	}
}

func testOffloadRefused(t *testing.T, a, b *Link, path *transport.Path) {
	if !a.Capabilities().SegmentOffload {
		t.Skip("the kernel has no UDP_SEGMENT; Linux 4.18 and later have it")
	}
	// Without transmit checksums the kernel refuses UDP_SEGMENT, as it does
	// on a device that cannot compute them.
	sock, err := a.tx.socket(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := sock.raw.Control(func(fd uintptr) {
		if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NO_CHECK, 1); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	tx := transport.NewTxBatch(1 << 20)
	for i, n := range sizes() {
		put(t, tx, path, packet(i, n))
	}
	for range 2 {
		if err := a.Send(tx); err != nil {
			t.Fatal(err)
		}
		for i, p := range receive(t, b, len(sizes())) {
			if want := packet(i, sizes()[i]); !bytes.HasPrefix(p.Data, want) || p.ICRC != transport.ICRCVerified {
				t.Fatalf("packet %d: ICRC %v", i, p.ICRC)
			}
		}
	}
	if st := a.Stats(); st.OffloadFaults == 0 || st.TxErrors != 0 || st.TxPackets != uint64(2*len(sizes())) || st.TxBuffers != st.TxPackets {
		t.Errorf("stats %+v", st)
	}

	// Other destinations are not concerned.
	allowChecksums(t, sock)
	c := open(t, loopback(), Config{})
	faults, buffers := a.Stats().OffloadFaults, a.Stats().TxBuffers
	tx.Reset()
	other := transport.NewPath(a.Addr(), transport.Path{Dst: c.Addr(), SrcPort: path.SrcPort})
	for i := range 20 {
		put(t, tx, other, packet(i, 1024))
	}
	if err := a.Send(tx); err != nil {
		t.Fatal(err)
	}
	receive(t, c, 20)
	if st := a.Stats(); st.OffloadFaults != faults || st.TxBuffers != buffers+1 {
		t.Errorf("20 packets to another host left in %d buffers, %d refusals", st.TxBuffers-buffers, st.OffloadFaults-faults)
	}
	// The one that was refused is tried again some day.
	a.tx.whole.plain[path.Dst] = retryRefusals
	tx.Reset()
	for i := range 20 {
		put(t, tx, path, packet(i, 1024))
	}
	for range 2 {
		if err := a.Send(tx); err != nil {
			t.Fatal(err)
		}
		receive(t, b, 20)
	}
	if st := a.Stats(); st.TxBuffers != buffers+3 {
		t.Errorf("twice 20 packets left in %d buffers when their host was tried again", st.TxBuffers-buffers-1)
	}
}

func allowChecksums(t *testing.T, s *socket) {
	t.Helper()
	if err := s.raw.Control(func(fd uintptr) {
		if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NO_CHECK, 0); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// What is remembered of refusals is bounded.
func TestRefusals(t *testing.T) {
	t.Parallel()
	var r refusals
	for range 1000 {
		r.add(loopback())
	}
	first := loopback()
	r.add(first)
	r.add(first)
	if len(r.plain) > maxRefusals || r.allow(first) {
		t.Errorf("%d destinations are kept", len(r.plain))
	}
	for range maxRefusals {
		r.add(netip.AddrFrom4([4]byte{10, 0, 0, byte(r.next)}))
	}
	if !r.allow(first) {
		t.Error("the oldest is not forgotten")
	}
}

// A socket that fails for ever does not take a processor, and works again when
// the failure is over.
func TestReceiveFails(t *testing.T) {
	t.Parallel()
	a, b, path := ends(t, false, Config{}, transport.Path{})
	// In the socket's place comes something that is always ready and no
	// socket.
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	var kept int
	replace := func(f func(fd int) error) {
		t.Helper()
		if err := b.raw.Control(func(fd uintptr) { err = f(int(fd)) }); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	replace(func(fd int) (err error) { kept, err = unix.Dup(fd); return err })
	defer unix.Close(kept)
	replace(func(fd int) error { return unix.Dup3(null, fd, unix.O_CLOEXEC) })
	rx := transport.NewRxBatch(4)
	for i := range 4 {
		if n, err := b.Recv(rx); n != 0 || !errors.Is(err, unix.ENOTSOCK) {
			t.Fatalf("Recv: %d, %v", n, err)
		}
		if got := pause(b.waiting.failing.Load()); got != time.Millisecond<<i {
			t.Errorf("after %d failures Wait lasts %v", i+1, got)
		}
		if err := b.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if pause(1<<30) != maxPause {
		t.Errorf("Wait lasts %v at last", pause(1<<30))
	}
	b.waiting.failing.Store(1 << 30)
	b.Wake() // ends it before its time
	if err := b.Wait(); err != nil {
		t.Fatal(err)
	}
	if st := b.Stats(); st.SocketErrors != 4 {
		t.Errorf("%d socket errors counted, want 4", st.SocketErrors)
	}
	replace(func(fd int) error { return unix.Dup3(kept, fd, unix.O_CLOEXEC) })
	tx := transport.NewTxBatch(1 << 16)
	put(t, tx, path, packet(1, 64))
	if err := a.Send(tx); err != nil {
		t.Fatal(err)
	}
	receive(t, b, 1)
	if b.waiting.failing.Load() != 0 {
		t.Error("failures are still counted")
	}
}
