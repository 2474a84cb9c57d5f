// Package network is a packet network in virtual time: hosts, cables, and
// switches with shared buffers. It knows nothing of RoCE above the DSCP and ECN
// bits of a packet. What hosts send and do with packets is an interface.
//
//	Host.Pull ──► cable ──► switch: class by DSCP, hop limit, route
//	                          │  admission: ingress threshold, headroom ──► XOFF
//	                          ▼
//	                        queue of (egress port, class), shared buffer
//	                          │  strict, then DWRR; RED marks; release ──► XON
//	                          ▼
//	                        cable ──► … ──► Host.Receive
//
// A packet is a small value. It crosses a cable in its size divided by the
// cable's rate, plus the delay. Sizes are bytes on the wire, preamble and gap
// between packets included ([WireSize]); buffers and thresholds count the same
// bytes.
//
// # Rules
//
//   - A host is asked for a packet when its cable is free. Nothing queues
//     there.
//   - A switch takes a packet when its last bit has arrived, or with
//     Switch.CutThrough its first 64 bytes, if the next cable is not faster.
//     A switch itself takes no time: add its latency to the delay of cables.
//   - A packet leaves the buffer when its transmission begins.
//   - Pause frames (IEEE 802.1Qbb) take 84 bytes of wire, wait for the packet
//     that is being sent, and arrive after the delay. Pause lasts until it is
//     ended: frames are not repeated and do not expire. Cable.Loss spares them.
//   - RED marks what leaves, by the length of the rest of its queue
//     (Switch.RED). Packets that are not ECN-capable are neither marked nor
//     dropped by it.
//   - A cable that goes down loses what is on it, what is queued for it, and
//     what a host sends meanwhile.
//
// # Programs
//
// Switch.Program has a say in what a switch does, by hooks where packets are
// routed, stored, sent and dropped, and where the far end pauses; HostProgram
// sees the ports of hosts. Packets note what switches tell of themselves, and
// hosts read that (Config.Trail). Package switches has programs.
//
// # Repeatable
//
// A run is a function of its configuration and of what the hosts do. Every
// event goes into a digest of its node, and Digest joins those. It has no
// goroutine, no map, and no floating point number. Observers (Tap, Run in small
// steps) do not change it.
//
// # In parts
//
// Config.Parts divides a network, so that Config.Parallel can run the parts at
// the same time, on as many processors (package cores). Whatever one part sends
// to another one takes the delay of a cable. So a part can run until the least,
// over the parts with a cable to it, of how far they have come and the delay of
// the shortest such cable: that is its window. Parts tell each other how far
// they have come by clocks (Chandy and Misra 1979; the clocks stand for the
// null messages), and what they send by queues of one sender and one receiver.
// Where all wait, because nothing happens for a while, they begin again at the
// next event of all. Cables without a delay are never cut. A window should have
// some hundred events: parts pay where many packets are on the wire within a
// delay.
//
// Digest, Totals, and what a Tap sees in which order are those of one part, bit
// by bit: the order of events is a matter of each node, randomness is of a node
// or a cable, and what At does happens when all parts have come to that event,
// and none runs.
//
// Hosts then run at the same time, too. One may ask for its own Kick, SetTimer,
// Pause and TimeOf; it must not touch hosts of other parts (PartOf). At,
// SetCable and what else is about the whole network are for scripts of At, and
// between two calls of Run; there is a panic if a host calls them. A panic of a
// host comes out of Run, and the network is of no use any more.
//
// The package does not model VLANs, learning of addresses, routing protocols,
// multicast, and the headers of packets.
package network
