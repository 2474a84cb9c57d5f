//go:build linux

package uverbs

import (
	"fmt"
	"net/netip"
	"strconv"
	"sync"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/uverbs/quota"
)

// Device is a device as programs see it.
type Device struct {
	Name  string // of the InfiniBand device, rxe_eth0
	Index int    // of the file of devices: 0 is uverbs0
	Dev   *hca.Device
	GUID  uint64

	// Native, if not nil, reports whether a queue pair of a peer is known
	// to be this software (ib.AddressVector.Native). A program that
	// connects one of its own to it cannot say so. The client waits for it,
	// and no other does.
	Native func(peer netip.Addr, qpn rocev2.QPN) bool

	// OwnHandle, if not nil, reports whether an address handle of a process
	// that has no global route leads to the device itself. librdmacm makes
	// such a one for a socket of datagrams, which so fail over Linux on
	// RoCE.
	OwnHandle func(pid int) bool

	roomOnce sync.Once
	bells    *bellRoom
}

// FileName returns the name of the file of devices.
func (d *Device) FileName() string { return "uverbs" + strconv.Itoa(d.Index) }

// Space is the memory of a program (uverbs/foreign).
type Space interface {
	// Region returns n bytes at an address, for reading or also for
	// writing. It fails if they are not accessible. If the memory is an
	// io.Closer it is closed when nobody uses it any more.
	Region(addr, n uint64, write bool) (memreg.Memory, error)
}

// Peer is a program that has opened a device, or has come by such a file.
type Peer struct {
	PID      int
	UID, GID uint32
	Memory   Space

	// Raw, if not nil, reports whether it may send what the manager of a
	// peer takes for its like (CAP_NET_RAW).
	Raw func() bool
}

// Quota is how much a client may have. A field of 0 stands for a default.
type Quota struct {
	Objects hca.Quota

	RingBytes int // of all queues; default 256 MiB
	CQEntries int // of all completion queues; default 2^21
	Channels  int // completion channels; default 1024

	// Account is of whom the client is, and pays for it; nil: nobody does.
	Account *quota.Account
}

// The defaults. On a machine with 32 bits of address the memory of queues must
// fit several times.
const (
	defaultRingBytes = (64 << 20) << (strconv.IntSize / 64 * 2)
	defaultCQEntries = 1 << 21
	defaultChannels  = 1024

	maxRingBytes = (256 << 20) << (strconv.IntSize / 64 * 2) // whose double has 32 bits
)

// withDefaults returns the quota with numbers everywhere.
func (q Quota) withDefaults() Quota {
	def := func(n *int, d int) {
		if *n == 0 {
			*n = d
		}
	}
	def(&q.RingBytes, defaultRingBytes)
	def(&q.CQEntries, defaultCQEntries)
	def(&q.Channels, defaultChannels)
	q.RingBytes = min(max(q.RingBytes, 0), maxRingBytes)
	return q
}

// limit returns how many objects of a kind there are numbers for.
func limit(quota, most int) int {
	if quota == 0 {
		return most
	}
	return min(max(quota, 0), most)
}

// Open makes a client: an open file of the device.
func (d *Device) Open(p Peer, q Quota) (*Client, error) {
	q = q.withDefaults()
	ctx, err := d.Dev.NewContext(hca.WithQuota(q.Objects))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Name, err)
	}
	c, err := newClient(d, p, q, ctx)
	if err != nil {
		ctx.Close()
		return nil, fmt.Errorf("%s: %w", d.Name, err)
	}
	return c, nil
}
