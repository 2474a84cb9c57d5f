package transport

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
)

// PlacingLink is a link that can receive the payloads of packets where they
// belong, without a buffer in between. Wrappers do not pass that on: they see
// packets as a whole.
type PlacingLink interface {
	Link
	// SetPlacer has the link ask p from now on. It is called before the
	// first Recv.
	SetPlacer(p Placer)
}

// Placer knows where the payloads of packets belong.
type Placer interface {
	// Place is asked during Recv, before a coalesced buffer is received
	// whose first packet has the header h. There are up to n packets from
	// src, each with size bytes of payload after its BTH. It returns where
	// the payloads of the next packets of that connection go, one after the
	// other: those of at most n packets, or nothing if it does not know.
	// That memory is written before anything but h has been looked at. So
	// it is memory that the message under way writes in any case.
	Place(src netip.AddrPort, h *[rocev2.BTHLen]byte, size, n int) []byte

	// Placed ends the use of what Place has returned. Until then nothing
	// else happens to the connections, so it does not take long. It is
	// called before Place is asked again, and before Recv returns.
	Placed()
}

// PlacedRun is packets whose payloads lie where Place has said. Their headers
// are BTHs that differ in the PSN alone, one more with each packet, and their
// ICRCs are right.
type PlacedRun struct {
	First   RxPacket // Data is the BTH of the first packet
	N       int
	Payload []byte // of all packets, of the same length each
}

// AppendPlaced adds a run. All runs of a batch come before its packets.
func (b *RxBatch) AppendPlaced(r PlacedRun) {
	b.placed = append(b.placed, r)
	b.placedLen += r.N
}

// Placed returns the runs that were placed. They come before Packets.
func (b *RxBatch) Placed() []PlacedRun { return b.placed }
