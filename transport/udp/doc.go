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
// datagrams towards a destination whose device refuses segmentation. A path may
// ask for a source port, by which networks and adapters spread flows. On Linux
// each such port is one more socket, up to MaxSourcePorts for a link or a group
// of links. It sends like the link's own socket and drops what it receives:
// RoCEv2 answers to port 4791, never to the source port. If another process has
// a port, that is an error of OpenSourcePort, or else of Send. Packets of one
// batch that follow each other and leave by the same port share a system call.
// On other systems the link is limited, with one datagram per system call. It
// has no goroutine: Recv and Send call the system, and Wait blocks in poll(2),
// on Windows for an event of Winsock. A source port is one more socket there,
// too. What comes to it fills its small buffer. IPv6 is complete except for
// datagrams with checksum zero (RFC 6936), and on Windows for the traffic
// class. Over IPv4, macOS and FreeBSD tell traffic classes of what arrives;
// Windows and OpenBSD do not, and Windows sends none. Over IPv4, macOS and
// FreeBSD give unfragmented packets the Identification 0 that they are sealed
// for. Windows and OpenBSD choose another one, so that only peers that do not
// see it accept them: those that run this package. sendmsg_x and recvmsg_x of
// macOS, which move several datagrams, are in no public header, and are not
// used. Nor is the segmentation offload of Windows. On OpenBSD a datagram that
// arrives costs an allocation, and over IPv4 the system has no don't-fragment
// flag: what is too long is fragmented. macOS and the BSDs refuse a buffer that
// is above their limit (kern.ipc.maxsockbuf). The link asks for less then, and
// tells what it has got. Nor do they wait for room in the queue of an
// interface: then Send pauses, and gives up after a while.
//
// The build tag portable has this link on Linux, for tests. Open and
// ReadLinkMTU read the MTU of the interface. On Linux, ReadLinkMTU also reads
// that of the way to a peer: of the interface by which packets leave, and of
// the route. What ICMP says of the path further on does not count, because any
// host can send that: packets that are too long for a router are lost. For one
// that is too long for the interface the error is transport.ErrTooLong.
//
// The link's socket is bound to one unicast address. On Linux each multicast
// group that the link joins is one more socket, bound to the group, up to
// MaxGroups. The membership is on the interface that has the link's address,
// and datagrams to groups leave by that interface, whatever the routes say. A
// copy of them comes back to every member on this host, the sender included.
// Any user can do that over IPv4 on lo; Linux carries no IPv6 multicast there.
// An interface that is removed takes its memberships with it. On other systems
// it is the same, as far as golang.org/x/net reaches: the interface must have
// the link's address. Windows does not bind sockets to groups: what comes to
// the port for another address is taken for the group's, and its ICRC is wrong.
//
// The link does not choose source ports by itself.
package udp
