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
// # The way of a request
//
//  1. post.go: Post checks a request and puts it into the ring of the stream.
//  2. send.go: a turn, which is one Poll, asks what may go now: a packet that
//     is lost (again.go, repair.go), or the one at the cursor. A local
//     operation is carried out there (local.go).
//  3. cut.go: the stream cuts the packet off the request.
//  4. send.go: mayStart asks window, depth, fences and credits.
//  5. encode.go: the encoder writes the packet.
//  6. stream.go: the cursor moves on. recovery.go: the timers run.
//  7. response.go: a response is taken in its turn, or kept after a gap; nak.go
//     has negative ones.
//  8. complete.go: what it acknowledges is completed.
//  9. recovery.go: with progress the timers start anew, the round trip is
//     measured (rtt.go), and the controller may let more go. What a NAK, a gap
//     or silence shows to be lost (lost.go, gaps.go) goes again with step 2.
//
// # Parts
//
// A Requester composes three parts: stream (the requests in order, and the
// cursor that cuts them into packets), encoder, and recovery (what is sent
// again, and when).
//
// In recovery are plain structs, each of one concern: retry (the local ACK
// timer) and rnr, rtt (round trips, and when to probe), repair (a run that goes
// again), and gaps (what is kept and missing after gaps: gaps.go, again.go,
// late.go; it takes no memory before there is one).
//
// The seams, which a test of internal/layering holds: a part reads the fields
// of another, and calls what it offers, 15 methods at most for each side. It
// writes none.
//
//	stream    takes cut, sent, acknowledgeBefore, answered, rewind; it completes
//	          requests. It knows no time and nothing above it.
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
