package hca

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// Addressing of management datagrams (IBTA 13.5.1): those of connection
// management are from queue pair 1 to queue pair 1.
const (
	managementQPN  rocev2.QPN = 1
	managementQKey uint32     = 0x80010000
)

// CanProbePort reports whether ProbePort can learn anything.
func (d *shared) CanProbePort() bool { return transport.CanProbePort(d.parts[0].link) }

// ProbePort sends a management datagram to a peer, as queue pair 1 does, but
// from another UDP port, and returns true when the peer's host says that the
// port of RoCEv2 is closed. It returns false when stop is closed. See
// transport.PortProber.
func (d *shared) ProbePort(peer netip.Addr, datagram []byte, stop <-chan struct{}) bool {
	p := rocev2.Packet{
		BTH: rocev2.BTH{Opcode: rocev2.UDSendOnly, PadCount: rocev2.PadCount(len(datagram)), PKey: rocev2.DefaultPKey,
			DestQPN: managementQPN, PSN: rocev2.PSN(d.random()) & rocev2.PSNMask},
		DETH:    rocev2.DETH{QKey: managementQKey, SrcQPN: managementQPN},
		Payload: datagram,
	}
	return transport.ProbePort(d.parts[0].link, peer, p.AppendTo(nil), stop)
}
