package verbs

import (
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
	// Status is the outcome of a work request; its String is the name that
	// ibv_wc_status has for it.
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
	// MTU is a path MTU.
	MTU = rocev2.MTU
	// Service is a transport service type.
	Service = rocev2.Service
	// EventKind names an asynchronous event.
	EventKind = hca.EventKind
	// Stats is a snapshot of a device's counters.
	Stats = hca.Stats
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

// Path MTUs, in bytes of payload.
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

// ErrClosed is returned for an object that has been closed;
// errors.Is(err, net.ErrClosed) holds for it.
var ErrClosed = hca.ErrClosed
