package doctor

import (
	"bytes"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/rocev2"
)

// GID is an address as the verbs have it: 16 bytes, IPv4 mapped into IPv6.
type GID [16]byte

// String writes the GID as the field's tools do: eight groups of four digits.
func (g GID) String() string {
	var s []byte
	for i := 0; i < len(g); i += 2 {
		if i > 0 {
			s = append(s, ':')
		}
		s = fmt.Appendf(s, "%02x%02x", g[i], g[i+1])
	}
	return string(s)
}

// MarshalText writes the GID for JSON.
func (g GID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// Link is an address of this host that can be a device.
type Link struct {
	Addr      netip.Addr `json:"address"`
	Interface string     `json:"interface"`
	State     string     `json:"state"`            // ACTIVE or DOWN
	Reason    string     `json:"reason,omitempty"` // why it is DOWN
	MTU       int        `json:"mtu"`              // bytes of an IP packet that the interface carries
	PathMTU   int        `json:"path_mtu"`         // the largest of RoCE that fits; 0 if none does
	Speed     int        `json:"speed_mbps"`       // Mb/s; 0 if not known
	GID       GID        `json:"gid"`

	// GIDIndex is where the GID stands in the table of a kernel's RDMA
	// device on this interface: if there is one, as it shows it, else as
	// Soft-RoCE would number it. -1 if a kernel gives it none.
	GIDIndex int    `json:"gid_index"`
	Kernel   string `json:"kernel_device,omitempty"` // the kernel's RDMA device on the interface

	Free   bool   `json:"port_free"`             // UDP port 4791 of the address can be had
	Shared bool   `json:"port_shared,omitempty"` // it has an owner that leases parts of it
	Holder string `json:"port_holder,omitempty"`
}

// Links lists every address of the host that can be a device.
func (h *Host) Links() []Link {
	var list []Link
	kernel := h.KernelDevices()
	for _, ifi := range h.Interfaces {
		for _, a := range ifi.Addrs {
			list = append(list, h.link(&ifi, a, kernel))
		}
	}
	return list
}

// LinkOf is the link of one address, which an interface need not have: all of
// 127.0.0.0/8 is of the loopback interface, although that names one address.
func (h *Host) LinkOf(addr netip.Addr) (Link, error) {
	for _, ifi := range h.Interfaces {
		if slices.Contains(ifi.Addrs, addr) || addr.IsLoopback() && ifi.Flags&net.FlagLoopback != 0 {
			return h.link(&ifi, addr, h.KernelDevices()), nil
		}
	}
	return Link{}, fmt.Errorf("no interface of this host has the address %v", addr)
}

func (h *Host) link(ifi *Interface, addr netip.Addr, kernel []KernelDevice) Link {
	l := Link{
		Addr: addr, Interface: ifi.Name, State: "ACTIVE", MTU: ifi.MTU, PathMTU: portMTU(ifi.MTU),
		Speed: h.speed(ifi), GID: addr.As16(), GIDIndex: indexOf(defaultTable(ifi), addr),
	}
	switch {
	case ifi.Flags&net.FlagUp == 0:
		l.State, l.Reason = "DOWN", "the interface is down"
	case ifi.Flags&net.FlagRunning == 0:
		l.State, l.Reason = "DOWN", "the interface has no carrier"
	}
	for _, d := range kernel {
		if d.Interface == ifi.Name {
			l.Kernel, l.GIDIndex = d.Name, d.index(l.GID)
		}
	}
	l.Free, l.Holder = h.portOf(addr)
	l.Shared = !l.Free && h.leased(addr)
	return l
}

// portMTU returns the largest path MTU, in bytes, that a port on an interface
// has; 0 if the interface carries none.
func portMTU(mtu int) int {
	m := rocev2.LargestMTU(mtu)
	if mtu < m.Bytes()+linkHeadroom {
		return 0
	}
	return m.Bytes()
}

// linkHeadroom is what rocev2.LargestMTU leaves for headers.
const linkHeadroom = 80

// speed returns Mb/s from sysfs, 0 where there is none.
func (h *Host) speed(ifi *Interface) int {
	read := func(name string) int {
		b, err := fs.ReadFile(h.Sys, path.Join("class/net", ifi.Name, name))
		if err != nil {
			return 0
		}
		n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
		return n
	}
	// The mounted sysfs may show another network namespace.
	if read("ifindex") != ifi.Index {
		return 0
	}
	return max(read("speed"), 0)
}

// defaultTable is the GID table that Soft-RoCE makes for an interface: the
// link-local address of the MAC always, then IPv4, then IPv6 addresses.
func defaultTable(ifi *Interface) []GID {
	table := []GID{macGID(ifi.HardwareAddr)}
	for _, v4 := range []bool{true, false} {
		for _, a := range ifi.Addrs {
			if g := GID(a.As16()); a.Is4() == v4 && g != table[0] {
				table = append(table, g)
			}
		}
	}
	return table
}

// macGID is the link-local GID of a MAC: its modified EUI-64 (RFC 4291,
// appendix A). An interface without one, such as lo, has a MAC of zeros.
func macGID(mac net.HardwareAddr) (g GID) {
	if len(mac) != 6 {
		mac = make(net.HardwareAddr, 6)
	}
	g[0], g[1] = 0xfe, 0x80
	copy(g[8:], mac[:3])
	g[8] ^= 2
	g[11], g[12] = 0xff, 0xfe
	copy(g[13:], mac[3:])
	return g
}

func indexOf(table []GID, addr netip.Addr) int { return slices.Index(table, GID(addr.As16())) }

// KernelDevice is an RDMA device of the kernel: an adapter, or Soft-RoCE.
type KernelDevice struct {
	Name      string
	Interface string // of port 1
	State     string // of port 1: "4: ACTIVE"
	Soft      bool   // it is Soft-RoCE
	GIDs      []KernelGID
}

// KernelGID is an entry of a kernel's GID table.
type KernelGID struct {
	Index     int
	GID       string // eight groups of four digits
	Type      string // "RoCE v2", "IB/RoCE v1"
	Interface string
}

// KernelDevices lists the kernel's RDMA devices, as sysfs shows them.
func (h *Host) KernelDevices() []KernelDevice {
	const class = "class/infiniband"
	entries, err := fs.ReadDir(h.Sys, class)
	if err != nil {
		return nil
	}
	var list []KernelDevice
	for _, e := range entries {
		port := path.Join(class, e.Name(), "ports/1")
		d := KernelDevice{Name: e.Name(), State: h.line(path.Join(port, "state"))}
		d.Soft = strings.HasPrefix(e.Name(), "rxe")
		if target, err := fs.ReadLink(h.Sys, path.Join(class, e.Name())); err == nil && strings.Contains(target, "/virtual/") {
			d.Soft = true
		}
		if strings.HasPrefix(h.line(path.Join(class, e.Name(), "node_type")), "4:") {
			d.Soft = false // an RNIC: soft iWARP is virtual too, and has no UDP port
		}
		gids, err := fs.ReadDir(h.Sys, path.Join(port, "gids"))
		if err != nil {
			gids = nil
		}
		for _, g := range gids {
			index, err := strconv.Atoi(g.Name())
			k := KernelGID{
				Index: index, GID: h.line(path.Join(port, "gids", g.Name())),
				Type: h.line(path.Join(port, "gid_attrs/types", g.Name())), Interface: h.line(path.Join(port, "gid_attrs/ndevs", g.Name())),
			}
			if err != nil || k.Interface == "" || k.GID == (GID{}).String() {
				continue // an empty entry
			}
			d.GIDs = append(d.GIDs, k)
			d.Interface = k.Interface
		}
		slices.SortFunc(d.GIDs, func(a, b KernelGID) int { return a.Index - b.Index })
		list = append(list, d)
	}
	return list
}

// index returns where the GID stands as one of RoCE v2, or -1.
func (d *KernelDevice) index(g GID) int {
	for _, k := range d.GIDs {
		if k.GID == g.String() && strings.EqualFold(k.Type, "RoCE v2") {
			return k.Index
		}
	}
	return -1
}

// line reads a file of one line; "" if that cannot be read.
func (h *Host) line(name string) string {
	b, err := fs.ReadFile(h.Sys, name)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
}
