// Package queue has the queues that a queue pair works on: the ring of send
// requests, the ring of receives, and the reorder buffer for packets that
// arrived after a gap.
//
// They hold and find, and decide nothing about the protocol: when a request is
// sent, completed or flushed is for the requester and the responder to say.
// Nothing here allocates in steady state. Nothing is safe for concurrent use.
//
// A receive carries the protection domain that its memory belongs to and the
// sink that its completion goes to. The receives of a queue pair's own ring
// carry those of the queue pair, but the ones of a shared receive queue (SRQ)
// belong to the domain of the SRQ, and those of an XRC one complete where the
// SRQ says (IBTA 10.2.9). The responder looks at the receive alone.
//
// The IBTA sections are those of the InfiniBand Architecture Specification,
// Volume 1, release 1.6 or later.
package queue
