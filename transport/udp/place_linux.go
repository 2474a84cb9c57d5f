//go:build !portable

package udp

import (
	"encoding/binary"
	"net/netip"
	"runtime/debug"
	"time"
	"unsafe"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"golang.org/x/sys/unix"
)

// A coalesced buffer can be received so that the payloads of its packets lie
// where they belong: recvmsg takes a list of places. First MSG_PEEK shows the
// header of the first packet, and the placer says where the payloads go. This
// spares a copy of everything, and costs one system call more. Whether it pays
// is for choice to find out.
//
// The datagram that was looked at is the one that is received next: one
// goroutine at a time receives from the socket.

const (
	// placeRuns is how many buffers at once are placed. What follows one
	// that has anything else in it is not.
	placeRuns = 4
	// placeMin is the least packets for which it is tried, of placePayload
	// bytes at least.
	placeMin     = 4
	placePayload = 1024
	placeSegment = rocev2.BTHLen + placePayload + rocev2.ICRCLen
	// placeMost is how many of those fit into a datagram.
	placeMost = (1<<16)/placeSegment + 1
)

// gap is what lies between two payloads: the ICRC of the packet before, and the
// header of the next one.
type gap struct {
	icrc [rocev2.ICRCLen]byte
	head [rocev2.BTHLen]byte
}

const gapLen = int(unsafe.Sizeof(gap{}))

// placement is the state of receiving where payloads belong.
type placement struct {
	placer transport.Placer
	call   func(fd uintptr)
	now    func() time.Duration
	choice choice
	bytes  int  // that the last receive has brought
	large  bool // the last datagrams were coalesced ones of large packets
	batch  *transport.RxBatch

	head    [rocev2.BTHLen]byte // of the first packet, as peeked
	peekIov unix.Iovec
	peek    unix.Msghdr
	source  unix.RawSockaddrInet6
	control [recvControl]byte

	iov  [2*placeMost + 3]unix.Iovec
	msg  unix.Msghdr
	from unix.RawSockaddrInet6
	gaps [placeRuns][placeMost + 1]gap

	buffers, malformed int
	empty              bool // there was nothing
}

// SetPlacer implements transport.PlacingLink. Without receive offload it does
// nothing.
func (l *Link) SetPlacer(p transport.Placer) {
	if l.caps.ReceiveOffload {
		base := time.Now()
		l.rx.place = &placement{placer: p, call: l.rx.placed, now: func() time.Duration { return time.Since(base) }}
	}
}

var _ transport.PlacingLink = (*Link)(nil)

// mayPlace reports whether to try and place what comes next: in the middle of a
// bulk transfer, if that is the way.
func (r *receiver) mayPlace() bool {
	p := r.place
	bytes, large := p.bytes, p.large && !r.l.groups.any.Load()
	p.bytes, r.single = 0, false
	if large {
		return p.choice.next(bytes, p.now)
	}
	p.choice.interrupt()
	return false
}

// takes records that n bytes were received into a buffer, as packets of segment
// bytes if they were coalesced. A large packet alone is the first or the last
// one of a message between two others.
func (p *placement) takes(n, segment int) {
	p.bytes += n
	p.large = segment >= placeSegment || p.large && segment == 0 && n >= placeSegment
}

// tryPlacing receives into places what can be. It reports whether that is all
// for this time: something was placed, or there is nothing. Else one datagram
// is to be received in the ordinary way.
func (r *receiver) tryPlacing(b *transport.RxBatch) (done bool, err error) {
	p := r.place
	p.batch, p.buffers, p.malformed, p.empty = b, 0, 0, false
	err = r.l.raw.Control(p.call)
	p.batch = nil
	if err != nil {
		return true, r.l.wrap(err)
	}
	r.l.waiting.more.Store(!p.empty)
	if p.buffers > 0 {
		p.choice.placed(true)
		r.l.stats.Received(b, p.buffers, p.malformed)
		return true, nil
	}
	if p.empty {
		return true, nil
	}
	p.choice.placed(false)
	r.single = true
	return false, nil
}

// placed receives up to placeRuns buffers. Memory of a program may go away
// meanwhile: what was received there is lost, and buffers are the way for a
// while, where that is an error of the program that uses the memory.
func (r *receiver) placed(fd uintptr) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		p := recover()
		if p == nil {
			return
		}
		if _, fault := p.(interface{ Addr() uintptr }); !fault {
			panic(p)
		}
		r.place.choice.damaged()
		r.place.malformed++
	}()
	for i := range placeRuns {
		if !r.placeOne(fd, i) {
			return
		}
	}
}

// placeOne receives buffer i of a batch, and reports whether it was placed as a
// whole.
func (r *receiver) placeOne(fd uintptr, i int) bool {
	p := r.place
	meta := transport.RxPacket{Dst: r.l.local.Addr(), ICRC: transport.ICRCVerified}
	total, segment := r.look(fd, &meta)
	size, n := segment-rocev2.BTHLen-rocev2.ICRCLen, 0
	if size >= placePayload {
		n = total / segment
	}
	if n < placeMin || n > placeMost {
		return false
	}
	payload := p.placer.Place(netip.AddrPortFrom(meta.Src, meta.SrcPort), &p.head, size, n)
	if len(payload) == 0 {
		return false
	}
	n = len(payload) / size
	rest := p.batch.Buffer(i)
	at := p.scatter(&p.gaps[i], payload, size, n, rest[n*segment:])
	got, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&p.msg)), unix.MSG_DONTWAIT)
	defer p.placer.Placed()
	clear(p.iov[:at]) // nothing keeps the program's memory
	if errno != 0 {
		p.failed(r.l, errno)
		return false
	}
	p.buffers++
	p.bytes += int(got)
	if p.from != p.source {
		p.malformed++ // not what was looked at
		return false
	}
	return p.deliver(r.verifier, &p.gaps[i], meta, payload, size, n, rest[:min(int(got), len(rest))]) && int(got) == n*segment
}

