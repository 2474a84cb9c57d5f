package ifaddrs

import (
	"encoding/binary"
	"net/netip"
	"syscall"
)

// fill asks the kernel once for the addresses of all interfaces (RTM_GETADDR).
// Package net asks for all of them for each interface.
func fill(all []Interface) {
	answer, err := syscall.NetlinkRIB(syscall.RTM_GETADDR, syscall.AF_UNSPEC)
	if err != nil {
		return
	}
	messages, err := syscall.ParseNetlinkMessage(answer)
	if err != nil {
		return
	}
	for i := range messages {
		m := &messages[i]
		if m.Header.Type != syscall.RTM_NEWADDR || len(m.Data) < syscall.SizeofIfAddrmsg {
			continue
		}
		addr, ok := addrIn(m)
		index := int(binary.NativeEndian.Uint32(m.Data[4:])) // of struct ifaddrmsg
		for j := range all {
			if ifi := &all[j]; ok && ifi.Index == index {
				ifi.Addrs = append(ifi.Addrs, addrOf(&ifi.Interface, addr, int(m.Data[1])))
			}
		}
	}
}

// addrIn returns the address in a message. On a link to one peer IFA_ADDRESS is
// the peer's.
func addrIn(m *syscall.NetlinkMessage) (addr netip.Addr, ok bool) {
	attrs, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return addr, false
	}
	for _, a := range attrs {
		got, valid := netip.AddrFromSlice(a.Value)
		if valid && (a.Attr.Type == syscall.IFA_LOCAL || a.Attr.Type == syscall.IFA_ADDRESS && !ok) {
			addr, ok = got, true
		}
	}
	return addr, ok
}
