//go:build linux

package uverbs

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/gosoftroce/rocev2/hca"
)

// portNumber is the number of the only port.
const portNumber = 1

// Device is a device as programs see it.
type Device struct {
	Name string // of the InfiniBand device, rxe_eth0
	Dev  *hca.Device
	GUID uint64

	// Native, if not nil, reports whether a peer is known to be this
	// software (ib.AddressVector.Native). A program that connects a queue
	// pair to it cannot say so. The client waits for it, and no other does.
	Native func(peer netip.Addr) bool

	// OwnHandle, if not nil, reports whether an address handle that has no
	// global route leads to the device itself. librdmacm makes such a one
	// for a socket of datagrams, which so fail over Linux on RoCE.
	OwnHandle func() bool

	// Requests, if not nil, counts the send requests of all clients.
	Requests *Requests

	// Rings is how many bytes all queues of a client have together; 0 is
	// for 256 MiB, 64 MiB where addresses have 32 bits.
	Rings int
}

// The memory of queues. On a machine with 32 bits of address it must fit
// several times.
const (
	defaultRings = (64 << 20) << (strconv.IntSize / 64 * 2)
	maxRings     = (256 << 20) << (strconv.IntSize / 64 * 2) // whose double has 32 bits
)

// Open makes a client: an open file of the device.
func (d *Device) Open() (*Client, error) {
	ctx, err := d.Dev.NewContext()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Name, err)
	}
	c, err := newClient(d, ctx)
	if err != nil {
		ctx.Close()
		return nil, fmt.Errorf("%s: %w", d.Name, err)
	}
	return c, nil
}
