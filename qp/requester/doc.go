// Package requester is the sending half of a reliable connection (RC), and an
// XRC initiator: it numbers and sends requests, takes responses, notices
// losses, and completes work requests in order (IBTA 9.7.2 to 9.7.3 and 9.7.5.2
// to 9.7.7).
//
// It does not execute requests of the peer, which package responder does, and
// neither knows the other: what both need is in package conn. It does not
// decide how much may be in flight either, which package cc does.
//
// Packets are made when they are asked for: a packet is a function of its
// request and its PSN, so nothing that was sent is kept, and a retransmission
// reads the memory of the request again.
//
// A Requester composes three parts. A packet goes through the files in this
// order:
//
//	post.go      a request is checked, and pushed to the stream
//	send.go      a turn, one Poll: what may go now, new or again
//	stream       the requests in order, and     stream.go, cut.go,
//	             the cursor that cuts them       local.go, complete.go
//	             into packets
//	encoder      the packet of a request        encode.go
//	response.go  a response, on its way to       nak.go
//	             stream and recovery
//	recovery     what is sent again, and when   recovery.go, lost.go
//
// In recovery are plain structs, each of one concern: retry (the local ACK
// timer) and rnr, rtt (round trips, and when to probe), repair (a run that goes
// again), and gaps (what is kept and missing after gaps: gaps.go, again.go,
// late.go; it takes no memory before there is one).
//
// The seams, which TestParts holds: a part reads the fields of another, and
// calls what it offers, 15 methods at most for each side. It writes none.
//
//	stream    takes push, cut, sent, acknowledgeBefore, answered, rewind; it
//	          completes requests. It knows no time and nothing above it.
//	recovery  takes sent, progress, NAKs, selective acknowledgements, what
//	          came after a gap, and the time. It moves the stream back,
//	          says which packets go again (next), when it wants to be called
//	          (deadline), and tells the controller what is lost.
//	encoder   takes a request packet that the stream has cut.
//
// A turn and a response, which live for a call, have no state of their own:
// they ask one part and tell another.
//
// # Recovery
//
// The requester goes back to the oldest unacknowledged PSN on a timeout, on a
// sequence NAK, and when a response shows that an earlier READ or atomic
// response was lost; a READ is resumed at the first missing byte.
//
// It takes a few sequence NAKs for the same PSN without progress; Linux sends
// and takes one, and a second loss of the same packet costs a timeout. By the
// same sign, an earlier packet that comes once more, it sees that a READ
// response asked for again was lost again.
//
// Between two native peers both directions buffer what arrives after a gap,
// within bounds, and go on from there when the gap is closed. So only
// what is missing is sent again, or asked for, and sending goes on where it
// was. The peer tells what it has by selective acknowledgements, see
// gaps.go; of READ responses this side knows itself. With a peer that
// sends none, one gap is known at a time, see repair.go.
//
// # Timeouts
//
// Timeouts cost one of RetryCount, and so does the first restart without
// progress; 7 is seven here, while Linux takes it as without end. Progress
// reloads the count, whatever packet brings it. A Timeout of 0, none, gets
// GuardTimeout instead, so that a vanished peer is an error at last.
//
// Before the timeout a silent native peer is probed, as RFC 8985 and RFC 9002
// have it, see qp.Config.MinProbe. To others nothing goes again before it.
package requester
