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
// The first use of a device makes its manager, which has the management queue
// pair and lives as long as the device. It has one timer and no goroutine that
// lasts: one is started to handle datagrams that have come, or an end, and ends
// then. An idle connection costs no work.
//
// Requests come from a network that may be hostile: attackers can forge them.
// How many are held at once is bounded, in all, for each listener and for each
// source address; beyond the bounds only requests that come again are looked
// at, as honest ones do. A connection is not authenticated by being made.
package cm
