//go:build !portable

package udp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/sockfilter"
	"github.com/gosoftroce/rocev2/transport"
)

// Link is a transport.Link over one unconnected UDP socket, and one more for
// each source port that paths ask for.
type Link struct {
	socket                        // sends from the link's own port and receives
	addr   netip.Addr             // as opened, with zone
	local  netip.AddrPort         // without zone
	scope  uint32                 // interface index of a link-local address
	abroad bool                   // the socket is of another network namespace than the process
	before uint64                 // what the socket had dropped before it was adopted
	caps   transport.Capabilities // without what changes
	mtu    ownMTU
	gso    bool
	others *sourcePorts
	groups groups
	routes routeSocket
	watch  atomic.Pointer[os.File] // of WatchPort

	closed  atomic.Bool
	waiting waiter
	tx      sender
	rx      receiver
	stats   transport.LinkCounters // RxOverflow is there from Close on
}

var _ transport.Link = (*Link)(nil)

// Open binds a link to addr, which must be a unicast address of this machine. A
// link-local IPv6 address needs its zone if several interfaces have it. The
// error is an *OpenError.
func Open(addr netip.Addr, c Config) (*Link, error) {
	at, scope, err := c.place(addr)
	if err != nil {
		return nil, err
	}
	addr = at.Addr()
	l := &Link{addr: addr, local: netip.AddrPortFrom(addr.WithZone(""), c.Port), scope: scope}
	l.mtu.init(addr)
	l.groups.cfg, l.groups.iface = c, groupInterface(&l.mtu, scope)
	fd, op, err := bind(at, scope, &c, func(fd int) error {
		sendByInterface(fd, addr.Is4(), l.groups.iface)
		return nil
	})
	if err != nil {
		return nil, &OpenError{Addr: at, Op: op, Err: err, Hint: bindHint(at, err)}
	}
	l.setup(fd, &c)
	if l.socket, err = newSocket(fd, at); err != nil {
		return nil, &OpenError{Addr: at, Op: "register", Err: err}
	}
	l.others = newSourcePorts(at, scope, l.groups.iface, c)
	if err := l.waiting.init(&l.groups); err != nil {
		l.file.Close()
		return nil, &OpenError{Addr: at, Op: "make an eventfd", Err: err}
	}
	l.routes.open()
	l.tx.init(l)
	l.rx.init(l)
	return l, nil
}

// OpenGroup binds n links, a power of two, to the same address and port. A
// packet arrives at the link whose index is its destination QPN modulo n.
// Packets that the kernel has coalesced arrive together, where the first of
// them belongs. ReusePort is implied. The error is an *OpenError.
func OpenGroup(addr netip.Addr, c Config, n int) ([]*Link, error) {
	if n <= 1 {
		l, err := Open(addr, c)
		if err != nil {
			return nil, err
		}
		return []*Link{l}, nil
	}
	if n&(n-1) != 0 {
		return nil, &OpenError{Addr: netip.AddrPortFrom(addr, c.Port), Op: "open a group",
			Err: fmt.Errorf("%d links: the number must be a power of two", n)}
	}
	// Only these links share the port: the first one binds it alone, so
	// that this fails if another process has it.
	first, err := Open(addr, c)
	if err != nil {
		return nil, err
	}
	links := append(make([]*Link, 0, n), first)
	err = first.share()
	c.ReusePort = true
	for err == nil && len(links) < n {
		var l *Link
		if l, err = Open(addr, c); err != nil {
			break
		}
		l.others = first.others.join()
		links = append(links, l)
		if len(links) == 2 { // with the second link they are a group
			err = first.steer(n)
		}
	}
	if err != nil {
		for _, l := range links {
			l.Close()
		}
		return nil, err
	}
	return links, nil
}

// share lets the links of a group bind the port of l, which has it alone.
func (l *Link) share() error {
	var err error
	if e := l.raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}); e != nil {
		return e
	}
	if err != nil {
		return &OpenError{Addr: l.local, Op: "share the port", Err: os.NewSyscallError("setsockopt SO_REUSEPORT", err)}
	}
	return nil
}

// steer has the kernel choose among the n sockets of the group, which are
// numbered in the order in which they were bound, by the destination QPN.
func (l *Link) steer(n int) error {
	const qpnOffset = 4 // the word of reserved bits and destination QPN in the BTH
	var err error
	if e := l.raw.Control(func(fd uintptr) {
		err = sockfilter.Steer(int(fd),
			bpf.LoadAbsolute{Off: qpnOffset, Size: 4},
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: uint32(n - 1)},
			bpf.RetA{})
	}); e != nil {
		return e
	}
	if err != nil {
		return &OpenError{Addr: l.local, Op: "steer packets", Err: err}
	}
	return nil
}

