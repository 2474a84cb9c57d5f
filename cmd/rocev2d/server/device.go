package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/transport/owner"
	"github.com/gosoftroce/rocev2/transport/tap"
	"github.com/gosoftroce/rocev2/verbs"
)

// device is an open device with what it is recorded by.
type device struct {
	cfg  config.Device
	dev  *verbs.Device
	taps []*tap.Switch
	port *owner.Owner // nil: the port is not shared
	keys *hostKeys    // nil: packets go in clear
	past *pastLeases
	log  *slog.Logger // nil: nothing is logged
	wg   sync.WaitGroup

	seals bool // connections of clients are secured
}

// config is how the device is opened, at UDP port 4791 if port is 0.
func (d *device) config(port uint16, loopback bool) verbs.Config {
	c := d.cfg
	return verbs.Config{
		Port: port, Congestion: c.Congestion, Strict: c.Strict, Profile: c.Profile, Found: d.found,
		Shards: c.Shards, RecvBuffer: c.RecvBuffer, SendBuffer: c.SendBuffer, SharedMemory: c.Shm, Sealing: d.seals, Loopback: loopback,
		Wrap: func(l verbs.Link) verbs.Link {
			s := tap.NewSwitch(l)
			d.taps = append(d.taps, s)
			return s
		},
	}
}

// found logs what a program of the daemon, or a peer of it, does that adapters
// punish. What other programs do they tell themselves.
func (d *device) found(f verbs.Finding) {
	if d.log == nil {
		return
	}
	d.log.Warn("adapters punish that (docs/strict.md)", "device", d.cfg.Address, "rule", f.Rule, "finding", f.String())
}

// ownDevice owns port 4791 of an address and opens a device there. Where the
// configuration has no programs, and the system cannot share a port, it has it
// for itself.
func ownDevice(c config.Device, seals bool, share owner.Config, r *records) (*device, error) {
	addr, err := verbs.ResolveAddr(c.Address)
	if err != nil {
		return nil, err
	}
	d := &device{cfg: c, seals: seals, past: newPastLeases(), log: share.Log}
	share.Addr, share.Ended, share.Past = addr, d.past.add, d.past.Leases
	if c.Guard.Given() {
		share.Slots = owner.DefaultSlots()
		if d.keys, err = openKeys(&c.Guard, addr, share.Slots, share.Log, r.notAgreed(addr)); err != nil {
			return nil, err
		}
		share.Secured = d.keys.secured()
	}
	if d.port, err = owner.Listen(share); err != nil {
		d.port = nil
		if d.keys != nil {
			return nil, errors.Join(err, d.keys.close())
		}
		if share.Dir != "" || errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
		var e error
		if d.dev, e = verbs.OpenAddr(addr, d.config(0, false)); e != nil {
			return nil, e
		}
		share.Log.Warn("no other process shares the port of the device", "device", addr, "error", err)
		return d, nil
	}
	if d.dev, err = verbs.OpenLease(d.port.Socket(), d.config(0, share.Dir != "")); err != nil {
		err = errors.Join(err, d.port.Close())
		if d.keys != nil {
			err = errors.Join(err, d.keys.close())
		}
		return nil, err
	}
	return d, nil
}

// openDevice opens a device at UDP port 4791 if port is 0.
func openDevice(c config.Device, port uint16) (*device, error) {
	addr, err := verbs.ResolveAddr(c.Address)
	if err != nil {
		return nil, err
	}
	d := &device{cfg: c}
	d.dev, err = verbs.OpenAddr(addr, d.config(port, false))
	return d, err
}

func (d *device) addr() string { return d.dev.Addr().String() }

// watch tells of the asynchronous events of the device until it is closed.
func (d *device) watch(r *records) {
	d.wg.Go(func() {
		err := d.dev.HandleEvents(context.Background(), func(e verbs.AsyncEvent) {
			m := eventMeanings[e.Event]
			if m.quiet {
				r.log.Debug("event", "device", d.addr(), "event", e.String())
				return
			}
			p := Problem{Device: d.addr(), Source: "event", What: e.String(), Meaning: m.meaning, Remedy: m.remedy}
			if e.QP != nil {
				if peer := e.QP.Query().AV.DGID; peer.IsValid() {
					p.Peer = peer.String()
				}
			}
			r.problem(p)
		})
		if err != nil && !errors.Is(err, verbs.ErrClosed) {
			r.log.Error("events", "device", d.addr(), "error", err)
		}
	})
}

func (d *device) close() error {
	err := d.dev.Close()
	if d.port != nil {
		err = errors.Join(err, d.port.Close())
	}
	if d.keys != nil {
		err = errors.Join(err, d.keys.close())
	}
	d.wg.Wait()
	return err
}

// firstAddress returns the address that a daemon takes which is not told one:
// the first one, IPv4 rather than IPv6, that is not of the loopback interface;
// 127.0.0.1 where there is none.
func firstAddress() string {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return "127.0.0.1"
	}
	best := netip.MustParseAddr("127.0.0.1")
	for _, a := range list {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, _ := netip.AddrFromSlice(n.IP)
		ip = ip.Unmap()
		if !ip.IsValid() || ip.IsLoopback() || ip.IsLinkLocalUnicast() {
			continue
		}
		if ip.Is4() {
			return ip.String()
		}
		if best.Is4() {
			best = ip
		}
	}
	return best.String()
}

// work returns how many queue pairs are connected, and how many of them have
// something to send.
func (d *device) work() (connected, busy int) {
	for _, number := range d.dev.QPNs() {
		q := d.dev.QP(number)
		if q == nil || q.Type() == verbs.GSI {
			continue
		}
		if st := q.State(); st != verbs.StateRTR && st != verbs.StateRTS {
			continue
		}
		connected++
		if q.Flow().Queued > 0 {
			busy++
		}
	}
	return connected, busy
}

// programsHost has unmodified programs find devices.
type programsHost interface {
	io.Closer
	add(d *device) error
	Ready() error // all devices are there
}
