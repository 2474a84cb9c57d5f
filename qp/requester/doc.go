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
// A Requester is built in layers, which are embedded one in the next. Each
// knows those below it alone; the compiler sees to that.
//
//	Requester  posting; responses and NAKs   post.go, response.go, nak.go
//	sender     what may be sent now, and     transmit.go
//	           its packets
//	recovery   when what is sent again       recover.go, repair.go, fetch.go
//	work       the requests, and where       work.go, complete.go
//	           sending is                    split.go
//
// Plain structs that know none of these, and that can be tested alone: retry
// (the local ACK timer), rnr, rtt, credit, repair; queue.Scoreboard.
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
// Between two native peers both directions buffer what arrives behind a gap,
// within bounds, and go on from there when the gap is closed. So only
// what is missing is sent again, or asked for, and sending goes on where it
// was. The peer tells what it has by selective acknowledgements, see
// selective.go; of READ responses this side knows itself. With a peer that
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
