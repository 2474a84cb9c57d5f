// Package lease is the leaseholder's side of a port that several processes
// share. [Open] finds the owner of an address (package owner), and gets copies
// of some of its sockets, each as a [Link] with the part of the QPNs that
// arrives there.
//
// Ordinary packets pass through these sockets alone. Management
// datagrams, which are for queue pair 1 and come from queue pair 1, pass the
// owner, in packets of the same port: an [Envelope] is a RoCEv2 packet with an
// opcode that IBTA 9.2.1 leaves to manufacturers. It has the lease's token, the
// address that the datagram came from or is for, and the datagram. So a
// leaseholder waits for its socket only. Recv unwraps what the owner has sent,
// and Send wraps what is for it.
//
// Messages on the Unix socket are JSON, one in each datagram of a
// SOCK_SEQPACKET socket, of at most [MaxMessage] bytes: see [Message].
package lease
