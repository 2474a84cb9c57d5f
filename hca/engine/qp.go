package engine

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/internal/list"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// QP is a queue pair of an engine: the protocol machine and its place in what
// the queue pairs of the engine share. It is an object beside qp.QP for one
// reason: that knows of no other queue pair, so that it can be tested, and its
// worlds simulated, without an engine; what is here is about the others alone.
type QP struct {
	// User is the driver's own. The engine does not look at it.
	User any

	core *qp.QP
	path *transport.Path // to the peer; nil before the address vector is set
	qpn  rocev2.QPN      // that of core, which a reset writes anew
	mtu  int32           // path MTU in bytes

	// Its places in lists.
	fresh   list.Element[QP] // it has just come to have packets to send
	round   list.Element[QP] // it has had a turn and may have more
	limited list.Element[QP] // its peer's limit has stopped it

	// Its turn, see turns.go.
	turn  int32 // bytes left of it
	whole int32 // bytes of one, but for MTUs that are larger
	idle  bool  // it only keeps its place in the round
	quiet bool  // it has nothing to send, and its turn need not ask
	class uint8 // of its packets, see class.go

	local     bool // the peer is on this engine's address, and Loopback is on
	delayed   bool // an acknowledgement of it waits, see delayedAcks
	loops     bool // packets of it may pass inside the engine: it is local, or of UD
	raised    bool // an event was
	mtuRaised bool // EventPathMTU was
	held      bool // the number was held for it, see hold.go

	// Its peer, see peer.go and native.go.
	silent       uint8  // which account inFlight is in
	native       bool   // the program says that the peer is this software
	wide         bool   // it has the window towards a native peer
	portVerified bool   // a packet came whose PSN was right
	peerPort     uint16 // the only source port of the peer's packets; 0: any
	security     Security
	peer         *peer
	inFlight     int // bytes counted in an account of peer
	quantum      int // bytes that it may send when it is admitted there

	// Its timer, see timers.go.
	timerAt clock.Time // of the valid entry in the heap; 0: there is none
	ref     *timerRef
}

// Core returns the protocol machine, for what it tells of itself. Whatever
// changes it goes through the engine.
func (q *QP) Core() *qp.QP { return q.core }

// QPN returns the queue pair number. It may be called beside everything else.
func (q *QP) QPN() rocev2.QPN { return q.qpn }

// Raised reports whether an event of q was raised.
func (q *QP) Raised() bool { return q.raised }

// Pending reports whether q waits for its turn to send, or has it.
func (q *QP) Pending() bool { return q.fresh.In() || q.round.In() && !q.idle }

// packetCost is what a packet of the path MTU takes of a turn.
func (q *QP) packetCost() int { return max(rocev2.BTHLen+int(q.mtu)+rocev2.ICRCLen, minTurnCost) }

// wholeTurn is how many bytes its turn has.
func (q *QP) wholeTurn() int { return max(int(q.whole), q.packetCost()) }

// PeerInfo is what an engine knows of a queue pair's peer.
type PeerInfo struct {
	Native bool   // the program says that it is this software
	Wide   bool   // what is in flight is bounded as for a native peer
	Port   uint16 // the only UDP source port of its packets; 0: any
}

// Peer returns what the engine knows of the peer.
func (q *QP) Peer() PeerInfo { return PeerInfo{Native: q.native, Wide: q.wide, Port: q.peerPort} }

// tell tells the driver of the memory that q waits for, and of its events.
func (q *QP) tell(s Sink) {
	for f, ok := q.core.PollFetch(); ok; f, ok = q.core.PollFetch() {
		s.Fetch(q, f)
	}
	for k, ok := q.core.PollEvent(); ok; k, ok = q.core.PollEvent() {
		q.raise(s, k)
	}
}

func (q *QP) raise(s Sink, k ib.Event) {
	q.raised = true
	s.Event(q, k)
}
