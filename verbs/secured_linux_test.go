package verbs_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// sniffer counts what passes lo between two addresses.
type sniffer struct {
	sealed, clear atomic.Int64
	fd            int
}

func sniff(t *testing.T) *sniffer {
	t.Helper()
	all := uint16(syscall.ETH_P_ALL<<8 | syscall.ETH_P_ALL>>8)
	fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, int(all))
	check(t, err)
	check(t, syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Usec: 100_000}))
	s := &sniffer{fd: fd}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 1<<16)
		for {
			n, _, err := syscall.Recvfrom(fd, b, 0)
			if err == nil {
				s.packet(b[:n])
				continue
			}
			select {
			case <-over:
				return
			default:
			}
		}
	}()
	t.Cleanup(func() {
		close(over)
		<-done
		syscall.Close(fd)
	})
	return s
}

// packet looks at an IPv4 packet.
func (s *sniffer) packet(b []byte) {
	if len(b) < 40 || b[0] != 0x45 || b[9] != syscall.IPPROTO_UDP || binary.BigEndian.Uint16(b[22:]) != verbs.UDPPort || bytes.Equal(b[12:16], b[16:20]) {
		return
	}
	if transport.IsSealed(b[28:]) {
		s.sealed.Add(1)
	} else {
		s.clear.Add(1)
	}
}

// TestSecuredDevices: all packets between two devices are sealed, those of
// processes that share their ports too; a device in clear reaches none of them.
func TestSecuredDevices(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	ca := testcert.New(t)
	for i, c := range []struct {
		name         string
		shards       int
		ownsA, ownsB bool
	}{
		{name: "alone"},
		{name: "shards", shards: 4},
		{name: "owners", ownsA: true, ownsB: true},
		{name: "owner and alone", ownsA: true, shards: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := sniff(t)
			addr := [3]netip.Addr{}
			for k := range addr {
				addr[k] = netip.AddrFrom4([4]byte{127, 0, byte(i), byte(k + 1)})
			}
			open := func(k int, owns bool) *verbs.Device {
				t.Helper()
				cert := ca.IssueFor(t, testcert.Subject{CN: "host", Addr: addr[k].String()})
				dev, err := verbs.OpenAddr(addr[k], verbs.Config{Owner: owns, Shards: c.shards,
					Secure: &verbs.Secure{TLS: &tls.Config{RootCAs: ca.Pool, Certificates: []tls.Certificate{cert}}}})
				check(t, err)
				t.Cleanup(func() { check(t, dev.Close()) })
				return dev
			}
			a, b := open(0, c.ownsA), open(1, c.ownsB)
			for k := range 8 {
				from, to := a, b
				if k%2 == 1 && c.ownsA { // another one that shares the port
					dev, err := verbs.OpenAddr(addr[0], verbs.Config{Leased: true})
					check(t, err)
					defer func() { check(t, dev.Close()) }()
					from = dev
				}
				x, y := newSide(t, from, 1<<18), newSide(t, to, 1<<18)
				connect(t, x.qp, y.qp)
				want := x.fill(uint64(k))
				x.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, SGList: []verbs.SGE{x.mr.Slice(0, len(want))}, Remote: y.mr.RemoteAt(0)})
				x.waitOK(1)
				if !bytes.Equal(y.mr.Bytes(), want) {
					t.Error("the bytes are others")
				}
				x.post(verbs.SendWR{ID: 2, Opcode: verbs.OpRead, SGList: []verbs.SGE{x.mr.Slice(0, len(want))}, Remote: y.mr.RemoteAt(0)})
				x.waitOK(2)
			}
			if n := s.clear.Load(); n != 0 || s.sealed.Load() == 0 {
				t.Errorf("%d packets in clear, %d sealed", n, s.sealed.Load())
			}
			if _, err := verbs.OpenAddr(addr[0], verbs.Config{Secure: &verbs.Secure{}}); err == nil {
				t.Error("a second one has opened the port")
			}
			stranger, err := verbs.OpenAddr(addr[2], verbs.Config{})
			check(t, err)
			defer stranger.Close()
			x, y := newSide(t, stranger, 64), newSide(t, b, 64)
			connect(t, x.qp, y.qp, verbs.WithConfig(verbs.ConnectConfig{Timeout: 10, RetryCount: verbs.Set(2)}))
			x.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, SGList: []verbs.SGE{x.mr.Slice(0, 8)}, Remote: y.mr.RemoteAt(0)})
			if wc := x.wait(); wc.Status != verbs.StatusRetryExcErr {
				t.Errorf("in clear: %v", wc.Status)
			}
		})
	}
}
