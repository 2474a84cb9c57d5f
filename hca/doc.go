// Package hca is the software host channel adapter: it joins queue pairs
// (package qp), memory (memreg) and a link (transport) into a device that runs.
//
// A datagram's way in: whoever receives (a program that polls or waits, or the
// shard's own goroutine while none does, see receive.go) takes a batch from the
// link, locks the shard once, finds each packet's queue pair by its destination
// QPN, lets it handle the packet, and unlocks. The way out: whoever has made
// work (a program that posted, the receiver, a timer) pulls packets from the
// queue pairs into one batch and sends it without the lock.
//
//	link.Recv → [shard lock] dispatch → qp.HandlePacket ─┐
//	PostSend  → [shard lock] qp.PostSend ────────────────┤→ ready list
//	timer     → [shard lock] qp.HandleTimeout ───────────┘      │
//	link.Send ← (no lock) ← one batch ← qp.PollTransmit ←───────┘
//
// With Config.Loopback, packets to the device itself are gathered in a batch
// beside that one and dispatched at once, see loopback.go.
//
// Whose turn it is to send, and how much a turn is, says turns.go; what queue
// pairs to one peer share, peer.go; what is sent for one that goes, parting.go.
//
// No page of memory is waited for under a lock: pager.go fetches what is not
// there.
//
// Ordering rule: packets of one queue pair leave in the order in which
// PollTransmit gave them. So there is one receiver and one transmitter per
// shard at any time, and neither lock is held across a system call that waits.
//
// Lock order: a shard's rxMu, its mu, completion queue, completion channel. The
// device lock guards the tables of objects and is never taken inside a shard's.
//
// The package knows nothing of programs' conveniences: those are in verbs.
package hca
