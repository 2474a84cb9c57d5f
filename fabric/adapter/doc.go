// Package adapter is RDMA adapters on a network in virtual time (package
// network): thousands of engines (package engine), the same code that runs over
// sockets, without a goroutine. Programs are driven by events: they post
// requests, and a function of theirs is called when one has completed.
//
//	program ──► QP.Post ──► engine.PostSend
//	   ▲                        │ turns, windows, rates
//	   │                        ▼
//	completion              Host.Pull: one packet, when the cable is free
//	   │                        │
//	engine.Receive ◄── Host.Receive ◄── network
//
// # What is real and what is not
//
// Queue pairs, their recovery, their congestion control and the rules by which
// they share an adapter are the product's own. Packets have their real headers
// and lengths. By default they have no payload: memory is memreg.Phantom, and
// what is under way is a record of 64 bytes, whatever the length. With
// Config.Real memory has bytes, packets carry them, and the ICRC is computed
// and checked.
//
// An adapter takes no time: what it does in answer to a packet it does at the
// moment in which the last bit has arrived. Its port is asked for a packet when
// the cable is free, and gives one at a time. So nothing queues between the
// queue pairs and the cable: a class that is paused, or a flow that is slowed
// down, waits in them. Classes share the cable as Config.Shares says, and queue
// pairs of one class by Config.Turn.
//
// # In parts
//
// The adapters of a network that is divided (network.Config.Parts) run at the
// same time. What is called when something completes may then post, and close,
// at its own host alone, and ask for its Host.Now; it must not touch what is
// called at other hosts. All else, Connect too, is for scripts of Network.At,
// and between two calls of Run.
//
// # What it does not do
//
// Of a host with several ports only port 0 sends. Datagrams, multicast and
// loopback are left out: connections are of type RC.
package adapter
