//go:build !portable

package udp

import (
	"encoding/binary"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/transport"
)

// WatchPort reads what the kernel tells of interfaces and addresses (rtnetlink)
// and passes on what is about the link's.
func (l *Link) WatchPort(changed func(transport.PortChange)) (stop func()) {
	if l.abroad {
		return func() {}
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return func() {}
	}
	groups := uint32(unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR)
	if unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}) != nil {
		unix.Close(fd)
		return func() {}
	}
	w := portWatch{addr: l.addr.Unmap().WithZone(""), changed: changed}
	if flags, ok := interfaceFlags(l.raw, l.mtu.holder); ok {
		w.index, w.down = int32(l.mtu.holder), isDown(uint32(flags))
	}
	f := os.NewFile(uintptr(fd), "rtnetlink")
	l.watch.Store(f)
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := f.Read(buf)
			switch {
			case err == nil:
				w.messages(buf[:n])
			case !isOverrun(err):
				return
			}
		}
	})
	return func() { l.watch.CompareAndSwap(f, nil); f.Close(); wg.Wait() }
}

// isOverrun reports whether the kernel has lost messages because they were not
// read in time. Others follow.
func isOverrun(err error) bool {
	pe, ok := err.(*os.PathError)
	return ok && pe.Err == syscall.ENOBUFS
}

// portWatch is what is known of a port.
type portWatch struct {
	addr    netip.Addr
	index   int32 // of its interface
	down    bool
	changed func(transport.PortChange)
}

// messages takes what the kernel tells.
func (w *portWatch) messages(b []byte) {
	all, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return
	}
	for i := range all {
		switch m := &all[i]; m.Header.Type {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			w.link(m)
		case unix.RTM_NEWADDR, unix.RTM_DELADDR:
			w.address(m)
		}
	}
}

// link takes a message about an interface: struct ifinfomsg.
func (w *portWatch) link(m *syscall.NetlinkMessage) {
	if len(m.Data) < unix.SizeofIfInfomsg || int32(binary.NativeEndian.Uint32(m.Data[4:])) != w.index {
		return
	}
	down := m.Header.Type == unix.RTM_DELLINK || isDown(binary.NativeEndian.Uint32(m.Data[8:]))
	if down == w.down {
		return
	}
	w.down = down
	if down {
		w.changed(transport.PortWentDown)
	} else {
		w.changed(transport.PortCameUp)
	}
}

// isDown reads the flags of an interface.
func isDown(flags uint32) bool { return flags&unix.IFF_UP == 0 || flags&unix.IFF_RUNNING == 0 }

// address takes a message about an address: struct ifaddrmsg. The kernel tells
// of an address that it has told of before when a lifetime changes.
func (w *portWatch) address(m *syscall.NetlinkMessage) {
	attrs, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil || len(m.Data) < unix.SizeofIfAddrmsg {
		return
	}
	var addr netip.Addr
	for _, a := range attrs {
		if got, ok := netip.AddrFromSlice(a.Value); ok && (a.Attr.Type == unix.IFA_LOCAL || a.Attr.Type == unix.IFA_ADDRESS && !addr.IsValid()) {
			addr = got
		}
	}
	if addr != w.addr {
		return
	}
	index, gone := int32(binary.NativeEndian.Uint32(m.Data[4:])), m.Header.Type == unix.RTM_DELADDR
	switch {
	case gone && index == w.index:
		w.index = 0
	case !gone && index != w.index:
		w.index = index
	default:
		return
	}
	w.changed(transport.PortAddrChanged)
}
