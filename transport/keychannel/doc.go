// Package keychannel has two hosts agree on keys for all packets between two
// of their ports (package transport/guard): the owners of the ports connect by
// TCP, to the address of the peer and a port of the same number as that of
// RoCEv2, and authenticate each other by TLS 1.3 (crypto/tls).
//
// Each side exports a master key for each direction (RFC 8446 7.5, label
// "EXPORTER-rocev2-host", the context is a byte: 0 for what the side sends that
// has connected, else 1). Then each installs the key for what it receives, and
// says in one record of 40 bytes:
//
//	0  version: 2
//	1  0
//	2  number of the key for what it receives
//	4  slots of its port
//	6  0, 0
//	8  its own address, as IPv6
//	24 the address of the peer
//
// A side that has this of the peer seals with the new key from then on. So the
// peer always has the key of what it is sent. The side that has connected says
// it first, and at last a byte, 1: so the other one knows that it, too, has the
// keys.
// The addresses keep an attacker from connecting a side with itself.
//
// Keys before the new one still open packets for Overlap, and for as long as it
// is not sure that the peer uses the new one: a handshake that fails changes
// nothing, and two at the same time leave the keys of both. A side agrees anew
// when keys have sealed half of what they may, or are RenewAfter old; when
// nothing comes back, as after a restart of the peer; and when packets come
// that no key of it is for, as after a restart of it. Such packets can be
// forged, so that is bounded, and changes nothing before the peer is
// authenticated. A side that refuses a connection, as there are too many of its
// address, connects to that address as well: other processes of a host can take
// the places that there are for it, and not its port.
package keychannel
