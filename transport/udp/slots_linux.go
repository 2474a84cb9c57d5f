//go:build !portable

package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/sockfilter"
)

// Slots is a group of sockets on one address and port, for links of several
// processes. A packet arrives at the socket whose index is its destination QPN
// modulo their number. All are open until Close, so that the kernel's numbering
// stays. A slot that is idle drops what comes. Calls for different slots may
// run beside each other.
type Slots struct {
	at    netip.AddrPort // with zone
	scope uint32
	cfg   Config
	iface int
	mtu   ownMTU
	socks []socket
	n     int // sockets in all
}

// OpenSlots binds n sockets, a power of two, all of them idle. It fails if
// another process has the port. The error is an *OpenError.
func OpenSlots(addr netip.Addr, c Config, n int) (*Slots, error) {
	at, scope, err := c.place(addr)
	if err != nil {
		return nil, err
	}
	if n < 2 || n&(n-1) != 0 {
		return nil, &OpenError{Addr: at, Op: "open slots", Err: fmt.Errorf("%d: the number must be a power of two, and 2 at least", n)}
	}
	s := &Slots{at: at, scope: scope, cfg: c, n: n}
	s.mtu.init(at.Addr())
	s.iface = groupInterface(&s.mtu, scope)
	for i := range n {
		if err := s.add(i); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// add binds the next socket. Only these share the port: the first one binds it
// alone, so that this fails if another process has it.
func (s *Slots) add(i int) error {
	c := s.cfg
	c.ReusePort = i > 0
	fd, op, err := bind(s.at, s.scope, &c, func(fd int) error { return s.idle(fd) })
	if err != nil {
		e := &OpenError{Addr: s.at, Op: op, Err: err}
		if i == 0 {
			e.Hint = bindHint(s.at, err)
		}
		return e
	}
	sock, err := newSocket(fd, s.at)
	if err != nil {
		return &OpenError{Addr: s.at, Op: "register", Err: err}
	}
	s.socks = append(s.socks, sock)
	switch i {
	case 0:
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	case 1: // with the second one they are a group
		l := Link{socket: s.socks[0], local: s.at}
		err = l.steer(s.n)
	}
	if err != nil {
		return &OpenError{Addr: s.at, Op: "share the port", Err: err}
	}
	return nil
}

// Len returns the number of slots.
func (s *Slots) Len() int { return len(s.socks) }

// Local returns the address, with its zone if it is link-local, and the port.
func (s *Slots) Local() netip.AddrPort { return s.at }

// LinkMTU returns the MTU of the interface that has the address, read now.
func (s *Slots) LinkMTU() int { return s.mtu.read(s.interfaceMTU) }

func (s *Slots) interfaceMTU(index int) (mtu int, ok bool) {
	return interfaceMTU(s.socks[0].raw, index)
}

// Namespace identifies the network namespace of the sockets, see
// Link.Namespace.
func (s *Slots) Namespace() uint64 { return s.socks[0].namespace() }

// Scope returns the index of the interface that a link-local address is of,
// and else 0.
func (s *Slots) Scope() uint32 { return s.scope }

// idle has a socket drop all that comes, and keeps no memory for it. The filter
// is what counts: a packet that is dropped by it is dropped at once.
//
// The kernel asks one socket of the group whether to coalesce packets that come
// by an interface, before it knows their slot: any of them, by the addresses
// (reuseport_select_sock without a packet; seen with Linux 6.18). So idle ones
// want that too, or else those in use would get each packet by itself.
func (s *Slots) idle(fd int) error {
	err := sockfilter.Attach(fd, bpf.RetConstant{Val: 0})
	if !s.cfg.DisableGRO {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1) // Linux 5.0
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0) // the least that there is
	return err
}

// Idle has slot i drop what comes, and what has come.
func (s *Slots) Idle(i int) error {
	return s.control(i, func(fd int) error {
		err := s.idle(fd)
		drain(fd)
		return err
	})
}

// drainMost is more than any receive buffer holds.
const drainMost = 1 << 20

// drain takes what lies in a socket. With the filter in place nothing comes
// after it.
func drain(fd int) {
	var none [1]byte
	for range drainMost {
		_, _, err := unix.Recvfrom(fd, none[:], unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		if errors.Is(err, unix.EAGAIN) {
			return
		}
	}
}

// Use has slot i take what comes, into buffers of the sizes asked for. What its
// last user has changed is as it was.
func (s *Slots) Use(i, recvBuffer, sendBuffer int) error {
	return s.control(i, func(fd int) error {
		setBuffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, recvBuffer)
		setBuffer(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sendBuffer)
		err := setOptions(fd, s.at.Addr().Is4(), &s.cfg)
		sendByInterface(fd, s.at.Addr().Is4(), s.iface)
		drain(fd)
		return errors.Join(err, os.NewSyscallError("setsockopt SO_DETACH_FILTER",
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)))
	})
}

// Drops returns how many datagrams slot i has dropped: all that have come while
// it was idle, and those for which the buffer was full. It counts in 32 bits.
func (s *Slots) Drops(i int) uint64 { return s.socks[i].drops() }

// Descriptors calls f with the descriptors of the slots from first to
// first+n-1, which are valid until it returns.
func (s *Slots) Descriptors(first, n int, f func(fds []int) error) error {
	fds := make([]int, 0, n)
	var next func() error
	next = func() error {
		if len(fds) == n {
			return f(fds)
		}
		return s.control(first+len(fds), func(fd int) error {
			fds = append(fds, fd)
			return next()
		})
	}
	return next()
}

