package programs

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"unicode"

	"github.com/gosoftroce/rocev2/cm"
	"github.com/gosoftroce/rocev2/ucma"
	"github.com/gosoftroce/rocev2/uverbs"
	"github.com/gosoftroce/rocev2/verbs"
)

// device is one that the host has opened for programs.
type device struct {
	*verbs.Device
	index int
	name  string
}

// OpenDevice opens a device on a local address, and has programs find it and
// the connection manager.
func (h *Host) OpenDevice(addr netip.Addr, c verbs.Config) error {
	dev, err := verbs.OpenAddr(addr, c)
	if err != nil {
		return err
	}
	if err := h.AddDevice(dev); err != nil {
		return errors.Join(err, dev.Close())
	}
	return nil
}

// AddDevice has programs find a device and the connection manager. The host
// closes the device.
func (h *Host) AddDevice(dev *verbs.Device) error {
	attr, port := dev.Query(), dev.QueryPort()
	h.mu.Lock()
	first := len(h.devices) == 0
	index := h.tree.free(len(h.devices))
	name := deviceName(port.Interface, h.taken)
	h.mu.Unlock()
	a := Attributes{Name: name, Index: index, NodeGUID: attr.NodeGUID, Interface: port.Interface,
		Active: port.State == verbs.PortActive, Speed: port.Speed, GIDTable: uverbs.GIDTable}
	for _, g := range dev.GIDs() {
		a.GIDs = append(a.GIDs, GID{g.Bytes(), g.Type})
	}
	served := &uverbs.Device{Name: name, Index: index, Dev: verbs.HCA(dev), GUID: attr.NodeGUID,
		Native:    func(peer netip.Addr, qpn verbs.QPN) bool { return h.native(dev, peer, qpn) },
		OwnHandle: func(pid int) bool { return ucma.Datagrams(pid, dev.Addr()) }}
	if err := h.AddVerbs(a, verbsOpener{h, served}); err != nil {
		return err
	}
	if first {
		if err := h.AddCM(cmOpener{h}); err != nil {
			return err
		}
	}
	// A peer that asks for what nobody listens to is told so, as by a
	// kernel. Otherwise it would ask for a minute.
	if err := cm.Start(dev); err != nil {
		return err
	}
	h.mu.Lock()
	h.devices = append(h.devices, &device{dev, index, name})
	h.mu.Unlock()
	ucma.DevicesChanged()
	return nil
}

// native reports whether a queue pair of a peer is known to be this software:
// it is on a device of the host, the connection manager has learned so, or the
// peer says so when it is asked.
func (h *Host) native(dev *verbs.Device, peer netip.Addr, qpn verbs.QPN) bool {
	return h.has(peer) || ucma.Known(dev.Addr(), peer, qpn) || cm.Native(dev, peer)
}

// has reports whether a device of the host has the address.
func (h *Host) has(addr netip.Addr) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.devices, func(d *device) bool { return d.Addr().Unmap() == addr.Unmap() })
}

// taken reports whether a device has the name.
func (h *Host) taken(name string) bool { return h.tree.has("sys/class/infiniband/" + name) }

// deviceName names a device after its interface. libibverbs finds the driver by
// the first letters.
func deviceName(netdev string, taken func(string) bool) string {
	base := "rxe_" + netdev
	if netdev == "" {
		base = "rxe"
	}
	gap := ""
	if last := rune(base[len(base)-1]); unicode.IsDigit(last) {
		if !taken(base) {
			return base // rxe_eth0, then rxe_eth0_1
		}
		gap = "_"
	}
	for i := 0; ; i++ {
		if name := base + gap + strconv.Itoa(i); (gap == "" || i > 0) && !taken(name) {
			return name // rxe_lo0, then rxe_lo1
		}
	}
}

// cmDevices are the devices that the connection manager knows.
func (h *Host) cmDevices() (list []ucma.Device) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.devices {
		list = append(list, ucma.Device{Dev: d.Device, Index: d.index})
	}
	return list
}
