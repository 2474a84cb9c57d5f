// Package rdma is RDMA for programs that want to know nothing of queue pairs:
// it listens, dials, sends and receives messages, and reads and writes memory
// of the other side. It should feel like package net.
//
//	// one side
//	l, err := rdma.Listen(ctx, "192.0.2.1:7471")
//	c, err := l.Accept(ctx)
//	n, err := c.Recv(ctx, buf)
//
//	// the other side
//	c, err := rdma.Dial(ctx, "192.0.2.1:7471")
//	err = c.Send(ctx, []byte("hello"))
//
// [Conn] has messages that arrive whole and in order, of up to
// [ListenConfig.MessageSize] bytes, and Stream for bytes without bounds. A
// listener exports memory under a name ([ListenConfig.Export]); clients find it
// by [Conn.Region], and read, write and update it while the program that
// exports it does nothing. Conn.Go has any request of package verbs under way.
//
// # Costs
//
// Calls that wait do the work themselves, on their goroutine: a message passes
// no other goroutine of this package. In the steady state messages, Read, Write
// and the atomics allocate nothing. Small messages are packed into one SEND
// while others are under way. Send copies messages of up to 32 KiB; longer ones
// it sends from the caller's memory, and waits until the peer has them.
// RecvMsg and SendBuffer copy nothing.
//
// Connections of a listener share its memory, and those that are dialled with
// one device share theirs. An idle connection has no goroutine and no timer of
// its own; two goroutines serve all of them.
//
// # The end
//
// Conn.Done is closed when the connection is over, and Conn.Err says why. A
// peer that closes is noticed at once. One that falls silent is noticed by what
// it does not acknowledge: an idle connection writes 0 bytes to its peer once
// in [ListenConfig.KeepAlive]. A Client dials again after the end.
//
// A context bounds how long a call waits. A call that ends by it has done
// nothing, or its transfer is under way and goes on. Memory of the caller is
// never in use by the device when a call has returned, with the exception of
// Conn.Go, whose memory is in use until the Op is done.
//
// # Peers of other kinds
//
// Connections are made by the RDMA connection manager (package cm), so the peer
// may be a program on a kernel device or an adapter. If it knows nothing of the
// protocol below, Conn.Foreign reports true: each message is a SEND without
// immediate data, 128 receives are posted, and a sender that is faster than
// the receiver is held up by RNR NAKs. Whether it knows the protocol is seen
// from its private data.
//
// # Protocol
//
// All numbers are big-endian. The private data of REQ (after the IP header of
// RDMA CM) and REP begins with 16 bytes:
//
//	 0-3   "RMSG"
//	 4     version: 1
//	 5     flags: bit 0, this side exports regions; bit 1, it secures
//	       the connection
//	 6-7   credits: messages that the other side may send at first, not 0
//	 8-11  the longest message that this side takes, in bytes, at least 1
//	 12    length of the program's own private data, which follows at 16
//	13-15  0
//
// Each SEND has immediate data: in the 4 upper bits a kind, in the 16 lower
// bits how many credits the SEND gives back. All kinds but 2 take a credit.
//
//	0  a message
//	1  several messages, each after its length in 16 bits
//	2  no bytes, only credits. A side sends one when more than half of the
//	   credits that it has granted are to be given back; so there is one
//	   receive for it beside those that the credits stand for.
//	3  a request to the directory, with the solicited event bit
//	4  an answer of the directory, with the solicited event bit
//	5  no more messages follow
//
// A request to the directory has these bytes:
//
//	0     1: the region of this name
//	      2: the regions after this name, in the order of their bytes
//	1     0
//	2-3   a tag, which the answer repeats
//	4-    the name, at most 255 bytes; empty with 2 for the first regions
//
// and the answer, which has at most 4096 bytes:
//
//	0     that of the request
//	1     0: found; 1: there is no such region
//	      2: this client may not have it; 3: the request is not understood
//	2-3   the tag
//	4-5   how many regions follow
//	6     1: ask for those after the last one; else 0
//	7     0
//	8-    the regions:
//	        0-7    wire address of the first byte
//	        8-15   size in bytes
//	       16-19   rkey
//	       20      rights: 1 READ, 2 WRITE, 4 atomics, 8 persistence
//	       21      length of the name, which follows at 24
//	       22-23   0
//
// A WRITE of 0 bytes is a keepalive. A side ends the connection by a DREQ, or
// when the other one breaks these rules.
package rdma
