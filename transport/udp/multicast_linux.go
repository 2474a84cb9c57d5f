//go:build !portable

package udp

import (
	"errors"
	"maps"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/sockfilter"
	"github.com/gosoftroce/rocev2/transport"
)

// groups are the sockets by which a link receives what is sent to multicast
// groups, since its own socket, which is bound to its address, does not. There
// is one for each group, bound to it, so that the destination of what arrives
// is known. They share their address with the sockets of other links and
// programs (SO_REUSEADDR): each has its copy of a datagram.
type groups struct {
	any   atomic.Bool // a group is joined
	watch socket      // an epoll instance over all sockets; made with the first group
	cfg   Config
	iface int // index of the interface on which the link takes part; 0 = there is none

	// Under mu it is replaced, never changed. So Recv reads it without the
	// lock.
	byFD atomic.Pointer[map[int32]*groupSocket]

	mu     sync.Mutex
	joined map[netip.Addr]*groupSocket
	lost   uint64 // datagrams that sockets had dropped that are closed
	closed bool

	events [recvHeaders]unix.EpollEvent // of Recv
	ready  int
	turn   int // event that Recv begins with, modulo ready
	look   func(fd uintptr)
}

// groupSocket receives what is sent to one group.
type groupSocket struct {
	socket
	addr     netip.Addr
	fd       int32
	verifier *transport.Verifier
}

// JoinGroup has the link receive what is sent to group on the interface that
// has the link's address, and the network bring it there (IGMP, MLD). It fails
// with an *OpenError, when MaxGroups are joined for one.
func (l *Link) JoinGroup(group netip.Addr) error {
	at, err := l.checkGroup(group)
	if err != nil {
		return err
	}
	g := &l.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return transport.ErrClosed
	}
	if err := mayJoin(at, g.joined[at.Addr()] != nil, len(g.joined), g.iface); err != nil {
		return err
	}
	s, op, err := g.open(at)
	if err != nil {
		return &OpenError{Addr: at, Op: "join group: " + op, Err: err, Hint: bindHint(at, err)}
	}
	if err := g.add(s); err != nil {
		return &OpenError{Addr: at, Op: "join group: watch", Err: errors.Join(err, s.file.Close())}
	}
	l.Wake() // Wait watches it from now on
	return nil
}

// LeaveGroup ends what JoinGroup has begun.
func (l *Link) LeaveGroup(group netip.Addr) error {
	addr, err := transport.CheckGroup(l.addr, group)
	g := &l.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	switch s := g.joined[addr]; {
	case g.closed:
		return transport.ErrClosed
	case err == nil && s == nil:
		err = transport.ErrGroupNotJoined
	case err == nil:
		return g.remove(s)
	}
	return leaveError(group, err)
}

var _ transport.GroupJoiner = (*Link)(nil)

// groupInterface returns the index of the interface by which a link sends to
// groups and receives: the one that has its address, else the one that the
// routes have for groups; 0 if there is none.
func groupInterface(m *ownMTU, scope uint32) int {
	if m.iface != 0 {
		return m.iface
	}
	any := netip.AddrFrom4([4]byte{239, 255, 255, 255})
	if m.addr.Is6() {
		any = netip.AddrFrom16([16]byte{0: 0xff, 1: 0x0e, 15: 1})
	}
	r, _ := findRoute(netip.Addr{}, any, scope)
	return r.iface
}

// open makes a socket that is bound to a group and a member of it. On an error,
// op is what failed.
func (g *groups) open(at netip.AddrPort) (s *groupSocket, op string, err error) {
	c := g.cfg
	c.ReusePort = false // each socket shall have a copy
	v4, iface := at.Addr().Is4(), g.iface
	fd, op, err := bind(at, uint32(iface), &c, func(fd int) error { return onlyMember(fd, v4, iface) })
	if err != nil {
		return nil, op, err
	}
	setBuffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, min(c.RecvBuffer, groupRecvBuffer))
	if !c.DisableGRO {
		// It is quicker with it, but goes without.
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	}
	if v4 {
		err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP,
			&unix.IPMreqn{Multiaddr: at.Addr().As4(), Ifindex: int32(iface)})
	} else {
		err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP,
			&unix.IPv6Mreq{Multiaddr: at.Addr().As16(), Interface: uint32(iface)})
	}
	if err != nil {
		unix.Close(fd)
		return nil, "become a member", os.NewSyscallError("setsockopt", err)
	}
	s = &groupSocket{addr: at.Addr(), fd: int32(fd), verifier: transport.NewVerifier(at)}
	if s.socket, err = newSocket(fd, at); err != nil {
		return nil, "register", err
	}
	return s, "", nil
}

