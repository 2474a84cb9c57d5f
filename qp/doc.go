// Package qp is the queue pair: the transport protocol of RDMA as a state
// machine without input and output.
//
// It has the state table of all services: identity, attributes, dispatch, and
// the way to ERR. The rest lives in rooms below it:
//
//	requester   requests, retries, completions; the sending half of RC,
//	            and all that an XRC initiator has
//	responder   execution and answers; the receiving half of RC, and all
//	            that an XRC target has
//	datagram    both halves of UC, and of UD with the management queue pair
//	conn        what both halves share
//	queue       rings of requests and receives, the reorder buffer
//	cc          congestion control
//
// It does not have sockets, clocks, goroutines or locks: the caller, called the
// driver here, brings packets and the time, and takes packets, completions and
// events away.
//
//	             PostSend, PostRecv, Modify
//	                        │
//	HandlePacket ──► ┌──────┴──────┐ ──► Poll
//	HandleTimeout ─► │     QP      │ ──► Deadline, PollEvent, PollFetch
//	                 └──────┬──────┘
//	            CompletionSink, RecvSource
//
// A driver hands over what has arrived, then calls Poll until nothing is left
// or the link is full, then arms a timer with Deadline. It does the same after
// posting, after Modify and after HandleTimeout. Several packets handed over
// before polling are answered with one acknowledgement.
//
// # The end of a connection
//
// A half that ends the connection sets the state to ERR and says why
// (conn.Conn.Fail). Before the call returns, the queue pair has both halves
// flush their queues: first what is left of the sends completes, then the
// receive in hand, then the other receives (IBTA 10.3.1.7).
//
// # Congestion
//
// The queue pair answers a packet with data that the network has marked with a
// congestion notification (CNP). A CNP shrinks the window of the queue pair
// that it is for, or its rate (Config.Congestion), see [QP.HandlePacket]. The
// traffic class of the address vector says whether packets are ECN-capable, so
// that the network marks them instead of dropping them. Linux rxe neither sends
// CNPs nor obeys them.
//
// # Packets after a gap
//
// The reorder buffer of a native peer (SetReorder) holds packets that the order
// of PSNs has not checked yet, and that may be forged. So it is bounded: at
// most 128 PSNs past the expected packet or the last one in the buffer, at most
// PoolConfig.Reach past the expected one, for 64 ms or four round trips (at
// most 512 ms; requests 256 ms while no round trip is known), in an equal share
// of the pool. Two packets of one PSN that differ are both dropped.
//
// # What it does not do
//
// RD; path migration; congestion control of the unreliable services.
//
// The IBTA sections are those of the InfiniBand Architecture Specification,
// Volume 1, release 1.6 or later.
package qp
