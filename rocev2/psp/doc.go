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
// The security parameters index (SPI) of a packet says which key opens it. Here
// its low 24 bits are the number of an association, and the 8 bits above them
// the generation of its key, from that of the first one on: Number, Later,
// Between. A Chain derives the keys. (The specification has one of two master
// keys in the highest bit, and derives the key of any SPI from it, for adapters
// without tables.)
//
// The nonce of AES-GCM is the SPI and the initialization vector (IV) of the
// header. A key must seal no two packets with the same: the IV counts packets
// from 1 on.
//
// The package is pure, and knows no sessions: which keys there are, for how
// long, and which SPIs are accepted is up to its users.
package psp
