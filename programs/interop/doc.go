// Package interop holds what the application protocols of the field's own
// tools have in common. The protocols live in packages below it, each in both
// roles:
//
//   - pingpong speaks with ibv_rc_pingpong and its kin (rdma-core);
//   - perftest speaks with ib_send_bw, ib_write_lat and their kin
//     (perftest 6.06), over TCP and over the connection manager (-z, -R);
//   - target serves all of these on one TCP port, and recognises them;
//   - rping, rdmaclient, cmatose, udaddy and
//     cmtime speak with the programs of librdmacm of these names, over
//     the connection manager;
//   - mckey speaks with mckey, over multicast.
//
// The first two exchange addresses over a TCP connection, the control
// connection, and then use RDMA. This package opens control connections, turns
// addresses into GIDs and back, and has the errors that all of them return. A
// ProtocolError says what the peer sent and what was expected. A
// CompletionError says which work request failed and how. Nothing of it is
// encrypted or authenticated: these are measuring tools for trusted networks.
// But this side checks and bounds what a peer announces, so that a peer cannot
// make it crash, hang or use memory without limit. A server takes the first
// client that speaks the protocol and refuses all others; see the Serve
// functions. Over the connection manager it may also serve many clients, for
// ever. For its traffic a peer may name only the address that it connects from;
// see Peers.
package interop
