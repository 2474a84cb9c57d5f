//go:build !portable

package leases

import (
	"math/rand/v2"
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/transport/lease"
)

// gsiKey is the Q_Key of queue pair 1.
const gsiKey = 0x80010000

// forger makes packets, BTH to pad, with random numbers.
type forger struct{ rng *rand.Rand }

// anyone is another address each time.
func (f *forger) anyone() netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(f.rng.UintN(150)) + 1, byte(f.rng.Uint32()), byte(f.rng.Uint32())})
}

// envelope is one with a guessed token, for any slot, and with anything in it.
func (f *forger) envelope() []byte {
	e := lease.Envelope{To: rocev2.QPN(f.rng.UintN(256)), Addr: strange, Port: rocev2.UDPPort, HopLimit: 64}
	for i := range e.Token {
		e.Token[i] = byte(f.rng.Uint32())
	}
	if f.rng.UintN(2) == 0 {
		e.To = 1
	}
	inner := f.mad()
	if f.rng.UintN(2) == 0 {
		inner = f.send(rocev2.QPN(f.rng.Uint32N(1 << 24)))
	}
	b := make([]byte, rocev2.MaxPacketLen)
	b = b[:e.Put(b, inner)]
	if f.rng.UintN(4) == 0 {
		b = b[:rocev2.BTHLen+f.rng.IntN(len(b)-rocev2.BTHLen)] // too short
	}
	return b
}

// send is a SEND to a queue pair.
func (f *forger) send(to rocev2.QPN) []byte {
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly, PKey: rocev2.DefaultPKey, DestQPN: to,
		PSN: rocev2.PSN(f.rng.Uint32()) & rocev2.PSNMask, AckReq: true}, Payload: make([]byte, 64)}
	return p.AppendTo(nil)
}

// mad is a management datagram with what a peer may say, about connections
// that there are not.
func (f *forger) mad() []byte {
	b := make([]byte, 0, mad.Len)
	local, remote := mad.CommID(f.rng.Uint32()), mad.CommID(f.rng.Uint32())
	switch f.rng.UintN(5) {
	case 0:
		b = (&mad.DREQ{TransactionID: f.rng.Uint64(), LocalID: local, RemoteID: remote, RemoteQPN: rocev2.QPN(f.rng.Uint32N(1 << 24))}).AppendTo(b)
	case 1:
		b = (&mad.RTU{TransactionID: f.rng.Uint64(), LocalID: local, RemoteID: remote}).AppendTo(b)
	case 2:
		b = b[:mad.Len]
		for i := range b {
			b[i] = byte(f.rng.Uint32())
		}
	default:
		b = f.req(b)
	}
	return f.datagram(b)
}

// req asks for a connection to a service that there may be.
func (f *forger) req(b []byte) []byte {
	ip := mad.IPHeader{SourcePort: uint16(1 + f.rng.UintN(65535)), Source: strange, Destination: owner}
	m := mad.REQ{TransactionID: f.rng.Uint64(), LocalID: mad.CommID(f.rng.Uint32()), LocalGUID: mad.GUID(f.rng.Uint64()),
		LocalQPN: rocev2.QPN(2 + f.rng.UintN(1<<23)), ServiceID: mad.ServiceID(0x1060000 + f.rng.Uint64N(1<<16)), ResponderResources: 16, InitiatorDepth: 16,
		RemoteResponseTimeout: 20, LocalResponseTimeout: 20, RetryCount: 7, RNRRetryCount: 7,
		PKey: rocev2.DefaultPKey, PathMTU: 3, MaxRetries: 15,
		Primary: mad.Path{LocalGID: strange, RemoteGID: owner, HopLimit: 64, AckTimeout: 14}, Private: ip.AppendTo(nil)}
	return m.AppendTo(b)
}

// datagram is one to queue pair 1.
func (f *forger) datagram(payload []byte) []byte {
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.UDSendOnly, PKey: rocev2.DefaultPKey, DestQPN: rocev2.GSIQPN,
		PSN: rocev2.PSN(f.rng.Uint32()) & rocev2.PSNMask}, DETH: rocev2.DETH{QKey: gsiKey, SrcQPN: rocev2.GSIQPN}, Payload: payload}
	return p.AppendTo(nil)
}
