// Package cm makes connections between queue pairs: RDMA connection management
// (IBTA chapter 12), by the messages and with the ports of the field's RDMA-CM.
// Peers may be this software, Linux, or an adapter.
//
//	addr := netip.MustParseAddrPort("192.0.2.1:7471")
//
//	l, err := cm.Listen(dev, addr, cm.ListenConfig{})
//	req, err := l.Accept(ctx)
//	conn, err := req.Accept(ctx, qp, cm.AcceptConfig{}) // qp is the program's
//
//	conn, err := cm.Dial(ctx, qp, addr, cm.DialConfig{})
//
// Both sides then use the queue pair as after verbs.QP.Connect, and Conn.Done
// tells when the peer has disconnected. For datagrams Resolve asks a listener
// for the number and the Q_Key of its queue pair.
//
// # Secured connections
//
// A connection of RC or XRC is encrypted, and both sides are authenticated as
// their configurations demand, where both have one of TLS (crypto/tls), on
// devices with verbs.Config.Sealing:
//
//	mine := &tls.Config{Certificates: …, ClientCAs: …,
//		ClientAuth: tls.RequireAndVerifyClientCert}
//	l, err := cm.Listen(dev, addr, cm.ListenConfig{TLS: mine})
//
//	mine := &tls.Config{RootCAs: …, Certificates: …}
//	conn, err := cm.Dial(ctx, qp, addr, cm.DialConfig{TLS: mine})
//	state, ok := conn.ConnectionState()
//
// WithTLS is that of an ID. Nothing falls back: a listener with TLS refuses a
// request without, and a dial with TLS a listener without (ErrNotSecured). The
// queue pair of the program takes sealed packets alone, and sends no others,
// from its first one; its receives are the program's.
//
// The dial makes a control connection first: one of RC between queue pairs of
// the managers, by messages in clear, for a service ID of its own (first byte
// 2, then the vendor ID of this software, port space and port). Over it goes
// the handshake of TLS 1.3, as package rdma/secure has it. From then on its
// packets are sealed. It carries the messages of the connection itself, private
// data and the end included: whole MADs, each in a SEND of 256 bytes. So
// attackers neither see nor forge them. The keys of the program's queue pairs
// come from the same handshake, for the two communication IDs and the two
// numbers of the queue pairs (secure.Session.Seal).
//
// A control connection is for one connection at a time, and lasts as long. If
// it fails, because the peer has gone, the connection ends with ErrUnreachable.
// It takes about 20 KiB on each side, and four round trips; the connection then
// takes one, as in clear. Its handshake may take 10 s; a listener has 256 of
// them at once, and the oldest makes room. Its peers then have 10 s for their
// request.
//
// What is not secured: UC, whose packets cannot be sealed; datagrams, and so
// Resolve and the port spaces UDP and IPoIB; connections with other software. A
// TLS configuration for them is an error.
//
// # The manager
//
// The first use of a device makes its manager, which has the management queue
// pair and lives as long as the device. It has one timer and no goroutine that
// lasts: one is started to handle datagrams that have come, or an end, and ends
// then. An idle connection costs no work.
//
// Requests come from a network that may be hostile: attackers can forge them.
// How many are held at once is bounded, in all, for each listener and for each
// source address; beyond the bounds only requests that come again are looked
// at, as honest ones do. A connection that is not secured is not
// authenticated by being made.
package cm
