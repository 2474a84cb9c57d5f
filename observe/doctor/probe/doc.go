// Package probe sends UDP datagrams that no receiver takes for RoCEv2, and
// tells what routers and hosts on the way say of them by ICMP: that is how the
// way to a peer, and what fits through it, are found without privileges (as
// tracepath does). Nothing is answered by RoCEv2: a peer whose port 4791 is
// open is silent.
//
// Only Linux shows a program the ICMP errors of its datagrams. On other systems
// Open fails.
package probe

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Kind says what came of a probe.
type Kind uint8

// What may come of a probe.
const (
	Silent      Kind = iota // nothing came back in time
	TimeUp                  // a router dropped it because its hop limit was used up
	Refused                 // it reached the host, where the port is closed
	TooBig                  // it does not fit what comes next; Answer.MTU would
	Unreachable             // there is no way to the host, or it does not answer ARP or ND
	Prohibited              // a firewall says that it may not pass
	Echoed                  // the host sent it back
)

var kindNames = [...]string{
	Silent: "no answer", TimeUp: "hop limit used up", Refused: "port unreachable", TooBig: "packet too big",
	Unreachable: "host unreachable", Prohibited: "prohibited by a firewall", Echoed: "echoed",
}

// String says it in words.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// MarshalText writes the words.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Answer is what came of a probe.
type Answer struct {
	Kind  Kind
	From  netip.Addr    // the source of the answer; invalid if none
	Local bool          // this host itself said it: nothing was sent
	MTU   int           // of TooBig: bytes of an IP packet that would fit; 0 if not told
	RTT   time.Duration // until the answer came
}

// Reached reports whether the probe has come to the peer itself.
func (a Answer) Reached(peer netip.Addr) bool {
	return a.Kind == Echoed || a.Kind == Refused && a.From == peer.WithZone("")
}

// ErrUnsupported says that this system does not show ICMP errors to programs.
var ErrUnsupported = errors.New("this system does not show programs the ICMP errors of their datagrams; Linux does")

// Bytes of the headers in front of a datagram.
const (
	udpHeader  = 8
	ipv4Header = 20
	ipv6Header = 40
	icmpHeader = 8
)

// MinSize is the least size of a probe as an IP packet, for a peer.
func MinSize(peer netip.Addr) int { return ipHeader(peer) + udpHeader + markLen }

func ipHeader(peer netip.Addr) int {
	if peer.Is4() {
		return ipv4Header
	}
	return ipv6Header
}

// markLen is the size of the mark at the beginning of a probe. Every receiver
// of RoCEv2 drops such a packet: the opcode is none (0xff), nor is the version
// (0xf), nor the queue pair (0), and it has no ICRC.
//
//	0: 0xff, 1: 0x0f, 2-3: 0, 4-7: 0, 8-11: sequence number
const markLen = 16

func mark(b []byte, seq uint32) {
	clear(b)
	b[0], b[1] = 0xff, 0x0f
	b[8], b[9], b[10], b[11] = byte(seq>>24), byte(seq>>16), byte(seq>>8), byte(seq)
}

// seqOf returns the sequence number of a probe, and false for what is none. An
// ICMP message quotes at least 8 bytes after the IP header, which is not
// enough.
func seqOf(b []byte) (uint32, bool) {
	if len(b) < 12 || b[0] != 0xff || b[1] != 0x0f {
		return 0, false
	}
	return uint32(b[8])<<24 | uint32(b[9])<<16 | uint32(b[10])<<8 | uint32(b[11]), true
}
