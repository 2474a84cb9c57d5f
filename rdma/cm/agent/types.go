package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// ID is the local communication ID of a connection, or the ID of a SIDR request
// here.
type ID uint32

// Path is the way of a MAD. For those that arrive, too, Local is this side's
// address.
type Path struct {
	Local, Remote netip.Addr
	TrafficClass  uint8
	HopLimit      uint8  // 0 is 64
	FlowLabel     uint32 // 20 bits

	// Control is the control connection that the MAD comes or goes over:
	// see the package documentation. 0 is the network.
	Control uint32
}

// Why a method did nothing.
var (
	ErrUnknownID  = errors.New("agent: no such communication ID (it has ended)")
	ErrListening  = errors.New("agent: somebody listens for this service ID already")
	ErrParameter  = errors.New("agent: bad parameter")
	errTooLong    = fmt.Errorf("%w: private data, or reject information, longer than its field", ErrParameter)
	errAddresses  = fmt.Errorf("%w: the path needs two addresses of one family", ErrParameter)
	errPathMTU    = fmt.Errorf("%w: the path MTU is a code from 1 (256 bytes) to 5 (4096)", ErrParameter)
	errAckTimeout = fmt.Errorf("%w: a local ACK timeout of 0 means none here, but Linux takes it as 8 µs; choose 1 to 31", ErrParameter)
)

// StateError says that a method does not fit the state of a connection.
type StateError struct {
	Op    string
	State State
}

// Error says what cannot be done in which state.
func (e *StateError) Error() string {
	return fmt.Sprintf("agent: cannot %s in state %v", e.Op, e.State)
}

// State is the state of a connection, or of a resolution (IBTA 12.9.7).
type State uint8

// The states.
const (
	StateIdle         State = iota // not known
	StateREQSent                   // active: waits for a REP
	StateREPReceived               // active: waits for Ready
	StateREQReceived               // passive: waits for Accept or Reject
	StateREPSent                   // passive: waits for an RTU
	StateEstablished               // both
	StateDREQSent                  // waits for a DREP
	StateDREQReceived              // waits for Disconnect
	StateTimewait                  // late packets may come
	StateSIDRSent                  // waits for a SIDR_REP
	StateSIDRReceived              // waits for Answer
)

var states = [...]string{
	"idle", "REQ sent", "REP received", "REQ received", "REP sent", "established", "DREQ sent", "DREQ received",
	"timewait", "SIDR sent", "SIDR received",
}

// String returns the name of the state.
func (s State) String() string {
	if int(s) < len(states) {
		return states[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// EventKind says what has happened.
type EventKind uint8

// The events. Those that are final end the ID.
const (
	EventRequest             EventKind = iota + 1 // passive: a REQ. Answer with Accept, Reject or Release
	EventReply                                    // active: a REP. Answer with Ready, Reject or Release
	EventEstablished                              // passive: the RTU
	EventRejected                                 // final. A REJ, before the connection was established
	EventUnreachable                              // final. The peer did not answer, or the agent made room for others
	EventDisconnectRequested                      // a DREQ. Answer with Disconnect, Confirm or Release
	EventDisconnected                             // the DREP, or the peer is silent; timewait begins
	EventTimewaitExit                             // final
	EventSIDRRequest                              // a SIDR_REQ. Answer with Answer or Release
	EventSIDRReply                                // final. The SIDR_REP
)

var eventKinds = [...]string{
	"none", "request", "reply", "established", "rejected", "unreachable", "disconnect requested", "disconnected",
	"timewait exit", "SIDR request", "SIDR reply",
}

// String returns the name of the event.
func (k EventKind) String() string {
	if int(k) < len(eventKinds) {
		return eventKinds[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Final reports whether the event ends its ID.
func (k EventKind) Final() bool {
	switch k {
	case EventRejected, EventUnreachable, EventTimewaitExit, EventSIDRReply:
		return true
	}
	return false
}

// Event is what the program must know. Its messages and slices are the
// program's own.
type Event struct {
	Kind EventKind
	ID   ID
	Path Path // to the peer

	Request     *mad.REQ     // of EventRequest
	QPN         rocev2.QPN   // of EventRequest: that the peer was told; 0: it was not answered yet
	PSN         rocev2.PSN   // the first that the peer sends, with QPN
	ECE         mad.ECE      // what the REP said of this side, with QPN
	Reply       *mad.REP     // of EventReply
	SIDRRequest *mad.SIDRREQ // of EventSIDRRequest
	SIDRReply   *mad.SIDRREP // of EventSIDRReply

	// Reason is that of a REJ, of EventRejected and of EventDisconnected
	// where the peer sent one, or else 0.
	Reason mad.Reason
	// Own reports that the agent itself refused the peer's REP, and sent
	// the REJ.
	Own bool
	ARI []byte // of a REJ
	// TimedOut reports, for EventDisconnected, that no DREP came.
	TimedOut bool
	// Private is the private data of an RTU, REJ, DREQ or DREP: its whole
	// field. It is nil where no message is the cause.
	Private []byte
}

// ConnectRequest says what Connect sends.
type ConnectRequest struct {
	Path Path
	// REQ is the message. Connect fills in the transaction ID, local ID, CA
	// GUID and the addresses of the primary path, and what is 0 of: P_Key
	// (0xffff), response timeouts (20, 4.3 s), MaxRetries (15), and of the
	// primary path the LIDs (0xffff), traffic class, flow label and hop
	// limit.
	REQ mad.REQ
	// FirstTimeout is after how long the REQ goes again for the first time;
	// 0 is Config.FirstTimeout. After two more such times it doubles.
	FirstTimeout time.Duration
	// MaxTimeout is the longest it comes to. 0 is what Linux uses from the
	// beginning: the remote response timeout and half a second.
	MaxTimeout time.Duration
	// Patience is how long the agent asks again, several times a second,
	// where the peer says that no program listens: one may be about to. At
	// most 12 s; 0 is not at all.
	Patience time.Duration
}

// SIDRRequest says what Resolve sends.
type SIDRRequest struct {
	Path         Path
	ServiceID    mad.ServiceID
	PKey         uint16 // 0 is 0xffff
	Private      []byte // at most mad.SIDRREQPrivateLen
	Retries      uint8  // 0 is 15
	FirstTimeout time.Duration
	MaxTimeout   time.Duration
	Patience     time.Duration // as in ConnectRequest
}