// onlyMember has the socket of a group receive what comes by its own interface:
// that others of this host are members on another one is not its business.
func onlyMember(fd int, v4 bool, iface int) error {
	level, all := unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL
	if v4 {
		level, all = unix.IPPROTO_IP, unix.IP_MULTICAST_ALL
	}
	// The filter does the same where Linux is older than the option.
	_ = unix.SetsockoptInt(fd, level, all, 0)
	err := sockfilter.Attach(fd,
		bpf.LoadExtension{Num: bpf.ExtInterfaceIndex},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(iface), SkipFalse: 1},
		bpf.RetConstant{Val: sockfilter.All},
		bpf.RetConstant{Val: 0})
	if err != nil {
		return err
	}
	return os.NewSyscallError("setsockopt SO_REUSEADDR", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
}

// sendByInterface has the socket send to groups by one interface, as far as
// hosts send unicast, and not only to the next router. Copies come back to the
// members on this host by default.
func sendByInterface(fd int, v4 bool, iface int) {
	// What is refused concerns multicast alone, which goes by the routes
	// then, and as far as the system likes.
	if v4 {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, hopLimit)
		if iface != 0 {
			_ = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(iface)})
		}
		return
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, hopLimit)
	if iface != 0 {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, iface)
	}
}

// add has Wait and Recv watch s.
func (g *groups) add(s *groupSocket) error {
	if g.watch.file == nil {
		fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			return os.NewSyscallError("epoll_create1", err)
		}
		if g.watch, err = newSocket(fd, netip.AddrPort{}); err != nil {
			return err
		}
		g.look = g.poll
		g.joined = make(map[netip.Addr]*groupSocket)
		g.byFD.Store(&map[int32]*groupSocket{})
	}
	before := g.byFD.Load()
	m := maps.Clone(*before)
	m[s.fd] = s
	g.byFD.Store(&m) // before there are events
	if err := g.control(unix.EPOLL_CTL_ADD, s); err != nil {
		g.byFD.Store(before)
		return err
	}
	g.joined[s.addr] = s
	g.any.Store(true)
	return nil
}

// remove closes s.
func (g *groups) remove(s *groupSocket) error {
	delete(g.joined, s.addr)
	g.any.Store(len(g.joined) > 0)
	m := maps.Clone(*g.byFD.Load())
	delete(m, s.fd)
	g.byFD.Store(&m)
	g.lost += s.drops()
	return errors.Join(g.control(unix.EPOLL_CTL_DEL, s), s.file.Close())
}

func (g *groups) control(op int, s *groupSocket) error {
	var err error
	e := g.watch.raw.Control(func(fd uintptr) {
		err = unix.EpollCtl(int(fd), op, int(s.fd), &unix.EpollEvent{Events: unix.EPOLLIN, Fd: s.fd})
	})
	return errors.Join(e, os.NewSyscallError("epoll_ctl", err))
}

// close leaves all groups.
func (g *groups) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	var errs []error
	for _, s := range g.joined {
		errs = append(errs, g.remove(s))
	}
	if g.watch.file != nil {
		errs = append(errs, g.watch.file.Close())
	}
	return errors.Join(errs...)
}

// drops returns what the sockets of groups have dropped.
func (g *groups) drops() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.lost
	for _, s := range g.joined {
		n += s.drops()
	}
	return n
}

// poll finds the sockets that have something.
func (g *groups) poll(fd uintptr) {
	n, err := unix.EpollWait(int(fd), g.events[:], 0)
	if err != nil {
		n = 0
	}
	g.ready = n
}

// receiveGroups takes what has come to groups, and reports whether there was
// anything. If so, there may be more, there or at the link's own socket.
func (r *receiver) receiveGroups() bool {
	g := &r.l.groups
	g.ready = 0
	if g.watch.raw.Control(g.look) != nil || g.ready == 0 {
		return false
	}
	byFD := *g.byFD.Load()
	g.turn = (g.turn + 1) % recvHeaders // the order stays, and the first one may fill the call
	for i := range g.ready {
		s := byFD[g.events[(g.turn+i)%g.ready].Fd]
		if s == nil || r.got == r.n {
			continue // it was left meanwhile, or waits for the next call
		}
		first := r.got
		if s.raw.Control(r.readMore) != nil {
			continue
		}
		for k := first; k < r.got; k++ {
			r.slots[k].group = s
		}
	}
	r.left = true
	return true
}
