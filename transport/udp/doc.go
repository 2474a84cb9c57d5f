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
// On other systems the link works in a limited way, one datagram per system
// call: IPv6 is complete except for the traffic class and datagrams with
// checksum zero; IPv4 reaches only peers that do not know the Identification
// either, that is, this package, since the kernel picks one that the ICRC does
// not match.
//
// The link is bound to one unicast address. It does not receive multicast, does
// not choose a source port per path, and does not follow a change of the
// interface's MTU.
package udp
