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
//
// # New keys
//
// AES-GCM bounds what one key may seal (psp.MaxPackets), and a key that is lost
// discloses what it has sealed. So the keys of a connection, that is of an
// association and the one in the other direction, are followed by others
// (AcceptChain, SealChain), by the two rules of QUIC (RFC 9001 6):
//
//   - A side goes on to the next generation by itself after Limits.Packets, or
//     by Rekey. But it does so only when it has opened a packet of the
//     generation that it seals with: so the peer has come as far.
//   - A side that opens a packet of the next generation goes on to it, and
//     seals what it sends with it.
//
// So the two are never more than one generation apart, and need no message:
// packets say in their SPI which generation they are of, and any packet of the
// peer is the answer that the first rule waits for. Both sides may begin at
// once. What is lost is sent again by the queue pair, as any packet is, and
// sealed with the key of that moment: no operation is lost or done twice, and
// nothing can wait for itself.
//
// A receiver has the keys of three generations:
//
//   - now, which this side seals with;
//   - the next. Its key is derived when the first packet says that it is of it,
//     and kept, so that a forged packet costs what others do: one attempt to
//     open it. It moves nothing. Packets of it are taken only when this side
//     has sealed with now, as the peer cannot go on before: so a peer has this
//     side derive at most one key for each packet that it is sent;
//   - the one before, for packets that were overtaken. It ends when the next
//     generation begins, and before that when the peer has sealed more packets
//     with now than a window has. One that came that late would be refused
//     anyhow.
//
// Each has a window of its own, as initialization vectors begin with 1 for each
// key. Other packets are dropped, as psp_ended or psp_unknown_spi.
//
// The generation has 7 bits in the SPI, and comes round. What was captured 128
// generations ago has the SPI of now, but not its key (psp.Chain): it is
// forged.
//
// An association whose SPI has the highest bit set has one key, and is no other
// one than those with the same number. Its owner ends it, and has another one,
// before it has sealed Limits.Most packets.
//
// If the peer says nothing, the first rule has this side seal on with the key
// that it has, up to Limits.Most. After that its packets are an error
// (ErrNoKey), and the queue pair ends by its retries.
//
// A secret or key that was followed by another one is overwritten, as far as Go
// allows: what package crypto/aes has made of a key goes with the garbage.
package psp