// failed records an error. The ordinary way meets those that last.
func (p *placement) failed(l *Link, errno unix.Errno) {
	p.empty = errno == unix.EAGAIN
	if errno == unix.EFAULT {
		p.choice.damaged()
	}
	if !p.empty && errno != unix.EINTR {
		l.stats.SocketError()
	}
}

// look shows the first header of the next datagram, and returns its length and
// that of its segments, 0 if it has none.
func (r *receiver) look(fd uintptr, meta *transport.RxPacket) (total, segment int) {
	p := r.place
	p.peekIov.Base = &p.head[0]
	p.peekIov.SetLen(len(p.head))
	p.source = unix.RawSockaddrInet6{}
	h := &p.peek
	h.Name, h.Namelen = (*byte)(unsafe.Pointer(&p.source)), unix.SizeofSockaddrInet6
	h.Iov = &p.peekIov
	h.SetIovlen(1)
	h.Control = &p.control[0]
	h.SetControllen(recvControl)
	got, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(h)), unix.MSG_DONTWAIT|unix.MSG_PEEK|unix.MSG_TRUNC)
	if errno != 0 {
		p.failed(r.l, errno)
		return 0, 0
	}
	meta.Src, meta.SrcPort = getSockaddr(&p.source, h.Namelen)
	segment, whole := parseControl(p.control[:h.Controllen], meta)
	if !whole || !meta.Src.IsValid() {
		segment = 0
	}
	return int(got), segment
}

// scatter makes the list of places: n payloads of size bytes with gaps around
// them, and then rest. It returns how many places there are.
func (p *placement) scatter(gaps *[placeMost + 1]gap, payload []byte, size, n int, rest []byte) (at int) {
	add := func(b *byte, n int) {
		p.iov[at].Base = b
		p.iov[at].SetLen(n)
		at++
	}
	add(&gaps[0].head[0], rocev2.BTHLen)
	for i := range n {
		add(&payload[i*size], size)
		if i+1 < n {
			add(&gaps[i+1].icrc[0], gapLen)
		}
	}
	add(&gaps[n].icrc[0], rocev2.ICRCLen)
	if len(rest) > 0 {
		add(&rest[0], len(rest))
	}
	p.from = unix.RawSockaddrInet6{}
	p.msg.Name, p.msg.Namelen = (*byte)(unsafe.Pointer(&p.from)), unix.SizeofSockaddrInet6
	p.msg.Iov = &p.iov[0]
	p.msg.SetIovlen(at)
	return at
}

// deliver adds what was received to the batch: runs of packets that are what
// the first header lets expect, and from the first on that is not, ordinary
// packets. It reports whether there are none of those. buf is long enough for
// the whole datagram, and has what was not placed at its end.
func (p *placement) deliver(v *transport.Verifier, gaps *[placeMost + 1]gap, meta transport.RxPacket, payload []byte, size, n int, buf []byte) bool {
	segment := rocev2.BTHLen + size + rocev2.ICRCLen
	peer := v.Peer(netip.AddrPortFrom(meta.Src, meta.SrcPort))
	start, i := 0, 0
	for ; i < n && (i+1)*segment <= len(buf); i++ {
		bth := &gaps[i].head
		if !follows(&p.head, bth, i) {
			break
		}
		if !peer.CheckPlaced(i, bth[:], payload[i*size:(i+1)*size], binary.LittleEndian.Uint32(gaps[i+1].icrc[:])) {
			p.choice.damaged()
			break
		}
		if i > start && (ackReq(bth) || ackReq(&gaps[i-1].head)) {
			p.add(meta, gaps, payload, size, start, i)
			start = i
		}
	}
	if i > start {
		p.add(meta, gaps, payload, size, start, i)
	}
	if i*segment >= len(buf) {
		return true
	}
	for k := i; k < n; k++ {
		b := buf[:cap(buf)][k*segment:]
		copy(b, gaps[k].head[:])
		copy(b[rocev2.BTHLen:], payload[k*size:(k+1)*size])
		copy(b[rocev2.BTHLen+size:], gaps[k+1].icrc[:])
	}
	meta.ICRC = 0
	p.malformed += p.batch.SplitFrom(i, buf[i*segment:], segment, &meta, v)
	return false
}

// add adds the packets first to last-1 as a run.
func (p *placement) add(meta transport.RxPacket, gaps *[placeMost + 1]gap, payload []byte, size, first, last int) {
	meta.Data = gaps[first].head[:]
	p.batch.AppendPlaced(transport.PlacedRun{First: meta, N: last - first, Payload: payload[first*size : last*size]})
}

// ackReq reports whether a header asks for an acknowledgement.
func ackReq(h *[rocev2.BTHLen]byte) bool { return h[8]&0x80 != 0 }

// follows reports whether h is the header of packet i after first, which may
// differ in AckReq.
func follows(first, h *[rocev2.BTHLen]byte, i int) bool {
	if binary.BigEndian.Uint64(first[:]) != binary.BigEndian.Uint64(h[:]) {
		return false
	}
	a, b := binary.BigEndian.Uint32(first[8:]), binary.BigEndian.Uint32(h[8:])
	const reserved = 0x7f << 24
	return a&reserved == b&reserved && rocev2.PSN(a)&rocev2.PSNMask == rocev2.PSN(b).Add(-i)&rocev2.PSNMask
}
