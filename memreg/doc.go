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
// and Revoke takes it back.
//
// A Window and a FastRegion keep the upper 24 bits of their keys, and the low
// byte changes with each bind or registration (IBTA 10.6.7.2, 10.6.3.3). So
// they have slots in a table of their own, which a lookup asks second. What a
// slot stands for is another Grant each time, exchanged atomically: a View of
// the one before can never be of the one after.
//
// Concurrency: what makes and ends objects of one Table (Register, Reregister,
// Deregister, Grant, Revoke, AllocWindow, FreeWindow, AllocFast, FreeFast,
// AllocPD, DeallocPD) and All are serialised by the caller. Everything else,
// foremost Resolve, ResolveLocal, Gather, Scatter, Bind, RegisterFast and
// Invalidate, runs on any goroutine beside them, without a lock. Bind and
// RegisterFast allocate, the others do not. A resolved View pins its grant
// until Release. What ends a grant waits for the pins, so a goroutine that
// holds a pin must not block, and must not bind or invalidate.
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
// not present with ib.FaultNotPresent, so that no goroutine waits for a page
// while it holds a lock, and Missing says what to fetch.
//
// An Implicit is the whole address space with an allow list, for implicit
// on-demand regions.
//
// A Phantom has a length and no bytes, for simulations.
//
// What it does not do: locking pages; and the lifetime of the memory itself
// (the caller keeps it mapped until Deregister has returned, and no fetch of
// what is Missing of it is under way).
package memreg
