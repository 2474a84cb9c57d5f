// Package psp seals and opens the packets of a link: a Link around a Link, with
// packets of the PSP Security Protocol (package rocev2/psp) in place of those
// of RoCEv2.
//
// A security association goes in one direction. The receiver chooses its number
// (SPI), and calls Accept; the sender calls Seal with the number that the
// receiver has told it. Both have the key. Packets of a transport.Path with an
// SPI leave sealed, or not at all: without a key they are an error. Packets
// that were opened say with which SPI (transport.RxPacket.SPI), so that a queue
// pair can refuse what came in clear, or belongs to another connection. Packets
// without an SPI pass in clear, both ways.
//
// Sealed packets go to the UDP port of the link, 4791, where the others go,
// too: the first two bytes tell them apart, as they would be a BTH of version
// 1. So one socket, one filter and one hole in a firewall serve both. PSP's own
// port, 1000, only a privileged process may open.
//
// What is sealed is the packet with its UDP header and its ICRC, which is that
// of an IPv4 Identification of 0. The UDP header is authenticated, and can be
// read; all after it is encrypted, too, with the versions that encrypt. The
// receiver does not look at the ICRC: the integrity check value says more.
//
// A packet that was captured and is sent again finds its initialization vector
// (IV) in the window of its association, and is dropped, whatever its PSN. What
// is dropped is counted by its reason, see Stats.
package psp
