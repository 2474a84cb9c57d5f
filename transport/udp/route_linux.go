//go:build !portable

package udp

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// route is how packets to a peer leave.
type route struct {
	iface int // index of the interface; 0 if it is not known
	mtu   int // that the route itself was given; 0 = none
	local bool
}

// findRoute asks the kernel for the way from src, if that is valid, to dst.
// What the kernel has learned of the path from ICMP does not count, because any
// host can send that.
func findRoute(src, dst netip.Addr, scope uint32) (r route, ok bool) {
	var s routeSocket
	s.open()
	defer s.close()
	return s.find(src, dst, scope)
}

// routeSocket asks the kernel for routes. A link keeps one, because each queue
// pair that is connected asks, and to open a socket takes longer than to ask.
type routeSocket struct {
	mu   sync.Mutex
	has  bool // it is open
	fd   int
	last uint32
}

func (s *routeSocket) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	s.fd, s.has = fd, err == nil
}

func (s *routeSocket) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.has {
		unix.Close(s.fd)
		s.has = false
	}
}

// find is findRoute.
func (s *routeSocket) find(src, dst netip.Addr, scope uint32) (r route, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.has {
		return r, false
	}
	s.last++
	request := routeRequest(src, dst, scope)
	const seqOffset = 8 // of struct nlmsghdr
	binary.NativeEndian.PutUint32(request[seqOffset:], s.last)
	if err := unix.Sendto(s.fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return r, false
	}
	for {
		// The answer is there when the request has been taken, after
		// what has not been read yet.
		var b [2048]byte
		n, _, err := unix.Recvfrom(s.fd, b[:], unix.MSG_DONTWAIT)
		if err != nil {
			return r, false
		}
		if n >= unix.SizeofNlMsghdr && binary.NativeEndian.Uint32(b[seqOffset:]) == s.last {
			return parseRoute(b[:n])
		}
	}
}

// routeRequest writes an RTM_GETROUTE message.
func routeRequest(src, dst netip.Addr, scope uint32) []byte {
	family := unix.AF_INET6
	if dst.Is4() {
		family = unix.AF_INET
	}
	attr := func(b []byte, typ uint16, data []byte) []byte {
		b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(data)))
		b = binary.NativeEndian.AppendUint16(b, typ)
		return append(b, data...) // of 4 or 16 bytes: no padding
	}
	b := make([]byte, unix.SizeofNlMsghdr, 128)
	b = append(b, uint8(family), uint8(dst.BitLen()), uint8(src.BitLen()), 0, 0, 0, 0, 0, 0, 0, 0, 0) // struct rtmsg
	b = attr(b, unix.RTA_DST, dst.AsSlice())
	if src.IsValid() {
		b = attr(b, unix.RTA_SRC, src.AsSlice())
	}
	if scope != 0 {
		b = attr(b, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, scope))
	}
	h := (*unix.NlMsghdr)(unsafe.Pointer(&b[0]))
	h.Len, h.Type, h.Flags = uint32(len(b)), unix.RTM_GETROUTE, unix.NLM_F_REQUEST
	return b
}

// parseRoute reads the answer, an RTM_NEWROUTE message or an error.
func parseRoute(b []byte) (r route, ok bool) {
	const head = unix.SizeofNlMsghdr + unix.SizeofRtMsg
	if len(b) < head || binary.NativeEndian.Uint16(b[4:]) != unix.RTM_NEWROUTE {
		return r, false
	}
	const typeOffset = 7 // of struct rtmsg
	r.local = b[unix.SizeofNlMsghdr+typeOffset] == unix.RTN_LOCAL
	learned := false
	b = b[head:min(len(b), max(head, int(binary.NativeEndian.Uint32(b))))]
	eachAttr(b, func(typ uint16, data []byte) {
		switch {
		case typ == unix.RTA_OIF && len(data) >= 4:
			r.iface = int(binary.NativeEndian.Uint32(data))
		case typ == unix.RTA_METRICS:
			eachAttr(data, func(typ uint16, data []byte) {
				if typ == unix.RTAX_MTU && len(data) >= 4 {
					r.mtu = int(binary.NativeEndian.Uint32(data))
				}
			})
		case typ == unix.RTA_CACHEINFO && len(data) >= 12:
			// rta_expires: what was learned of a path is forgotten
			// some day.
			learned = binary.NativeEndian.Uint32(data[8:]) != 0
		}
	})
	if learned {
		r.mtu = 0
	}
	return r, true
}

// eachAttr calls f for the attributes in b, as far as they are whole.
func eachAttr(b []byte, f func(typ uint16, data []byte)) {
	for len(b) >= unix.SizeofRtAttr {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofRtAttr || n > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:]), b[unix.SizeofRtAttr:n])
		b = b[min(len(b), (n+3)&^3):]
	}
}
