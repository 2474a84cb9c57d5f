// Package rocev2 is the wire format of RoCEv2: InfiniBand transport packets in
// UDP datagrams to port 4791.
//
// It has the base transport header and every extended transport header, the
// opcode table, 24-bit packet sequence number arithmetic, the encodings of
// acknowledgement syndromes, RNR timers and timeouts, and the invariant CRC,
// including its check by a receiver that cannot see the IPv4 Identification
// which the CRC covers.
//
// It does not do protocol: whether a packet is expected, how long its payload
// may be on a path, and what answers it is package qp's business. It has no
// sockets, clocks, locks or goroutines, and it builds neither IP nor UDP
// headers.
//
// Sections named "IBTA" are those of the InfiniBand Architecture Specification,
// Volume 1, release 1.6 or later.
package rocev2
