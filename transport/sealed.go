package transport

import "github.com/gosoftroce/rocev2/rocev2"

const (
	// SealedOverhead is by how much a sealed packet is longer than what is
	// in it: the UDP header of that, the PSP header and the integrity
	// check value (package rocev2/psp).
	SealedOverhead = 8 + 16 + 16
	// MaxSealedLen is enough for any sealed packet.
	MaxSealedLen = rocev2.MaxPacketLen + SealedOverhead
)

// IsSealed reports whether the payload of a UDP datagram begins as a PSP
// packet with a UDP header in it does. No RoCEv2 packet does: the second byte
// of a BTH ends with the version of the transport header, which is 0.
func IsSealed(data []byte) bool {
	const (
		udp     = 17
		noExtra = 1 // of the header's length
	)
	return len(data) > 1 && data[0] == udp && data[1] == noExtra
}
