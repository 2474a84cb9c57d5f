package doctor

import (
	"context"
	"net/netip"
)

// Config says what to look at. The zero value looks at this host.
type Config struct {
	Host   *Host      // nil means this one
	Device netip.Addr // only this address of it; the zero Addr means all

	OnFinding func(Finding) // if set, is called for each finding as it comes
}

// Run looks at a host for what stops people, and returns what it has found. The
// error is that it could not look at all.
func Run(ctx context.Context, c Config) ([]Finding, error) {
	if c.Host == nil {
		h, err := ThisHost()
		if err != nil {
			return nil, err
		}
		c.Host = h
	}
	d := &checks{Host: c.Host, report: report{found: c.OnFinding}}
	if err := d.choose(c.Device); err != nil {
		return nil, err
	}
	for _, check := range []func(){
		d.addresses, d.ports, d.mtus, d.kernel, d.firewall, d.counters, d.buffers, d.offloads,
		d.unprivileged, d.ephemeral, d.ipv6, d.reversePath, d.capabilities, d.memory,
	} {
		if ctx.Err() != nil {
			return d.list, context.Cause(ctx)
		}
		check()
	}
	return d.list, nil
}

// checks are those of one host.
type checks struct {
	*Host
	report
	links   []Link
	secured bool // all packets of one of them are sealed
}

// choose takes the addresses to look at: those of loopback only where they are
// asked for, or where there are no others.
func (d *checks) choose(device netip.Addr) error {
	if device.IsValid() {
		l, err := d.LinkOf(device)
		d.links = []Link{l}
		return err
	}
	all := d.Links()
	for _, l := range all {
		if !l.Addr.IsLoopback() {
			d.links = append(d.links, l)
		}
	}
	if d.links == nil {
		d.links = all
	}
	return nil
}

// linux reports whether a check of Linux can be made, and says so if not.
func (d *checks) linux(check, what string) bool {
	if d.OS != "linux" {
		d.notChecked(check, "", "%s: not looked at on %s", what, d.OS)
	}
	return d.OS == "linux"
}

// interfaces returns the interfaces of the links.
func (d *checks) interfaces() (list []Interface) {
	for _, ifi := range d.Interfaces {
		for _, l := range d.links {
			if l.Interface == ifi.Name {
				list = append(list, ifi)
				break
			}
		}
	}
	return list
}