// setup sizes the buffers of the socket and finds out what it can do.
func (l *Link) setup(fd int, c *Config) {
	l.caps, l.gso = features(fd, c, l.addr.Is4())
	l.caps.RecvBuffer = setBuffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, c.RecvBuffer)
	l.caps.SendBuffer = setBuffer(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, c.SendBuffer)
}

// features finds out what a socket can do, and whether it can segment.
func features(fd int, c *Config, v4 bool) (caps transport.Capabilities, gso bool) {
	caps = transport.Capabilities{Port: c.Port, FullICRC: !v4, ECN: true, SourcePorts: true}
	if !c.DisableGSO {
		_, err := unix.GetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT)
		gso = err == nil
	}
	on := 1
	if c.DisableGRO {
		on = 0 // an adopted socket may have it
	}
	err := unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, on)
	caps.ReceiveOffload = err == nil && !c.DisableGRO
	return caps, gso
}

// Addr returns the local address, with its zone if it is link-local.
func (l *Link) Addr() netip.Addr { return l.addr }

// Capabilities returns what the link can do.
func (l *Link) Capabilities() transport.Capabilities {
	c := l.caps
	c.SegmentOffload = l.gso
	l.mtu.fill(&c)
	return c
}

// ReadLinkMTU reads the MTU of the link's interface, and that of the way to
// peer where packets leave by another one.
func (l *Link) ReadLinkMTU(peer netip.Addr) int {
	if l.abroad {
		return int(l.mtu.bytes.Load())
	}
	own := l.mtu.read(func(index int) (mtu int, ok bool) { return interfaceMTU(l.raw, index) })
	peer = peer.Unmap().WithZone("")
	if !peer.IsValid() || peer.Is4() != l.local.Addr().Is4() {
		return own
	}
	if peer.IsMulticast() {
		if mtu, ok := interfaceMTU(l.raw, l.groups.iface); ok {
			own = mtu // whatever the routes say
		}
		return own
	}
	r, ok := l.routes.find(l.local.Addr(), peer, l.scope)
	if !ok || r.local {
		return own
	}
	if r.mtu > 0 {
		own = min(own, r.mtu)
	}
	if r.iface != 0 && r.iface != l.mtu.iface {
		if mtu, ok := interfaceMTU(l.raw, r.iface); ok {
			own = min(own, mtu)
		}
	}
	return own
}

var _ transport.LinkMTUReader = (*Link)(nil)

// waiter is the state of Wait: poll(2) on the socket, on an eventfd that wakes
// it, and on what watches the sockets of groups, if there are any. The
// runtime's poller would wake for every packet, even while a program polls and
// no goroutine waits.
type waiter struct {
	event    *os.File
	raw      syscall.RawConn // of event
	groups   *groups
	onSocket func(fd uintptr)
	onEvent  func(fd uintptr)
	onGroups func(fd uintptr)
	wake     func(fd uintptr)
	more     atomic.Bool  // the last Recv left something
	failing  atomic.Int32 // Recv calls in a row that failed
	fds      [4]unix.PollFd
	woken    atomic.Bool // the eventfd was written, and not read since
	other    atomic.Pointer[otherEvent]
	onOther  func(fd uintptr)
	polled   int // descriptors of the socket's, the eventfd's and the groups'
}

func (w *waiter) init(g *groups) error {
	w.groups = g
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	w.event = os.NewFile(uintptr(fd), "eventfd")
	if err := unix.SetNonblock(fd, true); err != nil { // only now: the runtime's poller leaves it alone
		w.event.Close()
		return os.NewSyscallError("fcntl", err)
	}
	if w.raw, err = w.event.SyscallConn(); err != nil {
		w.event.Close()
		return err
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	w.wake = func(fd uintptr) {
		// It fails only when the counter is full: then a wake-up is
		// pending.
		_, _ = unix.Write(int(fd), one[:])
		w.woken.Store(true)
	}
	w.onEvent = func(fd uintptr) {
		w.fds[1] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		if !w.groups.any.Load() || w.groups.watch.raw.Control(w.onGroups) != nil {
			w.blockWithOther(2)
		}
	}
	w.onGroups = func(fd uintptr) {
		w.fds[2] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		w.blockWithOther(3)
	}
	w.onOther = func(fd uintptr) {
		w.fds[w.polled] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		w.block(w.polled + 1)
	}
	w.onSocket = func(fd uintptr) {
		w.fds[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		// An error means closed, which Wait looks for.
		_ = w.raw.Control(w.onEvent)
	}
	return nil
}

// otherEvent is a descriptor that Wait watches for another package.
type otherEvent struct {
	raw   syscall.RawConn
	ready func()
}

// WaitAlso has Wait return when f is readable, too. Then it calls ready, which
// ends that. The caller keeps f, and closes it after the link. WaitAlso is
// called once: a second call fails. A Wait that blocks already does not know of
// it.
func (l *Link) WaitAlso(f *os.File, ready func()) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if !l.waiting.other.CompareAndSwap(nil, &otherEvent{raw: raw, ready: ready}) {
		return errWaitsAlso
	}
	return nil
}

var errWaitsAlso = errors.New("the link waits for another file already")

// Namespace identifies the network namespace of the link, as long as this host
// runs; 0 if the kernel cannot tell (Linux before 5.14).
func (l *Link) Namespace() uint64 { return l.socket.namespace() }

func (s *socket) namespace() (cookie uint64) {
	size := uint32(unsafe.Sizeof(cookie))
	err := s.raw.Control(func(fd uintptr) {
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE,
			uintptr(unsafe.Pointer(&cookie)), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			cookie = 0
		}
	})
	if err != nil {
		return 0
	}
	return cookie
}

