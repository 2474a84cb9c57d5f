// Package responder is the receiving half of a reliable connection (RC), and an
// XRC target: it checks and executes the requests of the peer in PSN order, and
// answers them (IBTA 9.7.4, 9.7.5 and A14).
//
// It knows nothing of the requests of its own side, which package requester
// sends, and neither knows the other: what both need is in package conn. Where
// receives come from, and where they complete, it does not decide either: a
// queue.RecvSource hands them over with their protection domain and their
// completion sink.
//
// READ responses read memory when they are sent: a WRITE or atomic that the
// peer sent after a READ without a fence may or may not be seen by it (IBTA
// 10.8.3.3).
//
// # The way of a request
//
//  1. request.go: HandleRequest compares the PSN with the expected one.
//  2. gap.go: after a gap the request is kept, or dropped, and the peer is
//     asked for what is missing.
//  3. duplicate.go: what was executed before is answered again.
//  4. execute.go: the executor checks rights, receive, length and key, and
//     executes a SEND or WRITE; remote.go has READs, atomics and FLUSHes, and
//     xrc.go the receive queue that a request of XRC names.
//  5. answers.go: the expected PSN moves on, and an answer is put into the
//     queue of responses.go: an acknowledgement, or, in fatal.go, the NAK that
//     ends the connection.
//  6. request.go: what was kept after the gap follows.
//  7. responder.go: the driver asks what is owed (Owes), and has it written
//     (Poll), at once or later.
//  8. transmit.go: the transmitter writes an answer, a READ's with the data as
//     it is then; fetch.go waits for pages that are not there.
//
// # Parts
//
// Each part changes its own state alone. Responder has the order in which they
// are asked.
//
//	Responder    PSN order; what came of a request     request.go, responder.go
//	gap          what is kept after a gap, and what   gap.go
//	             the peer was told of it
//	executor     receives, memory, keys; the message   execute.go, remote.go,
//	             under way                             xrc.go, run.go
//	answers      what was executed and may be asked    answers.go, duplicate.go,
//	             for again; what the peer is to be     fatal.go, final.go
//	             told
//	transmitter  writes the answers, with the data of  transmit.go, fetch.go
//	             READs from the executor
//
// The gap, the executor and the answers know no other part: Responder takes
// what one says (an outcome, that the peer is to be asked) to the next. The
// transmitter knows the answers and the executor.
//
// Below them are plain queues, which answers has: responses (what waits to be
// sent, responses.go) and resources (the last READs and atomics, resources.go);
// and addresses (of FLUSHes that were dropped, address.go). Where receives come
// from is conn.Receives, which all services share.
//
// # Gaps
//
// The responder sends a sequence NAK once per gap, and once more each time it
// sees that the peer went back and the expected packet is missing again: the
// packet that first showed the gap, or an earlier one, comes once more. That is
// at most one NAK for a packet received, two between native peers, and without
// progress at most five times in a millisecond.
//
// What a native peer sends after a gap goes to a reorder buffer, within
// bounds, and is executed in order when the gap is closed: to the peer that
// looks as if the network had delayed packets.
//
// READs and atomics beyond max_dest_rd_atomic are put off: a sequence NAK goes
// after the answers that wait, so that there is room when they come again. If
// that makes the responder forget a READ that the peer asks for once more, it
// is executed again; an atomic cannot be, and is refused.
//
// # Memory that must be fetched
//
// A request that meets a page that is not in memory gets no answer until it is
// there, and then a sequence NAK: not receiver not ready, which not every
// operation may get, and which a peer may take for an error at once.
package responder
