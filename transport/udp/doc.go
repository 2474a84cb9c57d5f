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
// datagrams towards a destination whose device refuses segmentation.
//
// A path may ask for a source port, by which networks and adapters spread
// flows. On Linux each such port is a socket more, up to MaxSourcePorts for a
// link or a group of links, that sends as the link's own does and drops what it
// receives: RoCEv2 answers to port 4791, never to the source port. A port that
// somebody else has is an error, at the latest when a packet is sent;
// OpenSourcePort tells before. Packets of one batch that follow each other and
// leave by the same port share a system call.
//
// On other systems the link works in a limited way, one datagram per system
// call: IPv6 is complete except for the traffic class and datagrams with
// checksum zero. Over IPv4, macOS and FreeBSD give unfragmented packets the
// Identification 0 that they are sealed for; Windows and OpenBSD choose another
// one, so that only peers accept them that do not see it, that is, this
// package. The only source port is the link's own; a path that asks for another
// is refused. The build tag portable has this link on Linux, for tests.
//
// The MTU of the interface is read at Open and by ReadLinkMTU, on Linux
// together with that of the way to a peer: the interface that packets leave by
// and what its route was given. What ICMP says of a path further on does not
// count, for anybody can send it: packets that are too long for a router are
// lost. One that is too long for the interface is transport.ErrTooLong.
//
// The link is bound to one unicast address. It does not receive multicast and
// does not choose source ports by itself.
package udp
