package hca

import "github.com/gosoftroce/rocev2/transport"

// Port is the UDP port of a device, which it may share with devices of other
// processes.
type Port struct{ link transport.Link }

// Port returns the port of the device.
func (d *Device) Port() Port { return Port{d.shards[0].link} }

// Lease returns the part of the port that the device has, and false if it has
// all of it.
func (p Port) Lease() (transport.Lease, bool) { return transport.LeaseOf(p.link) }

// ReserveService has management datagrams that ask for a service come to the
// device: see transport.Leased.
func (p Port) ReserveService(id, mask uint64) error {
	return transport.ReserveService(p.link, id, mask)
}

// ReleaseService takes back what ReserveService has done.
func (p Port) ReleaseService(id, mask uint64) { transport.ReleaseService(p.link, id, mask) }
