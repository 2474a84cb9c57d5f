// Package interop holds what the application protocols of the field's own
// tools have in common. The protocols live in packages below it, each in both
// roles:
//
//   - interop/pingpong speaks with ibv_rc_pingpong (rdma-core);
//   - interop/perftest speaks with ib_send_bw, ib_write_lat and their kin
//     (perftest 6.06).
//
// All of them exchange addresses over a TCP connection, the control
// connection, and then talk RDMA. This package opens control connections,
// turns addresses into GIDs and back, and has the errors that all of them
// return: a ProtocolError says what the peer sent and what was expected, a
// CompletionError which work request failed and how.
//
// The control connection is neither encrypted nor authenticated: these are
// measuring tools for networks that one trusts. What a peer announces is
// nevertheless checked and bounded, so that it cannot make this side crash,
// hang or use memory without limit. A server takes the first client that
// speaks the protocol and refuses all others, see the Serve functions; a peer
// may name no other address for its traffic than the one that it connects
// from, see Peers.
//
// Not here: exchange over the connection manager (-R and -z of the originals),
// and UC and UD.
package interop
