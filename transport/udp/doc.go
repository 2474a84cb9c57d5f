// Package udp is the transport link over an ordinary UDP socket: no root, no
// kernel module.
//
// The ICRC covers the IPv4 header with its Identification, which a UDP socket
// neither sets nor shows. An unconnected Linux socket with path MTU discovery
// set to PROBE sends the don't-fragment flag with Identification 0, and with
// segmentation offload segment i of a buffer has Identification i, so what is
// sent can be sealed. What is received from another kind of sender is checked
// by the linear method, in 16 of the 32 bits; the link marks such packets
// transport.ICRCWeak. IPv6 has no such field and is checked in full.
//
// On Linux, packets move in batches: sendmmsg with UDP_SEGMENT, recvmmsg with
// UDP_GRO, each used only if the kernel has it, with a fall-back to plain
// datagrams when a device refuses segmentation.
//
// A path may ask for a source port, by which networks and adapters spread flows.
// On Linux each such port is a socket more, up to MaxSourcePorts for a link or a
// group of links, that sends as the link's own does and drops what it receives:
// RoCEv2 answers to port 4791, never to the source port. A port that somebody
// else has is an error, at the latest when a packet is sent; OpenSourcePort tells
// before. Packets of one batch that follow each other and leave by the same port
// share a system call.
//
// On other systems the link works in a limited way, one datagram per system
// call: IPv6 is complete except for the traffic class and datagrams with
// checksum zero; IPv4 reaches only peers that do not know the Identification
// either, that is, this package, since the kernel picks one that the ICRC does
// not match. The only source port is the link's own; a path that asks for
// another is refused.
//
// The link is bound to one unicast address. It does not receive multicast, does
// not choose source ports by itself, and does not follow a change of the
// interface's MTU.
package udp
