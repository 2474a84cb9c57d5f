package verbs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/gosoftroce/rocev2/internal/counters"
	"github.com/gosoftroce/rocev2/transport/guard"
	"github.com/gosoftroce/rocev2/transport/keychannel"
	"github.com/gosoftroce/rocev2/transport/owner"
)

// Secure says how all packets of a device are secured, whatever queue pairs
// they are of: encrypted and authenticated (AES-GCM), with keys on which the
// two hosts agree by TLS 1.3 over TCP. The peer's device is secured, too: what
// comes in clear is dropped, and nothing leaves in clear. To a program a host
// with which there are no keys is one that is not there. TLS is required.
//
// The process has the port of the address for itself, or owns it
// (Config.Owner): then the devices of other processes that share it are secured
// without knowing. The path MTU is that for packets that are 40 bytes longer.
// Multicast is refused. Packets of the device to its own address do not leave
// the host; they are in clear where the system drops those that a stranger has
// sent in its name: over IPv4 on Linux.
type Secure struct {
	// TLS has the certificate of this host, and as RootCAs the authorities
	// that have issued those of peers, whichever side connects. With the
	// configuration of secure.PSK both have a secret in place of
	// certificates.
	TLS *tls.Config

	// Port is the TCP port where hosts agree on keys, the same on all. 0:
	// 4791.
	Port uint16

	// AnyAddress has a certificate be good for any host. Else that of a
	// peer must have its address among its subject alternative names.
	AnyAddress bool

	// Allow decides about a peer that TLS has authenticated, and returns
	// its name for logs. Nil allows all.
	Allow func(peer netip.Addr, state *tls.ConnectionState) (name string, err error)

	// Failed, if it is not nil, is told why there are no keys with a peer,
	// whichever side has connected: work requests to it end with
	// StatusRetryExcErr, which does not say. Strangers that connect can
	// cause many calls, from several goroutines; it must not wait, nor
	// close the device. Explain of package rdma/secure says what an error
	// of TLS means.
	Failed func(peer netip.Addr, err error)
}

// guarded is how all packets of a device are secured that has its port.
type guarded struct {
	keys  *keychannel.Channel
	table *guard.Table
	file  *os.File // nil: no other process has the table
}

// secure begins to agree with peers of an address on keys. shared says that
// other processes use them, too.
func (c *Config) secure(addr netip.Addr, slots int, shared bool) (*guarded, error) {
	if c.SharedMemory {
		return nil, errors.New("fields Secure and SharedMemory: what passes through memory is not sealed; take one of them out")
	}
	g := &guarded{table: guard.NewTable()}
	if shared {
		var err error
		if g.table, g.file, err = guard.NewSharedTable(); err != nil {
			return nil, err
		}
	}
	s := c.Secure
	k := keychannel.Config{Addr: addr, Port: s.Port, TLS: s.TLS, AnyAddress: s.AnyAddress, Allow: s.Allow, Table: g.table, Slots: slots}
	if s.Failed != nil {
		k.Failed = func(f keychannel.Failure) { s.Failed(f.Peer, f.Err) }
	}
	var err error
	g.keys, err = keychannel.Open(k)
	if err != nil {
		g.close()
		return nil, fmt.Errorf("field Secure: %w", err)
	}
	return g, nil
}

// wrap has links of the port seal, one for each slot.
func (g *guarded) wrap(links []Link) {
	for i, l := range links {
		links[i] = guard.New(l, guard.Config{Table: g.table, Slot: uint8(i), Want: g.keys.Want})
	}
}

// secured is what an owner of the port needs.
func (g *guarded) secured() *owner.Secured {
	return &owner.Secured{Table: g.table, File: g.file, Want: g.keys.Want}
}

// errSharedSecured is why a part of a secured port has no shared memory.
var errSharedSecured = errors.New("field SharedMemory: the owner of the port has all its packets sealed (Config.Secure, or [device.secure] of rocev2d), and what passes through memory is not; take the field out (shm=1 of a device file, --shm of rocev2)")

// guardsOf returns the links that seal all packets, nil if none does.
func guardsOf(links []Link) (list []*guard.Link) {
	for _, l := range links {
		if g, ok := l.(*guard.Link); ok {
			list = append(list, g)
		}
	}
	return list
}

// GuardCounters returns what the device has sealed, opened and dropped as all
// its packets are secured: by Config.Secure, or by the owner of its port, also
// without that the program knows. A device that owns its port (Config.Owner)
// counts the management datagrams of all programs, too. secured is false, and
// the counters are 0, where they are not.
func (d *Device) GuardCounters() (sum GuardCounters, secured bool) {
	for _, l := range d.guards {
		c := l.Counters()
		counters.Add(&sum, &c)
	}
	if d.has.port != nil {
		if c, secured := d.has.port.GuardCounters(); secured {
			counters.Add(&sum, &c)
		}
	}
	return sum, len(d.guards) > 0
}

// KeyHosts returns the hosts with which there are keys, where all packets of
// the device are secured, as GuardCounters says: packets to others wait for a
// handshake first.
func (d *Device) KeyHosts() []netip.Addr {
	if len(d.guards) == 0 {
		return nil
	}
	return d.guards[0].Hosts()
}

func (g *guarded) close() {
	if g == nil {
		return
	}
	if g.keys != nil {
		_ = g.keys.Close()
	}
	if g.file != nil {
		g.file.Close()
	}
}