// Scope returns the index of the interface that a link-local address is of,
// and else 0.
func (l *Link) Scope() uint32 { return l.scope }

// blockWithOther is block, with the descriptor of WaitAlso if there is one.
func (w *waiter) blockWithOther(n int) {
	w.polled = n
	o := w.other.Load()
	if o == nil || w.failing.Load() > 0 || o.raw.Control(w.onOther) != nil {
		w.block(n)
		return
	}
	if w.fds[n].Revents != 0 {
		w.fds[n].Revents = 0
		o.ready()
	}
}

// block waits for the first n descriptors.
func (w *waiter) block(n int) {
	fds := w.fds[:n]
	var timeout *unix.Timespec
	if k := w.failing.Load(); k > 0 {
		// The sockets would be ready at once, to fail again.
		fds = w.fds[1:2]
		t := unix.NsecToTimespec(int64(pause(k)))
		timeout = &t
	}
	w.fds[1].Revents = 0
	got, err := unix.Ppoll(fds, timeout, nil)
	if err == nil && got > 0 && w.fds[1].Revents != 0 {
		w.woken.Store(false)
		w.reset(uintptr(w.fds[1].Fd))
	}
}

// reset resets the counter of the eventfd.
func (w *waiter) reset(fd uintptr) {
	var count [8]byte
	_, _ = unix.Read(int(fd), count[:])
}

// pause is how long Wait lasts after that many failed Recv calls in a row. A
// broken socket must not keep a processor busy.
func pause(failed int32) time.Duration {
	return min(time.Millisecond<<min(failed-1, 10), maxPause)
}

const maxPause = 100 * time.Millisecond

// Wait blocks in poll(2) until the socket is readable, and where receiving
// fails for a while.
func (l *Link) Wait() error {
	if l.closed.Load() {
		return transport.ErrClosed
	}
	if l.waiting.more.Load() {
		return nil
	}
	if err := l.raw.Control(l.waiting.onSocket); err != nil {
		return l.wrap(err)
	}
	if l.closed.Load() {
		return transport.ErrClosed
	}
	return nil
}

// Wake makes a Wait return, the current one or the next.
func (l *Link) Wake() {
	// It fails only on a closed link, whose Wait has ended.
	_ = l.waiting.raw.Control(l.waiting.wake)
}

// wrap turns the error of a closed descriptor into ErrClosed.
func (l *Link) wrap(err error) error {
	if err == nil {
		return nil
	}
	if l.closed.Load() || errors.Is(err, os.ErrClosed) || errors.Is(err, net.ErrClosed) {
		return transport.ErrClosed
	}
	return err
}

// Close closes the socket and wakes Wait and Send.
func (l *Link) Close() error {
	if l.closed.Swap(true) {
		return transport.ErrClosed
	}
	l.stats.SetOverflow(l.kernelDrops())
	l.Wake()
	l.routes.close()
	return errors.Join(l.file.Close(), l.waiting.event.Close(), l.others.leave(), l.groups.close())
}

// Stats returns the counters. RxOverflow is the kernel's, asked for with
// SO_MEMINFO; it includes datagrams dropped for a wrong UDP checksum.
func (l *Link) Stats() transport.LinkStats {
	s := l.stats.Load()
	if !l.closed.Load() {
		s.RxOverflow = l.kernelDrops()
	}
	return s
}

// kernelDrops returns what the link's sockets have dropped.
func (l *Link) kernelDrops() uint64 { return l.socket.drops() - l.before + l.groups.drops() }

// drops returns the socket's drop counter, SK_MEMINFO_DROPS.
func (s *socket) drops() uint64 {
	const fields, drops = 9, 8
	var info [fields]uint32
	size := uint32(unsafe.Sizeof(info))
	err := s.raw.Control(func(fd uintptr) {
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			info[drops] = 0
		}
	})
	if err != nil {
		return 0
	}
	return uint64(info[drops])
}
