// Package agent is the communication manager of one address as a state machine
// (IBTA chapter 12): it makes and ends connections by MADs as Linux does, and
// resolves service IDs. It has no queue pairs, addresses of RDMA-CM, ports,
// sockets, locks or goroutines: package cm stands around it.
//
// Time is a parameter. Receive takes a MAD that has arrived, Send gives the
// next one to send, Event the next thing that the program must know, Deadline
// says when Advance must be called. After each call of anything else pull Send
// and Event until they are empty.
//
// # A connection
//
//	active side                                   passive side
//	Connect       ──── REQ ───────────────────►   Request
//	Reply         ◄─── REP ────────────────────   Accept
//	Ready         ──── RTU ───────────────────►   Established
//	Disconnect    ──── DREQ ──────────────────►   DisconnectRequested
//	Disconnected  ◄─── DREP ───────────────────   Disconnect, or Confirm
//	TimewaitExit                                  TimewaitExit
//
// Each side may disconnect. An ID lives from Connect, or the event Request,
// until an event that is final (EventKind.Final) or until Release. Release says
// to the peer what the state demands. No event comes for a released ID.
//
// # Duplicates, losses
//
// REQ, REP, DREQ and SIDR_REQ are sent again by timer: first after
// Config.FirstTimeout, then after twice the time, up to the constant that Linux
// uses. The first three waits of a REQ are equal. RTU and DREP are sent again
// when a duplicate shows that they were lost. A duplicate of what the program
// has in hand gets an MRA.
//
// A message must come from the address of the connection's peer, and carry both
// communication IDs, where it has both. Both are 32 bits that no other host can
// know.
//
// # What a peer can make an agent hold
//
// Requests that are not yet connections are bounded: for each listener (its
// backlog), for each source address, and in all (Config.HalfOpen). Beyond a
// bound only a request that comes again is taken, as honest ones do: forged
// ones from random sources do not return. It takes the place of the oldest that
// has not answered its REP. What is refused costs no memory beyond one table
// for all. Timewait is bounded too.
package agent
