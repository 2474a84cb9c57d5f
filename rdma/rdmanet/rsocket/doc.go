// Package rsocket is the stream protocol of librdmacm's rsockets (rstream,
// riostream, rcopy, programs under librspreload) as a state machine: what a
// connection may send, what it has received, and what it owes the peer.
//
// Both sides write into a ring in the memory of the other one. A stream is
// carried by RDMA WRITEs with immediate data, which say what they are:
//
//   - DATA writes the next bytes of the stream to where the peer has said.
//   - SGL gives the peer credits for more messages, and mostly another half of
//     the ring: a target of 16 bytes, written into one of the peer's slots.
//   - CTRL says that the sender sends nothing more, or that it is gone.
//
// Where ring and slots are, the two sides tell each other by a [Block] in the
// private data of the connection manager.
//
// The package is pure: it has no goroutine, no lock, no clock and no socket. It
// posts nothing and polls nothing; its user carries out the [Write]s that it
// asks for, and tells of completions. Not here: datagrams (SOCK_DGRAM).
package rsocket
