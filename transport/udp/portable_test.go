//go:build !linux || portable

package udp

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// hosts returns two addresses of this machine: macOS has 127.0.0.1 alone.
func hosts(t *testing.T, v6 bool) (a, b *Link, path *transport.Path) {
	t.Helper()
	addr := netip.MustParseAddr("127.0.0.1")
	if v6 {
		addr = netip.IPv6Loopback()
	}
	a, b = open(t, addr, Config{Port: port()}), open(t, addr, Config{Port: port()})
	return a, b, transport.NewPath(addr, transport.Path{Dst: addr, DstPort: b.Capabilities().Port})
}

func TestPortableTransfer(t *testing.T) {
	t.Parallel()
	for _, v6 := range []bool{false, true} {
		a, b, path := hosts(t, v6)
		tx := transport.NewTxBatch(1 << 20)
		const n = 40
		for i := range n {
			put(t, tx, path, packet(i, i*100))
		}
		if err := a.Send(tx); err != nil {
			t.Fatal(err)
		}
		for i, p := range receive(t, b, n) {
			if !bytes.HasPrefix(p.Data, packet(i, i*100)) || p.ICRC != transport.ICRCVerified || p.IPID != 0 || p.Src != a.Addr() {
				t.Errorf("packet %d from %v: ICRC %v", i, p.Src, p.ICRC)
			}
		}
		if st := a.Stats(); st.TxPackets != n || st.TxErrors != 0 {
			t.Errorf("sent: %+v", st)
		}
		if st := b.Stats(); st.RxPackets != n || st.RxBadICRC+st.RxMalformed != 0 {
			t.Errorf("received: %+v", st)
		}
	}
}

// What the link cannot do is an error, not silence.
func TestPortableRefuses(t *testing.T) {
	t.Parallel()
	a, b, path := hosts(t, false)
	other := transport.NewPath(a.Addr(), transport.Path{Dst: b.Addr(), SrcPort: 50000})
	six := transport.NewPath(a.Addr(), transport.Path{Dst: netip.IPv6Loopback()})
	tx := transport.NewTxBatch(1 << 16)
	for i, p := range []*transport.Path{path, other, six, path} {
		put(t, tx, p, packet(i, 8))
	}
	var failed *transport.SendError
	if err := a.Send(tx); !errors.As(err, &failed) || failed.Index != 1 || failed.Failed != 2 {
		t.Errorf("error %v", err)
	}
	receive(t, b, 2)
	if _, err := transport.OpenSourcePort(a, 50000, true); err == nil {
		t.Error("a source port was opened")
	}
	if _, err := OpenGroup(a.Addr(), Config{}, 2); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a group: %v", err)
	}
	if c := a.Capabilities(); c.MTU != rocev2.MTU4096 || c.LinkMTU < 4176 || c.SegmentOffload || c.SourcePorts || c.ECN {
		t.Errorf("capabilities %+v", c)
	}
}

func TestPortableClose(t *testing.T) {
	t.Parallel()
	a, _, path := hosts(t, true)
	waited := make(chan error)
	go func() {
		for {
			if err := a.Wait(); err != nil {
				waited <- err
				return
			}
		}
	}()
	a.Wake()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := <-waited; !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Wait: %v", err)
	}
	tx := transport.NewTxBatch(1 << 16)
	put(t, tx, path, packet(0, 8))
	if err := a.Send(tx); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Send: %v", err)
	}
	if _, err := a.Recv(transport.NewRxBatch(1)); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Recv: %v", err)
	}
}
