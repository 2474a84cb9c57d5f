package loopback

import (
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// TestMarkedDatagrams: what arrives with Congestion Experienced in its IP
// header (RFC 3168) is answered with a notification to the sender (IBTA A17.9).
// Here the sender itself sets the mark, as a switch would.
func TestMarkedDatagrams(t *testing.T) {
	t.Parallel()
	for _, n := range networks {
		t.Run(n.name, func(t *testing.T) {
			t.Parallel()
			const size = 64 << 10
			plain := func(l transport.Link, _ uint64) transport.Link { return l }
			a, b := devicePair(t, n, plain) // skips where there is no IPv6
			if local := a.qp.Endpoint().Addr; !carriesMark(t, local) {
				t.Skipf("the kernel does not carry the ECN field between sockets on %v; Linux 6.1 and later do", local)
			}
			check(t, a.qp.Connect(t.Context(), b.qp.Endpoint(), verbs.WithConfig(verbs.ConnectConfig{TrafficClass: congestionExperienced})))
			check(t, b.qp.Connect(t.Context(), a.qp.Endpoint()))
			a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, SGList: []verbs.SGE{a.mr.Slice(0, size)}, Remote: b.mr.RemoteAt(0)})
			a.waitOK(1)
			if sent := b.qp.Stats(); sent.ECNMarked == 0 || sent.CNPsSent == 0 {
				t.Fatalf("%d packets arrived marked, %d CNPs were sent", sent.ECNMarked, sent.CNPsSent)
			}
			// What b sends comes after its first CNP.
			b.post(verbs.SendWR{ID: 2, Opcode: verbs.OpWrite, SGList: []verbs.SGE{b.mr.Slice(0, 8)}, Remote: a.mr.RemoteAt(0)})
			b.waitOK(2)
			if got := a.qp.Stats(); got.CNPsReceived == 0 || got.WindowCuts == 0 || got.ECNMarked > 0 {
				t.Errorf("%d CNPs arrived, %d cuts, %d packets marked", got.CNPsReceived, got.WindowCuts, got.ECNMarked)
			}
		})
	}
}

const congestionExperienced = 3

// carriesMark reports whether the kernel brings the mark that one socket sends
// to another one. It knows of sockets only, so that it cannot excuse the
// device.
func carriesMark(t *testing.T, local netip.Addr) bool {
	t.Helper()
	level, field, show := unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_RECVTCLASS
	if local.Is4() {
		level, field, show = unix.IPPROTO_IP, unix.IP_TOS, unix.IP_RECVTOS
	}
	from, to := plainSocket(t, local), plainSocket(t, local)
	raw, err := to.SyscallConn()
	check(t, err)
	check(t, raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, show, 1) }))
	check(t, err)
	check(t, to.SetReadDeadline(time.Now().Add(time.Minute)))

	mark := make([]byte, unix.CmsgSpace(4))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&mark[0]))
	h.Level, h.Type = int32(level), int32(field)
	h.SetLen(unix.CmsgLen(4))
	mark[unix.CmsgLen(0)] = congestionExperienced
	_, _, err = from.WriteMsgUDPAddrPort([]byte{1}, mark, to.LocalAddr().(*net.UDPAddr).AddrPort())
	check(t, err)

	b, oob := make([]byte, 8), make([]byte, 64)
	_, n, _, _, err := to.ReadMsgUDPAddrPort(b, oob)
	check(t, err)
	messages, err := syscall.ParseSocketControlMessage(oob[:n])
	check(t, err)
	for _, m := range messages {
		if int(m.Header.Level) == level && int(m.Header.Type) == field {
			return m.Data[0]&3 == congestionExperienced
		}
	}
	return false
}

func plainSocket(t *testing.T, local netip.Addr) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0)))
	check(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}
