// Package rocev2 is the wire format of RoCEv2: InfiniBand transport packets in
// UDP datagrams to port 4791. It has the base transport header and every
// extended transport header, the opcode table, the arithmetic of 24-bit packet
// sequence numbers, the encodings of acknowledgement syndromes, RNR timers and
// timeouts, and the invariant CRC. A receiver that cannot see the IPv4
// Identification, which the CRC covers, can check it too. It has no protocol:
// package qp knows whether a packet is expected, how long its payload may be on
// a path, and what answers it. It has no sockets, clocks, locks or goroutines,
// and it builds neither IP nor UDP headers.
//
// Sections named "IBTA" are those of the InfiniBand Architecture Specification,
// Volume 1, release 1.6 or later.
package rocev2
