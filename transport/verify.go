package transport

import (
	"encoding/binary"
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
)

// peerSlots is the number of sources that a Verifier remembers. A source that
// was evicted costs one NewFlow.
const peerSlots = 256

// Verifier checks the ICRC of received packets. It remembers the addressing of
// recent sources in constant space. It is not safe for concurrent use.
type Verifier struct {
	local netip.AddrPort
	last  *Peer // that was asked for; nil: none was
	peers [peerSlots]Peer
}

// Peer is one source of packets.
type Peer struct {
	src     netip.AddrPort
	flow    rocev2.Flow
	foreign bool // the last packets had an Identification of the kernel's choosing
}

// NewVerifier makes a verifier for packets to local.
func NewVerifier(local netip.AddrPort) *Verifier { return &Verifier{local: local} }

// Peer returns the entry for packets from src, valid until the next call.
func (v *Verifier) Peer(src netip.AddrPort) *Peer {
	if v.last != nil && v.last.src == src {
		return v.last
	}
	a := src.Addr().As16()
	h := binary.LittleEndian.Uint64(a[8:])*0x9e3779b97f4a7c15 ^ binary.LittleEndian.Uint64(a[:8])
	h = (h ^ uint64(src.Port())) * 0x9e3779b97f4a7c15
	p := &v.peers[h>>56%peerSlots]
	if p.src != src {
		*p = Peer{src: src, flow: rocev2.NewFlow(src.Addr(), v.local.Addr(), src.Port(), v.local.Port())}
	}
	v.last = p
	return p
}

// CheckPlaced is Check for packet i of a coalesced buffer whose BTH, payload
// and ICRC lie apart. It reports whether all 32 bits are right for the
// Identification that this software sends.
func (p *Peer) CheckPlaced(i int, bth, payload []byte, icrc uint32) bool {
	return p.flow.ICRCOf(uint16(i), bth, payload) == icrc
}

// Check checks b (BTH to ICRC), packet i of a coalesced buffer, or 0. This
// software sends Identification 0, or i in a segmented run. Any other
// Identification is a foreign sender's and is recovered from the ICRC, which
// leaves a 16-bit check. Check returns the Identification too. A packet that is
// sealed has its ICRC inside.
func (p *Peer) Check(i int, b []byte) (ICRCState, uint16) {
	id := uint16(i)
	if IsSealed(b) {
		return ICRCSealed, id
	}
	if !p.foreign && p.flow.Verify(id, b) {
		return ICRCVerified, id
	}
	id, ok := p.flow.Recover(b)
	if !ok {
		return ICRCBad, 0
	}
	if id == 0 || int(id) == i || p.src.Addr().Is6() {
		p.foreign = false
		return ICRCVerified, id
	}
	p.foreign = true
	return ICRCWeak, id
}
