// Package guard secures all packets of a port, whatever queue pairs they are
// of: a Link around the owner's link, which seals what leaves (package
// rocev2/psp) and opens what comes. Nothing leaves in clear, and what comes in
// clear is dropped. The programs that use the port know nothing of it.
//
// # Keys
//
// Two hosts agree on keys by package transport/keychannel. Its Table has them:
// for each peer a secret for what is sent to it, and some for what comes from
// it, the newest first. Many keys are derived from a secret. The security
// parameters index (SPI) of a packet says which one:
//
//	31     1: of a host, and not of a queue pair (package transport/psp)
//	16-30  number of the secret, which the receiver has chosen
//	8-15   slot of the sender: its socket among those of its port
//	0-7    slot of the receiver
//
// So the low bits steer a packet to the socket of its queue pair, as the number
// of the queue pair does with a packet in clear. Packets for each slot leave
// from a source port of their own, so that nothing on their way coalesces those
// for two. And no two senders have the same key, as each has its own socket.
// Those that have the same socket one after the other have different serial
// numbers, which are the high half of their initialization vectors. From the
// secret and that number a master key is derived, and from it the key of the
// SPI, both as PSP does: so what a key may seal is counted where it seals. Of
// the senders of a socket the latest one is heard alone.
//
// The Table may lie in memory that the owner of a port shares with processes
// that lease parts of it. They read it, and cannot write it.
//
// # Without keys
//
// Packets to a peer without keys wait while the owner asks for some, at most
// WaitPackets for a peer and WaitBytes in all, for WaitTime. Others are lost
// and counted: to a program such a peer is one that is not there.
//
// A peer that was started again has forgotten its keys, and drops what comes.
// It asks for others when it sees unknown ones, but any host can have it see
// some. So a Link that hears nothing from where it sends asks, too.
//
// # What is not sealed
//
// Packets of the own address to itself, which never leave the host, where the
// system drops those that a stranger has sent in its name (SealsOwn); and what
// the queue pairs of two programs have sealed already (package transport/psp).
// Multicast is refused.
package guard
