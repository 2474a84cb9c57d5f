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
// # The way of a MAD
//
//  1. Receive parses the header, and calls the method of the attribute:
//     receiveREQ (passive.go), receiveREP (active.go), receiveDREQ
//     (disconnect.go), receiveREJ (reject.go), those of resolver (sidr.go).
//  2. It parses the message and finds the connection in table by what the
//     message says: IDs, GUID and QPN, addresses. A message that fits none is
//     counted, and refused by outbox within a budget.
//  3. A REQ or SIDR_REQ has no connection. If its service has no listener but
//     gets one soon, expected holds it. If the listener has a Greeter,
//     greeting answers it and keeps a candidate. Otherwise gate decides whether
//     there is room, and which older request makes room.
//  4. The method acts by the state of the connection (below). What more than
//     one of them does, such as disconnecting or removing, is in lifecycle.
//  5. Answers wait in outbox for Send, events in lifecycle for Event. What may
//     be lost has a timer: Advance calls lifecycle.fire, which sends the MAD
//     again or gives up.
//
// # States
//
//	state          input                next state
//	REQ sent       REP                  REP received
//	               timer                REQ again, then none: Unreachable
//	REP received   Ready                established
//	REQ received   Accept               REP sent
//	               timer                none: Unreachable
//	REP sent       RTU, Communicated    established
//	               timer                REP again, then none: Unreachable
//	established    Disconnect           DREQ sent
//	               DREQ                 DREQ received; so in both REP states
//	DREQ sent      DREP, DREQ           timewait
//	               timer                DREQ again, then timewait
//	DREQ received  Disconnect, Confirm  timewait
//	timewait       DREQ                 the same, DREP again
//	               timer                none: TimewaitExit
//	SIDR sent      SIDR_REP             none: SIDRReply
//	               timer                SIDR_REQ again, then none
//	SIDR received  Answer               none
//	               timer                none: Unreachable
//
// A REJ, and Reject or Release in a state before "established", end the
// connection. A REJ after it leads to timewait. A peer that uses its queue pair
// for another connection has forgotten the first one: this side sends a DREQ.
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
// # Control connections
//
// The MADs of a connection may go over another one, which is made first and
// secured: its control connection. The program moves them, whole and in order,
// and numbers those that it has (Path.Control). A message that comes another
// way is for no connection of a control connection, whatever IDs it has. So
// only the peer can end them, or see their private data.
//
// The control connection itself is made by MADs that anyone may forge. When it
// is secured, Detach has no message end it.
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
