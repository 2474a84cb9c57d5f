//go:build !portable

package udp

import (
	"cmp"
	"os"
	"sync"
	"unsafe"

	"github.com/gosoftroce/rocev2/internal/procfs"
	"github.com/gosoftroce/rocev2/transport"
	"golang.org/x/sys/unix"
)

// recvHeaders is the most that one recvmmsg fills. Each needs a buffer that
// holds any run of packets that the kernel may have coalesced. So it begins
// with fewHeaders, and takes more when they were all filled.
const (
	recvHeaders = 64
	fewHeaders  = 4
)

// recvBytes is about how many bytes one recvmmsg takes: a part of the cache
// that is the processor's own. They are read again for the ICRC, and when they
// are copied to where they belong. With more, each time is a cache miss.
var recvBytes = sync.OnceValue(func() int {
	const share, unknown = 4, 1 << 20
	return recvBytesOf(cmp.Or(procfs.L2Cache(procfs.SysRoot()), unknown) / share)
})

// recvBytesOf returns what can be had of a number of bytes.
func recvBytesOf(n int) int {
	return min(max(n, fewHeaders*transport.RxBufferLen), recvHeaders*transport.RxBufferLen)
}

// recvSlot is what one header of a recvmmsg points to.
type recvSlot struct {
	iov     unix.Iovec
	control [recvControl]byte // aligned as the headers in it
	addr    unix.RawSockaddrInet6
	group   *groupSocket // by which it was received; nil = the link's own socket
}

// recvControl is room for the control messages of a datagram.
const recvControl = 5 * controlInt

// receiver is the state of Recv.
type receiver struct {
	l        *Link
	read     func(fd uintptr)
	readMore func(fd uintptr)
	verifier *transport.Verifier
	hdrs     [recvHeaders]mmsghdr
	slots    [recvHeaders]recvSlot
	batch    *transport.RxBatch // whose buffers the headers point to
	n        int                // headers to fill
	got      int                // headers filled last time, to be made ready again
	grouped  bool               // the last call received from groups
	place    *placement         // nil: everything is received into buffers
	few      bool               // little comes: one system call for one datagram is the cheapest
	single   bool               // take one datagram: what follows may be placed
	left     bool               // there may be more than was taken
	errno    unix.Errno         // with which receiving failed, or EAGAIN
	errors   int                // of this call
}

func (r *receiver) init(l *Link) {
	r.l = l
	r.verifier = transport.NewVerifier(l.local)
	r.read = r.receive
	r.readMore = r.many
	for i := range r.hdrs {
		h, s := &r.hdrs[i].hdr, &r.slots[i]
		h.Name = (*byte)(unsafe.Pointer(&s.addr))
		h.Iov = &s.iov
		h.SetIovlen(1)
		h.Control = &s.control[0]
	}
}

// Recv takes what is there without blocking, at most one buffer of b for each
// datagram or coalesced run. Pending socket errors are counted and passed over.
func (l *Link) Recv(b *transport.RxBatch) (int, error) {
	b.Reset()
	if l.closed.Load() {
		return 0, transport.ErrClosed
	}
	r := &l.rx
	r.prepare(b)
	if r.place != nil && r.mayPlace() {
		if done, err := r.tryPlacing(b); done {
			return b.Len(), err
		}
	}
	// Groups and the link's own socket take turns, so that neither has to
	// wait until the other has nothing more.
	r.grouped = !r.grouped && l.groups.any.Load() && r.receiveGroups()
	if !r.grouped {
		if err := l.raw.Control(r.read); err != nil {
			return 0, l.wrap(err)
		}
	}
	if r.errno != 0 && r.errno != unix.EAGAIN {
		l.waiting.failing.Add(1)
		l.waiting.more.Store(false)
		return 0, os.NewSyscallError("receive", r.errno)
	}
	if l.waiting.failing.Load() > 0 {
		l.waiting.failing.Store(0)
	}
	if l.waiting.more.Load() != r.left { // to look is cheaper than to write
		l.waiting.more.Store(r.left)
	}
	if r.got > 0 {
		r.deliver(b)
	}
	return b.Len(), nil
}

// prepare makes the headers ready that the last call has used, and more of them
// if it has used all; or the first ones for another batch.
func (r *receiver) prepare(b *transport.RxBatch) {
	used := r.got
	most := min(b.Buffers(), recvHeaders)
	switch {
	case r.batch != b:
		r.batch, used = b, 0
		r.offer(0, min(fewHeaders, most))
	case used > 0:
		r.adapt(most)
	}
	for i := range used {
		h := &r.hdrs[i].hdr
		h.Namelen = unix.SizeofSockaddrInet6
		h.SetControllen(recvControl)
	}
	r.got, r.errno = 0, 0
}

// adapt sets how many headers the next recvmmsg fills, by what the last one has
// brought: twice as many if it has filled all, and so many that the bytes stay
// in the cache.
func (r *receiver) adapt(most int) {
	bytes := 1
	for i := range r.got {
		bytes += int(r.hdrs[i].n)
	}
	most = min(most, max(recvBytes()*r.got/bytes, fewHeaders))
	switch {
	case r.n > most:
		r.n = most
	case r.got == r.n && r.n < most:
		r.offer(r.n, min(2*r.n, most))
	}
}

