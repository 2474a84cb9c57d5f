// Package psp is the packet format of the PSP Security Protocol (Google, PSP
// Architecture Specification, 2022), which encrypts and authenticates single
// packets: its header, the derivation of keys, how a packet is sealed and
// opened, and the window that finds replays.
//
// In transport mode the packet of a RoCEv2 queue pair lies in it whole, with
// its UDP header and its ICRC:
//
//	IP | UDP to Port | PSP header | UDP to 4791 | BTH..pad | ICRC | ICV
//	                 |<-- authenticated ------------------------->|
//	                              |<-- encrypted ---------------->|
//
// The bytes of a CryptOffset after the header are authenticated, and not
// encrypted. With GMAC that is all of them.
//
// The security parameters index (SPI) of a packet says which key opens it. Its
// highest bit chooses one of the receiver's two master keys, from which
// MasterKeys derives the key. So an adapter needs no table of keys, and forgets
// all keys of a master key with it.
//
// Receivers with a table can have a Chain instead, that is keys of one
// association which follow each other: the low 24 bits of its SPIs are the
// number of the association, the 7 bits above them the generation of the key,
// and the highest bit is 0.
//
// The nonce of AES-GCM is the SPI and the initialization vector (IV) of the
// header. A key must seal no two packets with the same: the IV counts packets
// from 1 on.
//
// The package is pure, and knows no sessions: which keys there are, for how
// long, and which SPIs are accepted is up to its users.
package psp
