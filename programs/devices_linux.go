package programs

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"unicode"

	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/transport/owner"
	"github.com/gosoftroce/rocev2/verbs"
)

// device is one that programs find.
type device struct {
	*verbs.Device
	port  *owner.Owner // of its port; nil: another process owns that
	name  string
	own   bool // the host closes both
	ended *Ended

	// Guarded by Host.refreshing:
	tx, rx uint64            // packets that the files tell
	files  map[string]string // that were written last
}

// Port is what a host knows of a device and those who use it.
type Port struct {
	Name   string // rxe_eth0
	Addr   netip.Addr
	Leases []owner.Lease // with that of this process
	Ended  []owner.Lease // the last ones that have ended, the oldest first
	Past   owner.Lease   // the sums of all that have ended: counters alone
	Lack   error         // why leases are not known: another process owns the port, and does not tell
}

// OpenDevice owns the port of a local address, opens a device there, and has
// programs find both.
func (h *Host) OpenDevice(addr netip.Addr, c verbs.Config) error {
	ended := new(Ended)
	port, err := owner.Listen(owner.Config{Addr: addr, Dir: h.PortDir(), Allow: h.allows, Quota: h.config.Quota, Ended: ended.Add, Past: ended.Leases, Changed: h.leasesChange, Log: h.log})
	if err != nil {
		return err
	}
	dev, err := verbs.OpenLease(port.Socket(), c)
	if err != nil {
		return errors.Join(err, port.Close())
	}
	return h.adopt(&device{Device: dev, port: port, ended: ended}, c)
}

var errNoOwner = fmt.Errorf("the port of the address has no owner: %w", os.ErrNotExist)

// ShareDevice opens a device on a local address whose port another process
// owns. The leases of programs are then of that owner, which this host asks for
// those of its user.
func (h *Host) ShareDevice(addr netip.Addr, c verbs.Config) error {
	dev, err := verbs.OpenAddr(addr, c)
	if err != nil {
		return err
	}
	if _, ok := verbs.HCA(dev).Port().Lease(); !ok {
		// It has ended, and programs could not share what is open now.
		return errors.Join(errNoOwner, dev.Close())
	}
	return h.adopt(&device{Device: dev, ended: new(Ended)}, c)
}

// adopt has programs find a device that the host closes.
func (h *Host) adopt(d *device, c verbs.Config) error {
	if err := h.AddDevice(d.Device, d.port, d.ended, c); err != nil {
		return errors.Join(err, d.close())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.devices[len(h.devices)-1].own = true
	return nil
}

// close closes the device, and its port.
func (d *device) close() error {
	err := d.Close()
	if d.port != nil {
		err = errors.Join(err, d.port.Close())
	}
	return err
}

// AddDevice has programs find a device and the connection manager. The owner of
// the port has its socket in PortDir. c is how the device was opened: programs
// open theirs alike.
func (h *Host) AddDevice(dev *verbs.Device, port *owner.Owner, ended *Ended, c verbs.Config) error {
	at := dev.QueryPort()
	h.mu.Lock()
	defer h.mu.Unlock()
	index := h.tree.free(len(h.devices))
	a := attributes{name: deviceName(at.Interface, h.taken), index: index, addr: dev.Addr(), guid: dev.Query().NodeGUID, port: at, gids: dev.GIDs(), opens: c}
	if err := h.tree.device(a); err != nil {
		return err
	}
	if len(h.devices) == 0 {
		if err := h.tree.manager(); err != nil {
			return err
		}
	}
	// A peer that asks for a service with no listener is told so, as by a
	// kernel. Otherwise it would ask for a minute.
	if err := cm.Start(dev); err != nil {
		return err
	}
	h.devices = append(h.devices, &device{Device: dev, port: port, name: a.name, ended: ended})
	h.watch(a.name)
	return nil
}

// Ports returns the devices and their leases.
func (h *Host) Ports() (list []Port) {
	h.mu.Lock()
	devices := h.devices
	h.mu.Unlock()
	for _, d := range devices {
		list = append(list, d.describe())
	}
	return list
}

func (d *device) describe() Port {
	p := Port{Name: d.name, Addr: d.Addr()}
	// The leases come first: one that ends meanwhile is in both rather
	// than in none.
	if d.port == nil {
		p.Leases, p.Ended, p.Lack = owner.List(p.Addr, 0)
		for i := range p.Ended {
			p.Past.Add(&p.Ended[i])
		}
		return p
	}
	p.Leases = d.port.Leases()
	p.Ended, p.Past = d.ended.Latest()
	return p
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
