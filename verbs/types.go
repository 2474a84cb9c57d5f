package verbs

import (
	"fmt"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

// The plain values of the interface are those of the engine.
type (
	// SendWR is a work request for the send queue.
	SendWR = qp.SendWR
	// RecvWR is a receive buffer.
	RecvWR = qp.RecvWR
	// SGE is one entry of a scatter/gather list; MR.Slice makes them.
	SGE = memreg.SGE
	// WC is a work completion.
	WC = qp.WC
	// WCError is the error of a completion without success, as WC.Err returns it.
	WCError = qp.WCError
	// Status is the outcome of a work request; its String is the name that
	// ibv_wc_status has for it. A WCError wraps it, so that errors.Is(err,
	// StatusRetryExcErr) tells the outcome.
	Status = qp.Status
	// WCOpcode says what kind of work completed.
	WCOpcode = qp.WCOpcode
	// Opcode is the operation of a send work request.
	Opcode = qp.WROpcode
	// RemoteAddr is an address in a region of the peer.
	RemoteAddr = qp.RemoteAddr
	// Access is a set of access rights.
	Access = memreg.Access
	// Key is an lkey or an rkey.
	Key = memreg.Key
	// State is the state of a queue pair.
	State = qp.State
	// Attr holds the attributes of a queue pair.
	Attr = qp.Attr
	// AttrMask says which fields of an Attr are meant.
	AttrMask = qp.AttrMask
	// AddressVector says how to reach the peer.
	AddressVector = qp.AddressVector
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
	EventKind = hca.EventKind
	// Stats is a snapshot of a device's counters.
	Stats = hca.Stats
	// ModifyError says which transition or attribute Modify refused, and why.
	ModifyError = qp.ModifyError
	// RangeError says that a number is outside of what the device offers.
	RangeError = hca.RangeError
	// QPStats is a snapshot of a queue pair's counters.
	QPStats = qp.Stats
)

// Transport services.
const RC = rocev2.ServiceRC

// Operations.
const (
	Send         = qp.OpSend
	SendWithImm  = qp.OpSendImm
	SendWithInv  = qp.OpSendInv
	Write        = qp.OpWrite
	WriteWithImm = qp.OpWriteImm
	Read         = qp.OpRead
	CompareSwap  = qp.OpCompareSwap
	FetchAdd     = qp.OpFetchAdd
)

// Access rights.
const (
	LocalWrite   = memreg.LocalWrite
	RemoteWrite  = memreg.RemoteWrite
	RemoteRead   = memreg.RemoteRead
	RemoteAtomic = memreg.RemoteAtomic
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

// Queue pair states.
const (
	StateReset = qp.StateReset
	StateInit  = qp.StateInit
	StateRTR   = qp.StateRTR
	StateRTS   = qp.StateRTS
	StateSQD   = qp.StateSQD
	StateSQE   = qp.StateSQE
	StateErr   = qp.StateErr
)

// Attributes of a queue pair, for Modify.
const (
	AttrState           = qp.AttrState
	AttrCurState        = qp.AttrCurState
	AttrEnableSQDNotify = qp.AttrEnableSQDNotify
	AttrAccess          = qp.AttrAccess
	AttrPKeyIndex       = qp.AttrPKeyIndex
	AttrPort            = qp.AttrPort
	AttrQKey            = qp.AttrQKey
	AttrAV              = qp.AttrAV
	AttrPathMTU         = qp.AttrPathMTU
	AttrTimeout         = qp.AttrTimeout
	AttrRetryCount      = qp.AttrRetryCount
	AttrRNRRetry        = qp.AttrRNRRetry
	AttrRQPSN           = qp.AttrRQPSN
	AttrMaxQPRdAtomic   = qp.AttrMaxQPRdAtomic
	AttrMinRNRTimer     = qp.AttrMinRNRTimer
	AttrSQPSN           = qp.AttrSQPSN
	AttrMaxDestRdAtomic = qp.AttrMaxDestRdAtomic
	AttrDestQPN         = qp.AttrDestQPN
)

// Completion statuses that programs commonly tell apart; the others print
// their names.
const (
	StatusSuccess        = qp.StatusSuccess
	StatusLocLenErr      = qp.StatusLocLenErr
	StatusLocQPOpErr     = qp.StatusLocQPOpErr
	StatusLocProtErr     = qp.StatusLocProtErr
	StatusWRFlushErr     = qp.StatusWRFlushErr
	StatusBadRespErr     = qp.StatusBadRespErr
	StatusRemInvReqErr   = qp.StatusRemInvReqErr
	StatusRemAccessErr   = qp.StatusRemAccessErr
	StatusRemOpErr       = qp.StatusRemOpErr
	StatusRetryExcErr    = qp.StatusRetryExcErr
	StatusRNRRetryExcErr = qp.StatusRNRRetryExcErr
)

// Kinds of completed work.
const (
	WCSend         = qp.WCSend
	WCWrite        = qp.WCWrite
	WCRead         = qp.WCRead
	WCCompareSwap  = qp.WCCompareSwap
	WCFetchAdd     = qp.WCFetchAdd
	WCRecv         = qp.WCRecv
	WCRecvWriteImm = qp.WCRecvWriteImm
)

// Asynchronous events.
const (
	EventCQError         = hca.EventCQError
	EventQPFatal         = hca.EventQPFatal
	EventQPRequestError  = hca.EventQPRequestError
	EventQPAccessError   = hca.EventQPAccessError
	EventCommEstablished = hca.EventCommEstablished
	EventSQDrained       = hca.EventSQDrained
	EventLastWQEReached  = hca.EventLastWQEReached
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
	// ErrRange: a range that Slice was asked for is not inside the memory.
	ErrRange = memreg.ErrRange
)

// Errors of PostSend and PostRecv, in a PostError. Nothing of the request was
// queued, and the queue pair is as before.
var (
	ErrQueueFull     = qp.ErrQueueFull     // as many requests are outstanding as the queue holds: poll completions, then post again
	ErrState         = qp.ErrState         // the state of the queue pair does not allow it: connect it first
	ErrOpcode        = qp.ErrOpcode        // Opcode is not set, or none that exists
	ErrTooManySGE    = qp.ErrTooManySGE    // more entries than QPConfig.MaxSendSGE or MaxRecvSGE
	ErrInline        = qp.ErrInline        // only SEND and WRITE carry inline data
	ErrInlineTooLong = qp.ErrInlineTooLong // more bytes than QPConfig.MaxInline
	ErrTooLong       = qp.ErrTooLong       // a message has at most 2^31 bytes
	ErrAtomicLength  = qp.ErrAtomicLength  // an atomic returns 8 bytes
	ErrNoRdAtomic    = qp.ErrNoRdAtomic    // ConnectConfig.MaxRdAtomic is 0
	ErrRemote        = qp.ErrRemote        // Remote was asked for a place outside of the peer's memory
)

// Errors of Modify and of what calls it, in a ModifyError. Nothing was changed.
var (
	ErrTransition     = qp.ErrTransition     // the state table has no such transition
	ErrAttrMissing    = qp.ErrAttrMissing    // the transition needs an attribute that the mask lacks
	ErrAttrNotAllowed = qp.ErrAttrNotAllowed // the mask names an attribute that the transition does not take
	ErrAttrValue      = qp.ErrAttrValue      // an attribute is out of its range
	ErrCurState       = qp.ErrCurState       // the queue pair is not in Attr.CurState
	ErrNotDrained     = qp.ErrNotDrained     // the send queue has not drained yet
)
