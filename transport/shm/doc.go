// Package shm takes packets from one process to another of the same host
// through memory that they share, instead of through their UDP sockets: [Wrap]
// puts it around the links of a device. It works on Linux. Elsewhere, and in
// portable builds, packets go by UDP.
//
// Two devices find each other by a Unix socket in a directory that only their
// user can enter: rocev2 in XDG_RUNTIME_DIR, and rocev2-UID in os.TempDir,
// followed by a number where another user has made that. The socket has the
// name of the device's address and of its network namespace, so containers of
// the same address do not meet. Both ends check the user of the other one
// (SO_PEERCRED), and that a socket of this user is bound to the UDP port of the
// other address. Then they share memory (a sealed memfd) and a pair of datagram
// sockets. The one with the first packet asks. Until both have agreed, packets
// go by UDP; and they do so from then on when a peer has ended, or writes
// nonsense into the memory.
//
// Packets are what they are on the wire, but for the ICRC: nothing damages them
// on the way. They come in the order in which they were sent, also when the way
// changes. A packet comes as [transport.RxPacket] with ICRCAbsent.
//
// In each direction there is a ring of descriptors, each of a run of packets of
// equal size, and of the bytes that they lie in. A run is copied once into the
// memory; its receiver takes it from there. A short packet lies in its
// descriptor, so one cache line goes from one processor to the other. A
// receiver that sleeps says so in the memory, and is woken by a datagram, which
// the inner link's Wait watches for, too.
//
// A peer is of the same user, and may still be broken. What it writes is read
// once, checked, and then used. It cannot take the memory away, and no call
// that it has a part in blocks. If it stops, Send waits 100 µs for it, once;
// what it has no room for is lost, as in a socket buffer that is full. The ring
// has room for all that queue pairs of a reliable service have in flight.
//
// One thing a process of the same user can do: if the host has no memory left
// for a page of the memfd (strict overcommit, or a hole that the peer has
// punched), the access ends the process, as any access to a mapping does.
//
// Devices that lease parts of one port (package transport/lease) are peers of
// each other, and of devices with other addresses. A peer is an address and a
// slot: the destination queue pair of a packet says which. The socket of a
// lease has a name for each of its queue pair numbers modulo 256. When a slot
// is leased to another process, that process agrees anew. A leaseholder sends
// what is for queue pair 1 by the owner of its port. A lease of an owner that
// is another user shares memory with leases of the same port only: no socket of
// its own user is bound to its address.
//
// What this package does not do: it carries no multicast, and nothing to the
// queue pairs of the device itself. It has at most 64 connections for each
// device; further peers are reached by UDP.
package shm
