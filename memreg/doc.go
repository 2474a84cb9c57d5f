// Package memreg is the memory side of a host channel adapter: protection
// domains, memory regions, grants, keys, access rights and bounds. It turns a
// (key, address, length, access, queue pair) that came from the network or from
// a work request into a bounds-checked View, or into a Fault that says which
// check failed.
//
// An address on the wire is an index into a registered region, never a pointer.
// What a region stands on is a Memory: bytes of this process (Local, package
// mapping), or memory that can only be copied in and out, where every copy may
// fault. So the memory of another process fits as well.
//
// A key stands for a Grant: a part of a region, rights, and perhaps the one
// queue pair that may use it. A region has two grants of its own, for its lkey
// and its rkey. [Table.Grant] adds one on a part of a region with other rights,
// and Revoke takes it back: what binding and invalidating a memory window come
// down to.
//
// Concurrency: Register, Deregister, Grant, Revoke, AllocPD, DeallocPD and All
// of one Table are serialised by the caller. Everything else, foremost Resolve,
// ResolveLocal, Gather, Scatter and Invalidate, runs on any goroutine beside
// them, without a lock and without allocating. A resolved View pins its grant
// until Release. Deregister and Revoke wait for the pins, so whoever holds a
// pin must not block.
//
// Remote writes and reads race with the application by nature, as they do on an
// adapter: the completion is the happens-before edge. For polling a flag there
// are Load64, Store64, CompareSwap64 and FetchAdd64 on Region, which are atomic
// towards each other and towards remote atomics.
//
// Guessing keys: a key is 32 random bits, so a peer that may try keys hits one
// of n live keys with n/2^32 a try. The protection domain is checked too. Keys
// are a guard against mistakes and stale peers, not authentication.
//
// Memory whose pages may be elsewhere is a PagedMemory: views refuse what is
// not present with ib.FaultNotPresent, so that nobody waits who holds a lock,
// and Missing says what to fetch.
//
// What it does not do: memory windows as objects of the verbs, with their two
// types, states and keys that the program chooses in part; fast registration;
// locking pages; and the lifetime of the memory itself (the caller keeps it
// mapped until Deregister has returned, and nobody fetches what is Missing of
// it).
package memreg
