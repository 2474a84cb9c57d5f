// Package engine is one RDMA adapter without input and output: many queue
// pairs (package qp) after one address, and the rules by which they share it.
// It has no goroutine, lock, clock or socket. The driver brings packets and the
// time and takes packets away: package hca drives an engine with real links, a
// discrete-event simulator drives thousands of them in virtual time.
//
//	packets ──► Receive ──► dispatch ──► qp.HandlePacket ─┐
//	            PostSend ──────────────► qp.PostSend ─────┤→ turns
//	time ─────► Advance ───────────────► qp.HandleTimeout ┘     │
//	packets ◄── Fill ◄───────── one batch ◄──────────────── qp.Poll
//
// A driver does the same after whatever it has done: it calls Fill and sends
// the batch until Pending reports false, and it calls Advance when the time
// that Deadline returns has come.
//
// # What is shared, and how
//
//   - Turns: queue pairs send in deficit round robin (turns.go).
//   - The socket buffer of a peer: queue pairs to one address share a limit of
//     bytes in flight (peer.go).
//   - Memory for packets that arrive after a gap: one pool for all.
//   - Timers: one heap, in which progress moves nothing (timers.go).
//
// # Other rules
//
//   - Lone acknowledgements may wait for the next message (ackdelay.go).
//   - A queue pair that goes leaves its last packets here (final.go).
//   - A native peer sends from one UDP port (native.go).
//   - With Config.Loopback packets to the own address pass inside the engine
//     (loopback.go).
//   - A request of UD says where it goes: equal address vectors share a path
//     (paths.go).
//   - A datagram for a multicast group is handed to every queue pair that is
//     attached (group.go).
//
// Of several engines on one address each has the queue pairs whose number is
// congruent to Config.Shard modulo Config.Shards. An engine returns packets
// that are for the others.
//
// An engine and its queue pairs are not safe for concurrent use. In the steady
// state nothing here allocates.
package engine
