// Package qp is the queue pair: the transport protocol of RDMA as a state machine without input and output.
//
// It has the state table of the services RC, UC and UD, and the whole protocol of RC, reliable connections: requester,
// responder, acknowledgements, retries, completions (IBTA 9.7). It does not have sockets, clocks, goroutines or locks:
// the caller, called the driver here, brings packets and the time, and takes packets, completions and events away.
//
//	             PostSend, PostRecv, Modify
//	                        │
//	HandlePacket ──► ┌──────┴──────┐ ──► PollTransmit
//	HandleTimeout ─► │  QP  (RC)   │ ──► PollTimeout, PollEvent
//	                 └──────┬──────┘
//	            CompletionSink, RecvSource
//
// A driver hands over what has arrived, then calls PollTransmit until it returns 0 or the link is full, then arms a timer
// with PollTimeout. It does the same after posting, after Modify and after HandleTimeout. Several packets handed over
// before polling are answered with one acknowledgement.
//
// Packets are pulled and made when they are asked for: a packet is a function of its request and its PSN, so nothing that
// was sent is kept, and a retransmission reads the memory of the request again. For the same reason READ responses read
// memory when they are sent: a WRITE or atomic that the peer sent behind a READ without a fence may or may not be seen
// by it (IBTA 10.8.3.3).
//
// # Recovery
//
// The requester goes back to the oldest unacknowledged PSN on a timeout, on a sequence NAK, and when a response shows that
// an earlier READ or atomic response was lost; a READ is resumed at the first missing byte.
//
// The responder sends a sequence NAK once per gap, and once more each time it sees that the peer went back and the expected
// packet is missing again: the packet that first showed the gap, or an earlier one, comes once more. That is at most one NAK
// for a packet received, two between two of our own kind, and without progress at most five times in a millisecond. The
// requester takes a few such NAKs without progress; Linux sends and takes one, and a second loss of the same packet costs a
// timeout. The requester sees by the same sign that a READ response asked for again was lost again.
//
// READs and atomics beyond Attr.MaxDestRdAtomic are put off: a sequence NAK goes behind the answers that wait, so that there
// is room when they come again. If that makes the responder forget a READ that the peer asks for once more, it is executed
// again; an atomic cannot be, and is refused.
//
// Between two of our own kind, see KeepPackets, both directions keep what arrives behind a gap, within bounds, and go on
// from there when the gap is closed: to the peer that looks as if the network had delayed packets. So the requester sends
// only a few packets again from the missing one on, or asks for the missing part of a READ, and goes on where it was. It
// still hears of one gap at a time: the wire has no selective acknowledgement.
//
// What is kept has not been checked by the order of PSNs, and may be forged. So it is bounded: at most 128 PSNs past the
// expected packet or the last one that is kept and no more than a peer has in flight, for some tens of milliseconds, in an
// equal share of the store; and two packets of one PSN that differ are both dropped.
//
// A loss halves the send window, once for all losses in it; silence halves it in any case. Single losses that are repaired
// as above do not: only many in one window do, or packets lost in a row, as when a buffer overflows.
//
// # Memory that must be fetched
//
// What needs a page that is not in memory (memreg.PagedMemory) is put off and the rest goes on; the driver calls PollFetch,
// fetches elsewhere, and calls Fetched. A request that meets such a page gets no answer until it is there, and then a
// sequence NAK: not receiver not ready, which not every operation may get, and which a peer may take for an error at once.
//
// # Congestion
//
// A packet with data that the driver has seen marked by the network is answered with a notification, CNP; a CNP makes the
// window of the queue pair that it is for smaller, see HandleMarked. Whether packets are ECN-capable, so that they are marked
// and not dropped, is a matter of the address vector's traffic class. Linux rxe does neither, and drops CNPs silently.
//
// # Timeouts
//
// Timeouts cost one of RetryCount, and so does the first restart without progress; 7 is seven here, while Linux takes it as
// without end. Progress reloads the count, whatever packet brings it. A Timeout of 0, none, gets GuardTimeout instead, so
// that a vanished peer is an error at last.
//
// # What it does not do
//
// The datagrams of UC and UD, XRC, RD; memory windows and invalidation of local keys; FLUSH and ATOMIC_WRITE; path
// migration; congestion control by rates (DCQCN), the window adapts instead; selective acknowledgement.
//
// The IBTA sections are those of the InfiniBand Architecture Specification, Volume 1, release 1.6 or later.
package qp
