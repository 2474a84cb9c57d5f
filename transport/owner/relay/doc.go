// Package relay is the switch of management datagrams at a port that several
// processes share (package owner): between the network, where queue pair 1 is
// one, and the leases, each of which has a queue pair 1 and a connection
// manager of its own. It is pure: no goroutine, lock, clock or socket.
//
// # Which way
//
// A lease is known by its slot. The low 8 bits of each communication ID, of
// each SIDR request ID, and of the transaction IDs of other management classes
// that a lease chooses, are its slot (agent.Config.Slot). So what answers it is
// for the lease in the low 8 bits of the receiver's ID. A REQ or SIDR_REQ is
// for the lease that has reserved its service ID (Reserve). A REJ without the
// receiver's ID is for the lease that got the REQ. What belongs to no lease is
// for the relay's own communication manager, which serves nothing: it says so,
// agrees to the end of connections that are no longer known, and answers
// requests for what this software is.
//
// Inbound takes what has come from the network, Outbound what a lease sends.
// Both say where it goes. They change and keep nothing of it. Where both sides
// are on the address, Outbound gives the lease at the other side.
//
// # What it knows
//
// It follows each connection of a lease, by the messages of both sides. When
// the lease ends (Leave), it tells the peers: by a DREQ, which goes again until
// it is answered, 4 times at most, or by a REJ where the connection was not
// established (IBTA 12.9.8). A peer that has forgotten a connection of one
// lease and uses its queue pair for one of another (IBTA 12.9.8.3) is seen
// here, and the old connection is disconnected.
//
// After each call of anything else pull Send until it is empty. Deadline says
// when Advance must be called.
//
// # Security
//
// A message changes what is known of a connection only if it comes from the
// address of its peer with both IDs, which are 32 bits each that nothing else
// knows. A lease sends with IDs of its own slot alone. All that is kept for a
// lease is bounded by its Limits, and so is how much passes to it and from it
// in a second; requests of strangers have a bound of their own, so a flood of
// them leaves the connections of the lease alone.
package relay
