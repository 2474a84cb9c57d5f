package agent

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/internal/list"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// conn is a connection, or a resolution. There may be tens of thousands, so it
// is small: what only its establishment needs is in setup and message.
type conn struct {
	local, remote       mad.CommID
	localQPN, remoteQPN rocev2.QPN
	guid                mad.GUID // the peer's
	// transaction is the transaction ID of the REQ, until a DREQ brings
	// another.
	transaction uint64
	peer        *peer
	setup       *setup         // while a request of the peer is half open
	message     *[mad.Len]byte // what goes again; an RTU, DREQ or DREP without private data is made anew
	deadline    clock.Time
	timer       int32 // place in the heap, from 1; 0 is none
	interval    uint32
	maxInterval uint32 // both in microseconds, between two transmissions
	flowLabel   uint32
	class       uint8
	state       State
	retries     uint8 // left
	ackTimeout  uint8 // code, for timewait
	maxRetries  uint8 // of a DREQ

	indexed  bool  // in byID or sidr, by the remote ID
	learned  bool  // in byQPN
	released bool  // the program does not know it any more
	asks     uint8 // how often it goes again at most because no program listens
	asking   bool  // it does when the timer fires
	heard    bool  // active: the peer has answered something
	extended bool  // an MRA has come since the last transmission
	acked    bool  // passive: an MRA of ours told the peer the local ID
	granted  bool  // this side has sent a DREP
	detached bool  // no message ends it
}

// setup is what a half-open request needs more.
type setup struct {
	listener *listener
	returned bool          // it came more than once, as honest ones do
	waiting  bool          // for the program, at the listener; or else for the RTU
	taken    bool          // the program has it in hand
	ready    bool          // it was a candidate, and waits for the program
	service  mad.ServiceID // of SIDR

	inAll    list.Element[conn] // of the listener, while waiting; then of all that are unanswered
	ofSource list.Element[conn]
}

// key finds a connection by what a peer says: its CA GUID, and its
// communication ID or QPN.
type key struct {
	guid   mad.GUID
	peer   uint32
	number uint32
}

// peer is a pair of addresses that connections have in common.
type peer struct {
	addresses
	number     uint32 // in keys
	conns      int
	only       *conn // over a control connection: the latest
	waiting    int   // half-open requests that wait for the program
	halfOpen   int
	crowd      crowd
	unanswered list.List[conn] // half-open requests that wait for the RTU
}

type addresses struct {
	local, remote netip.Addr
	control       uint32 // of Path
}

func (c *conn) path() Path {
	return Path{Local: c.peer.local, Remote: c.peer.remote, TrafficClass: c.class, HopLimit: hopLimit, FlowLabel: c.flowLabel, Control: c.peer.control}
}

const hopLimit = 64

// addressesOf returns what identifies a peer. IPv4 has one form.
func addressesOf(p *Path) addresses {
	return addresses{p.Local.Unmap(), p.Remote.Unmap(), p.Control}
}