// offer makes the headers from first to n-1 ready, each with a buffer of the
// batch.
func (r *receiver) offer(first, n int) {
	for i := first; i < n; i++ {
		buf := r.batch.Buffer(i)
		h, s := &r.hdrs[i].hdr, &r.slots[i]
		s.iov.Base = &buf[0]
		s.iov.SetLen(len(buf))
		h.Namelen = unix.SizeofSockaddrInet6
		h.SetControllen(recvControl)
	}
	r.n = n
}

// receive takes what has arrived. While little arrives it asks for one
// datagram, which is quickest, and asks for more only after a coalesced one.
func (r *receiver) receive(fd uintptr) {
	r.left = false
	if r.few || r.single {
		if !r.one(fd) {
			return
		}
		r.got = 1
		if r.single || r.hdrs[0].n <= transport.MaxSealedLen || r.n == 1 {
			r.few, r.left = false, true
			return
		}
	}
	r.many(fd)
	r.few, r.left = r.got <= 1, r.got == r.n
}

// one calls recvmsg for the first header and reports success. It cannot block,
// so the scheduler need not know of it.
func (r *receiver) one(fd uintptr) bool {
	for r.errors = 0; ; {
		n, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&r.hdrs[0].hdr)), unix.MSG_DONTWAIT)
		if errno == 0 {
			r.hdrs[0].n, r.errno = uint32(n), 0
			return true
		}
		if r.ended(errno) {
			return false
		}
	}
}

// many calls recvmmsg for the headers that are not filled.
func (r *receiver) many(fd uintptr) {
	for r.errors = 0; ; {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&r.hdrs[r.got])),
			uintptr(r.n-r.got), unix.MSG_DONTWAIT, 0, 0)
		if errno == 0 {
			r.got += int(n)
			r.errno = 0
			return
		}
		if r.ended(errno) {
			return
		}
	}
}

// ended reports whether receiving is over for now. It keeps errno if nothing
// was received. Errors may be of earlier sends: the system reports each of
// those once. If errors do not end, receiving itself fails.
func (r *receiver) ended(errno unix.Errno) bool {
	r.errors++
	if errno == unix.EINTR {
		return r.errors >= maxRefused
	}
	if r.got == 0 {
		r.errno = errno
	}
	switch errno {
	case unix.EAGAIN:
		return true
	case unix.EBADF, unix.ENOTSOCK, unix.EFAULT, unix.EINVAL:
		r.l.stats.SocketError()
		return true
	}
	r.l.stats.SocketError()
	return r.errors >= maxRefused || r.l.waiting.failing.Load() > 0
}

// deliver splits the received buffers into packets of b.
func (r *receiver) deliver(b *transport.RxBatch) {
	malformed := 0
	for i := range r.got {
		h, s := &r.hdrs[i], &r.slots[i]
		meta, v := transport.RxPacket{Dst: r.l.local.Addr()}, r.verifier
		if s.group != nil {
			meta.Dst, v = s.group.addr, s.group.verifier
			s.group = nil
		}
		meta.Src, meta.SrcPort = getSockaddr(&s.addr, h.hdr.Namelen)
		if h.hdr.Flags&unix.MSG_TRUNC != 0 || !meta.Src.IsValid() {
			malformed++
			continue
		}
		segment, whole := parseControl(s.control[:h.hdr.Controllen], &meta)
		if !whole {
			malformed++
			continue
		}
		if r.place != nil {
			r.place.takes(int(h.n), segment)
		}
		malformed += b.SplitFrom(0, b.Buffer(i)[:h.n], segment, &meta, v)
	}
	r.l.stats.Received(b, r.got, malformed)
}

// parseControl notes what the IP header of a datagram had, and returns the
// segment size (0 = not coalesced), and whether the datagram has come whole: no
// sender of RoCEv2 packets lets them be fragmented (IBTA A17).
func parseControl(b []byte, p *transport.RxPacket) (segment int, whole bool) {
	whole = true
	for {
		v, rest, ok := nextControl(b)
		if !ok {
			return segment, whole
		}
		switch {
		case v.level == unix.IPPROTO_UDP && v.typ == unix.UDP_GRO:
			segment = v.value
		case v.level == unix.IPPROTO_IP && v.typ == unix.IP_RECVFRAGSIZE,
			v.level == unix.IPPROTO_IPV6 && v.typ == unix.IPV6_RECVFRAGSIZE:
			whole = false
		case v.level == unix.IPPROTO_IP && v.typ == unix.IP_TOS,
			v.level == unix.IPPROTO_IPV6 && v.typ == unix.IPV6_TCLASS:
			p.TrafficClass = uint8(v.value)
		case v.level == unix.IPPROTO_IP && v.typ == unix.IP_TTL,
			v.level == unix.IPPROTO_IPV6 && v.typ == unix.IPV6_HOPLIMIT:
			p.HopLimit = uint8(v.value)
		case v.level == unix.IPPROTO_IPV6 && v.typ == ipv6Flowinfo:
			p.FlowLabel = bigEndian32(uint32(v.value)) & 0xfffff
		}
		b = rest
	}
}
