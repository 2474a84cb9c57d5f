// Package rdmanet gives Go programs streams over RDMA that look like those of
// package net: [Listen] returns a net.Listener, [Dial] a net.Conn. What runs
// over TCP connections (net/http, net/rpc, TLS) runs over these.
//
//	ln, err := rdmanet.Listen("rdma", "192.0.2.1:7471")
//	conn, err := ln.Accept()
//
//	conn, err := rdmanet.Dial(ctx, "rdma", "192.0.2.1:7471")
//
// An address is an IP address of an RDMA device and a port of the connection
// manager (port space TCP), which has nothing to do with ports of TCP.
//
// On the wire it is the protocol of librdmacm's rsockets, so that rstream and
// rcopy, and programs under librspreload, are peers; see package
// rdma/rdmanet/rsocket. Each side writes by RDMA WRITE into a ring at the other
// side.
//
// # A connection
//
// Read and Write do the work on the goroutine that calls them: there is no
// goroutine for a connection. Read, Write, Close and the deadlines may be used
// at the same time, as net.Conn asks. CloseWrite ends one direction. Write
// returns when all is on its way, and not when the peer has it.
//
// What one side has sent before its Close or CloseWrite the other side reads,
// then io.EOF. Close waits until the peer's device has acknowledged what was
// written, for a bounded time (Options.Linger). An end of the peer without a
// word shows as an error for which errors.Is(err, syscall.ECONNRESET) holds: at
// once where something is on its way, and after Options.KeepAlive else.
//
// # Secured connections
//
// Where both sides have a TLS configuration the connection itself is secured.
// Package net/http knows nothing of that: the URL is one of http, or of https
// with the dialer in http.Transport.DialTLSContext; with https and DialContext
// TLS runs once more, over the secured connection. Request.TLS is nil. A
// handler has the certificates of its client by http.Server.ConnContext:
//
//	ConnContext: func(ctx context.Context, c net.Conn) context.Context {
//		state, _ := c.(*rdmanet.Conn).ConnectionState()
//		return context.WithValue(ctx, peerKey{}, state.PeerCertificates)
//	},
//
// # Memory
//
// An idle connection takes some 6 KiB, and its ring and its buffer for what is
// sent (Options) as far as they are used.
//
// # Not here
//
// Datagrams, and the I/O maps of rsockets (riomap). An rsockets peer of
// librdmacm that is told that this side is gone throws away what it has not
// read; so Close tells such a peer first that no more comes, and waits some
// time for its answer in the background.
package rdmanet
