// Package hca is the software host channel adapter: it runs engines (package
// engine) on links (transport) and has what programs wait for. The rules of the
// protocol and of sharing are in package engine; here are locks, goroutines,
// system calls, contexts with quotas, completion queues and channels.
//
// A device has one or more shards, each an engine, a link and a lock. A
// datagram's way in: a program that polls or waits, or the shard's own
// goroutine while none does (package wake), takes a batch from the link, locks
// the shard once, has the engine handle the packets, and unlocks. The way out:
// the goroutine that has made work (a program that posted, the receiver, a
// timer) has the engine fill one batch and sends it without the lock. The head
// of shard.go has the way of a message in steps.
//
//	link.Recv → [shard lock] engine.Receive ──┐
//	PostSend  → [shard lock] engine.PostSend ─┤
//	timer     → [shard lock] engine.Advance ──┘→ engine.Fill
//	link.Send ← (no lock) ← one batch ←─────────────┘
//
// Ordering rule: packets of one queue pair leave in the order in which the
// engine gave them, and are handled in the order in which the link gave them.
// So at any time one goroutine sends for a shard (sender.sending), and one
// receives (intake.mu).
//
// A shard's lock is not held while the link sends or sleeps, nor when a timer
// is armed or a sleep in a link is ended: that is put down, and done when the
// lock is given up (locked.release). It is held while the link receives only if
// that has asked for a place: then the payloads are received there (place.go).
// Under it a goroutine that sleeps beside the owner may be made ready, and the
// runtime may then wake a thread. No page of memory is waited for under it:
// pager.go fetches what is not there. And no two shards are locked at once:
// packets for another one are queued there (forward.go).
//
// Lock order: a shard's intake.mu, its mu, XRC domain, shared receive queue,
// completion queue, completion channel. The locks of the event queue, the
// pager, the moderator, the handlers and a shard's forwarded packets are taken
// inside of any. That of the multicast groups is taken outside of a shard's.
// The device lock guards the tables of objects and is never taken inside a
// shard's.
//
// A link may be a Driver (driver.go), such as a host of a simulated network.
// Then the device has no goroutine, timer or clock of its own: the driver
// brings packets and takes them, and suspends the programs that wait. All else
// is the same code.
//
// The package knows nothing of programs' conveniences: those are in verbs.
package hca