func (s *Slots) control(i int, f func(fd int) error) error {
	var err error
	if e := s.socks[i].raw.Control(func(fd uintptr) { err = f(int(fd)) }); e != nil {
		return e
	}
	return err
}

// Link makes a link of slot i, which it has in use from now on. Closing the
// link leaves the slot open.
func (s *Slots) Link(i int) (*Link, error) {
	if err := s.Use(i, s.cfg.RecvBuffer, s.cfg.SendBuffer); err != nil {
		return nil, err
	}
	return s.socks[i].adoptCopy(Adopted{Local: s.at, Scope: s.scope, LinkMTU: s.LinkMTU(), Namespace: s.Namespace()}, s.cfg)
}

// adoptCopy makes a link of a copy of a socket's descriptor.
func (s *socket) adoptCopy(a Adopted, c Config) (*Link, error) {
	dup, err := -1, error(nil)
	if e := s.raw.Control(func(fd uintptr) { dup, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", err)
	}
	links, err := Adopt([]int{dup}, a, c)
	if err != nil {
		return nil, err
	}
	return links[0], nil
}

// Duplicate makes another link of the same socket, for another sender.
// Both receive what the other one does not.
func (l *Link) Duplicate() (*Link, error) {
	a := Adopted{Local: netip.AddrPortFrom(l.addr, l.local.Port()), Scope: l.scope,
		LinkMTU: l.Capabilities().LinkMTU, Namespace: l.Namespace()}
	return l.socket.adoptCopy(a, l.groups.cfg)
}

// Close closes all slots.
func (s *Slots) Close() error {
	var errs []error
	for _, sock := range s.socks {
		errs = append(errs, sock.file.Close())
	}
	return errors.Join(errs...)
}

// Adopted describes sockets that another process has bound, and passed on.
type Adopted struct {
	Local     netip.AddrPort // with its zone
	Scope     uint32         // see Slots.Scope
	LinkMTU   int            // of its interface, where that is not visible here
	Namespace uint64         // see Slots.Namespace
}

// Adopt makes links of descriptors that Slots has handed out, for one device,
// and takes them over, also when it fails. They may be of another network
// namespace than the process's own: then the links have their own source port
// only, join no groups, and tell nothing of the interface.
func Adopt(fds []int, a Adopted, c Config) ([]*Link, error) {
	c.fill()
	c.Port = a.Local.Port()
	var links []*Link
	for i, fd := range fds {
		l, err := adopt(fd, &a, c)
		if err != nil {
			for _, l := range links {
				l.Close()
			}
			for _, fd := range fds[i+1:] {
				unix.Close(fd)
			}
			return nil, &OpenError{Addr: a.Local, Op: "adopt a socket", Err: err}
		}
		if i > 0 {
			l.others = links[0].others.join()
		}
		links = append(links, l)
	}
	return links, nil
}

// adopt makes a link of fd, and takes it over.
func adopt(fd int, a *Adopted, c Config) (*Link, error) {
	at := a.Local
	l := &Link{addr: at.Addr(), local: netip.AddrPortFrom(at.Addr().WithZone(""), at.Port()), scope: a.Scope}
	var err error
	if l.socket, err = newSocket(fd, at); err != nil {
		return nil, err
	}
	if err := l.checkBound(fd); err != nil {
		l.file.Close()
		return nil, err
	}
	l.abroad = a.Namespace != OwnNamespace() || a.Namespace == 0
	l.groups.cfg = c
	if l.abroad {
		l.mtu.fix(a.LinkMTU)
	} else {
		l.mtu.init(at.Addr())
		l.groups.iface = groupInterface(&l.mtu, a.Scope)
	}
	l.caps, l.gso = features(fd, &c, l.addr.Is4())
	l.caps.SourcePorts = !l.abroad
	l.caps.RecvBuffer, l.caps.SendBuffer = granted(fd, unix.SO_RCVBUF), granted(fd, unix.SO_SNDBUF)
	l.before = l.socket.drops()
	l.others = newSourcePorts(at, a.Scope, l.groups.iface, c)
	if err := l.waiting.init(&l.groups); err != nil {
		l.file.Close()
		return nil, err
	}
	if !l.abroad {
		l.routes.open()
	}
	l.tx.init(l)
	l.rx.init(l)
	return l, nil
}

var errOtherSocket = errors.New("the descriptor is of another socket than was said")

// checkBound checks that fd is a UDP socket that is bound to the link's place.
func (l *Link) checkBound(fd int) error {
	typ, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || typ != unix.SOCK_DGRAM {
		return errOtherSocket
	}
	sa, err := unix.Getsockname(fd)
	var at netip.AddrPort
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		at = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		at = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	if err != nil || at != l.local {
		return errOtherSocket
	}
	return nil
}

// OwnNamespace identifies the network namespace of this process, see
// Link.Namespace.
func OwnNamespace() uint64 {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	s, err := newSocket(fd, netip.AddrPort{})
	if err != nil {
		return 0
	}
	defer s.file.Close()
	return s.namespace()
}

// isAbroad reports whether the socket is of another network namespace.
func (l *Link) isAbroad() bool { return l.abroad }
