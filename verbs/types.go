package verbs

import (
	"fmt"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

// The plain values of the interface are those of the engine.
type (
	// SendWR is a work request for the send queue: ID, Opcode, SGList or Inline,
	// Remote … (go doc github.com/gosoftroce/rocev2/qp.SendWR shows the fields).
	SendWR = ib.SendWR
	// RecvWR is a work request for the receive queue: ID and SGList, the buffer.
	RecvWR = ib.RecvWR
	// SGE is one entry of a scatter/gather list: Addr, Length in bytes, LKey.
	// MR.Slice makes them.
	SGE = ib.SGE
	// WC is a work completion: ID, Status, Opcode, ByteLen, QPN … Err makes an
	// error of it, String tells it in words (go doc github.com/gosoftroce/rocev2/qp.WC shows the fields).
	WC = ib.WC
	// WCError is the error of a completion without success, as WC.Err returns it.
	WCError = ib.WCError
	// Status is the outcome of a work request; its String is the name that
	// ibv_wc_status has for it. A WCError wraps it, so that errors.Is(err,
	// StatusRetryExcErr) tells the outcome.
	Status = ib.Status
	// WCOpcode says what kind of work completed.
	WCOpcode = ib.WCOpcode
	// Opcode is the operation of a send work request.
	Opcode = ib.Opcode
	// RemoteAddr is an address in a region of the peer: Addr and RKey.
	// RemoteMemory.At makes them.
	RemoteAddr = ib.RemoteAddr
	// Access is a set of access rights.
	Access = ib.Access
	// Key is an lkey or an rkey.
	Key = ib.Key
	// State is the state of a queue pair.
	State = ib.State
	// Attr holds the attributes of a queue pair, in the units of the standard
	// (timeouts are codes); go doc github.com/gosoftroce/rocev2/qp.Attr shows the fields.
	Attr = ib.Attr
	// AttrMask says which fields of an Attr are meant.
	AttrMask = ib.AttrMask
	// AddressVector says how to reach the peer.
	AddressVector = ib.AddressVector
	// QPN is a queue pair number.
	QPN = rocev2.QPN
	// PSN is a packet sequence number.
	PSN = rocev2.PSN
	// MTU is a path MTU: a code from 1 to 5, not a number of bytes. Bytes tells
	// those, MTUOf makes an MTU of them.
	MTU = rocev2.MTU
	// Service is a transport service type.
	Service = rocev2.Service
	// EventKind names an asynchronous event.
	EventKind = ib.Event
	// Stats is a snapshot of a device's counters.
	Stats = hca.Stats
	// ModifyError says which transition or attribute Modify refused, and why.
	ModifyError = ib.ModifyError
	// RangeError says that a number is outside of what the device offers.
	RangeError = hca.RangeError
	// QPStats is a snapshot of a queue pair's counters.
	QPStats = qp.Stats
)

// RC is the reliable connection, the transport service that there is.
const RC = rocev2.ServiceRC

// Operations of SendWR.Opcode, which must be set: the zero value is none.
const (
	Send         = ib.OpSend        // a message into the next receive of the peer
	SendWithImm  = ib.OpSendImm     // the same with 32 bits of immediate data, WC.Imm there
	SendWithInv  = ib.OpSendInv     // the same, and the peer ends its key InvalidateKey
	Write        = ib.OpWrite       // into memory of the peer; completes there with nothing
	WriteWithImm = ib.OpWriteImm    // the same, and takes a receive of the peer, with immediate data
	Read         = ib.OpRead        // from memory of the peer into SGList
	CompareSwap  = ib.OpCompareSwap // 8 aligned bytes of the peer become Swap if they equal CompareAdd; SGList gets what they were
	FetchAdd     = ib.OpFetchAdd    // CompareAdd is added to 8 aligned bytes of the peer; SGList gets what they were
)

// Access rights, to be combined with |. Reading by the own device needs none.
const (
	LocalWrite   = ib.LocalWrite   // the device may write: receives, READs, atomics, and all that the peer writes
	RemoteWrite  = ib.RemoteWrite  // the peer may WRITE; needs LocalWrite
	RemoteRead   = ib.RemoteRead   // the peer may READ
	RemoteAtomic = ib.RemoteAtomic // the peer may do atomics; needs LocalWrite
)

// MTUOf returns the path MTU of exactly so many bytes of payload: 256, 512, 1024,
// 2048 or 4096. Others are an error, which says so.
func MTUOf(bytes int) (MTU, error) {
	m, err := rocev2.MTUOf(bytes)
	if err != nil {
		return 0, fmt.Errorf("verbs: %w", err)
	}
	return m, nil
}

// Path MTUs: codes, whose names say the bytes of payload.
const (
	MTU256  = rocev2.MTU256
	MTU512  = rocev2.MTU512
	MTU1024 = rocev2.MTU1024
	MTU2048 = rocev2.MTU2048
	MTU4096 = rocev2.MTU4096
)

// Queue pair states (IBTA 10.3.1).
const (
	StateReset = ib.StateReset // made, or taken back: nothing can be posted
	StateInit  = ib.StateInit  // receives can be posted; packets are dropped
	StateRTR   = ib.StateRTR   // ready to receive: requests of the peer are answered
	StateRTS   = ib.StateRTS   // ready to send: the working state
	StateSQD   = ib.StateSQD   // the send queue drains: what has started ends, nothing starts
	StateSQE   = ib.StateSQE   // of UC and UD only
	StateErr   = ib.StateErr   // everything posted completes with WR_FLUSH_ERR
)

// Attributes of a queue pair, for Modify: each stands for a field of Attr.
const (
	AttrState           = ib.AttrState           // State
	AttrCurState        = ib.AttrCurState        // CurState
	AttrEnableSQDNotify = ib.AttrEnableSQDNotify // EnableSQDNotify
	AttrAccess          = ib.AttrAccess          // Access
	AttrPKeyIndex       = ib.AttrPKeyIndex       // PKeyIndex
	AttrPort            = ib.AttrPort            // Port
	AttrQKey            = ib.AttrQKey            // QKey, of UD
	AttrAV              = ib.AttrAV              // AV
	AttrPathMTU         = ib.AttrPathMTU         // PathMTU
	AttrTimeout         = ib.AttrTimeout         // Timeout
	AttrRetryCount      = ib.AttrRetryCount      // RetryCount
	AttrRNRRetry        = ib.AttrRNRRetry        // RNRRetry
	AttrRQPSN           = ib.AttrRQPSN           // RQPSN
	AttrMaxQPRdAtomic   = ib.AttrMaxQPRdAtomic   // MaxRdAtomic
	AttrMinRNRTimer     = ib.AttrMinRNRTimer     // MinRNRTimer
	AttrSQPSN           = ib.AttrSQPSN           // SQPSN
	AttrMaxDestRdAtomic = ib.AttrMaxDestRdAtomic // MaxDestRdAtomic
	AttrDestQPN         = ib.AttrDestQPN         // DestQPN
)

// Completion statuses that programs commonly tell apart; the others print
// their names.
const (
	StatusSuccess        = ib.StatusSuccess
	StatusLocLenErr      = ib.StatusLocLenErr      // a message is longer than the receive buffer
	StatusLocQPOpErr     = ib.StatusLocQPOpErr     // the queue pair cannot carry out the request
	StatusLocProtErr     = ib.StatusLocProtErr     // SGList names no memory of the domain, or memory without the right
	StatusWRFlushErr     = ib.StatusWRFlushErr     // the queue pair was in ERR, or came there first
	StatusBadRespErr     = ib.StatusBadRespErr     // the peer sent a response that does not fit
	StatusRemInvReqErr   = ib.StatusRemInvReqErr   // the peer refuses the request: path MTU, size or rights differ
	StatusRemAccessErr   = ib.StatusRemAccessErr   // the peer refuses the address, the key or the access
	StatusRemOpErr       = ib.StatusRemOpErr       // the peer could not carry out the request
	StatusRetryExcErr    = ib.StatusRetryExcErr    // the peer does not acknowledge, RetryCount times
	StatusRNRRetryExcErr = ib.StatusRNRRetryExcErr // the peer has no receive posted, RNRRetry times
)

// Kinds of completed work.
const (
	WCSend         = ib.WCSend  // SEND of any kind
	WCWrite        = ib.WCWrite // WRITE of any kind
	WCRead         = ib.WCRead  // READ: the data is there
	WCCompareSwap  = ib.WCCompareSwap
	WCFetchAdd     = ib.WCFetchAdd
	WCRecv         = ib.WCRecv         // a receive: a message has come
	WCRecvWriteImm = ib.WCRecvWriteImm // a receive: a WRITE with immediate data has come
)

// Asynchronous events.
const (
	EventCQError         = ib.EventCQError         // a completion was lost, for the queue was full; its queue pair is in ERR
	EventQPFatal         = ib.EventQPFatal         // a queue pair met an error that no completion tells of; it is in ERR
	EventQPRequestError  = ib.EventQPRequestError  // the peer sent an invalid request; the queue pair is in ERR
	EventQPAccessError   = ib.EventQPAccessError   // the peer violated access rights; the queue pair is in ERR
	EventCommEstablished = ib.EventCommEstablished // the first packet came while the queue pair was in RTR
	EventSQDrained       = ib.EventSQDrained       // a queue pair in SQD has finished what it had begun
	EventLastWQEReached  = ib.EventLastWQEReached  // of shared receive queues, which programs do not have yet
	EventPathMTU         = ib.EventPathMTU         // packets of a queue pair do not fit the way to its peer any more: an MTU there has become smaller
	EventPortError       = ib.EventPortError       // the link fails to receive; the device goes on trying
	EventPortActive      = ib.EventPortActive      // the link receives again after EventPortError
)

// Errors that programs tell apart with errors.Is. The errors that carry them say
// which object, request or attribute it was.
var (
	// ErrClosed is returned for an object that has been closed, or whose device
	// has; errors.Is(err, net.ErrClosed) holds for it.
	ErrClosed = hca.ErrClosed
	// ErrOtherDevice: two objects of different devices cannot work together.
	ErrOtherDevice = hca.ErrOtherDevice
	// ErrNoResources: a limit of the device is reached.
	ErrNoResources = hca.ErrNoResources
	// ErrNoRoom: Wait was given an empty slice.
	ErrNoRoom = hca.ErrNoRoom
	// ErrRange: a range or an offset is not inside the memory.
	ErrRange = ib.ErrRange
)

// Errors of PostSend and PostRecv, in a PostError. Nothing of the request was
// queued, and the queue pair is as before.
var (
	ErrQueueFull     = ib.ErrQueueFull     // as many requests are outstanding as the queue holds: poll completions, then post again
	ErrState         = ib.ErrState         // the state of the queue pair does not allow it: connect it first
	ErrOpcode        = ib.ErrOpcode        // Opcode is not set, or none that exists
	ErrTooManySGE    = ib.ErrTooManySGE    // more entries than QPConfig.MaxSendSGE or MaxRecvSGE
	ErrInline        = ib.ErrInline        // only SEND and WRITE carry inline data
	ErrInlineTooLong = ib.ErrInlineTooLong // more bytes than QPConfig.MaxInline
	ErrTooLong       = ib.ErrTooLong       // a message has at most 2^31 bytes
	ErrAtomicLength  = ib.ErrAtomicLength  // an atomic returns 8 bytes
	ErrNoRdAtomic    = ib.ErrNoRdAtomic    // ConnectConfig.MaxRdAtomic is 0
	ErrRemote        = ib.ErrRemote        // Remote was asked for a place outside of the peer's memory
)

// Errors of Modify and of what calls it, in a ModifyError. Nothing was changed.
var (
	ErrTransition     = ib.ErrTransition     // the state table has no such transition
	ErrAttrMissing    = ib.ErrAttrMissing    // the transition needs an attribute that the mask lacks
	ErrAttrNotAllowed = ib.ErrAttrNotAllowed // the mask names an attribute that the transition does not take
	ErrAttrValue      = ib.ErrAttrValue      // an attribute is out of its range
	ErrCurState       = ib.ErrCurState       // the queue pair is not in Attr.CurState
	ErrNotDrained     = ib.ErrNotDrained     // the send queue has not drained yet
)
