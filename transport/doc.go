// Package transport defines how RoCEv2 datagrams get in and out of a device:
// the [Link] interface, which moves batches, and the two kinds of batch. A
// [TxBatch] is one contiguous arena. Packets are encoded one after the other,
// each followed by room for its four ICRC bytes. So adjacent packets of equal
// size to one [Path] already form the buffer that UDP segmentation offload
// takes:
//
//	| BTH..pad | ICRC | BTH..pad | ICRC | BTH..pad | ICRC | ...
//	|<- segment 0  -->|<- segment 1  -->|<- last -->|        one Run
//
// [TxBatch.Run] finds these runs and [TxBatch.Seal] writes the ICRCs of one,
// with the IPv4 Identification that each segment will carry on the wire.
//
// An [RxBatch] owns the buffers that a link receives into. [RxBatch.Split]
// cuts a buffer that the kernel coalesced (UDP_GRO) into packets in place and
// has the ICRC of each checked by a [Verifier].
//
// The kinds of link live elsewhere: transport/udp (sockets), fabric (networks
// inside the process), and the wrappers transport/fault and transport/tap. The
// package is pure: the links have the sockets, clocks and goroutines. It looks
// at nothing in a packet but its ICRC. It keeps no order between links and
// repairs no loss; queue pairs do.
package transport
