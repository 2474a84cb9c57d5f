package verbs

import "github.com/gosoftroce/rocev2/ib"

// WCOpcode says what kind of work completed. The constants below are the kinds,
// with the numbers of ibv_wc_opcode.
type WCOpcode = ib.WCOpcode

// Kinds of completed work.
const (
	WCSend         WCOpcode = ib.WCSend         // SEND of any kind
	WCWrite        WCOpcode = ib.WCWrite        // WRITE of any kind
	WCRead         WCOpcode = ib.WCRead         // READ: the data is there
	WCCompareSwap  WCOpcode = ib.WCCompareSwap  // the old value is there
	WCFetchAdd     WCOpcode = ib.WCFetchAdd     // the old value is there
	WCFlush        WCOpcode = ib.WCFlush        // OpFlush: it is done
	WCAtomicWrite  WCOpcode = ib.WCAtomicWrite  // OpAtomicWrite
	WCBindMW       WCOpcode = ib.WCBindMW       // a memory window is bound
	WCLocalInv     WCOpcode = ib.WCLocalInv     // a key of this side has ended
	WCRegMR        WCOpcode = ib.WCRegMR        // a fast registration region is valid
	WCRecv         WCOpcode = ib.WCRecv         // a receive, by a SEND
	WCRecvWriteImm WCOpcode = ib.WCRecvWriteImm // a receive, by OpWriteImm
)

// Status is the outcome of a work request, with the numbers of ibv_wc_status.
// The constants below are the outcomes that occur. String returns the name of
// ibv_wc_status without its prefix, such as "RETRY_EXC_ERR".
//
// A Status is an error, too: a WCError wraps it, so that errors.Is(err,
// StatusRetryExcErr) tells the outcome.
type Status = ib.Status

// Outcomes of work requests (IBTA 11.6.2). After each but StatusSuccess the
// queue pair is in ERR.
const (
	StatusSuccess Status = ib.StatusSuccess
	// StatusLocLenErr: a message is longer than the receive buffer.
	StatusLocLenErr Status = ib.StatusLocLenErr
	// StatusLocQPOpErr: the queue pair cannot carry out the request.
	StatusLocQPOpErr Status = ib.StatusLocQPOpErr
	// StatusLocProtErr: SGList names no memory of the protection domain, or
	// memory without the right.
	StatusLocProtErr Status = ib.StatusLocProtErr
	// StatusWRFlushErr: the queue pair was in ERR, or came there before the
	// request was carried out.
	StatusWRFlushErr Status = ib.StatusWRFlushErr
	// StatusMWBindErr: a memory window cannot be bound so.
	StatusMWBindErr Status = ib.StatusMWBindErr
	// StatusBadRespErr: the peer sent a response that does not fit the
	// request.
	StatusBadRespErr Status = ib.StatusBadRespErr
	// StatusRemInvReqErr: the peer refuses the request; path MTU, message
	// size or rights of the two sides differ. A receive has it for a
	// request of the peer that was refused.
	StatusRemInvReqErr Status = ib.StatusRemInvReqErr
	// StatusRemAccessErr: the peer refuses the address, the key or the
	// access.
	StatusRemAccessErr Status = ib.StatusRemAccessErr
	// StatusRemOpErr: the peer could not carry out the request.
	StatusRemOpErr Status = ib.StatusRemOpErr
	// StatusRetryExcErr: the peer does not acknowledge, after RetryCount
	// retries.
	StatusRetryExcErr Status = ib.StatusRetryExcErr
	// StatusRNRRetryExcErr: the peer has no receive posted, after RNRRetry
	// retries.
	StatusRNRRetryExcErr Status = ib.StatusRNRRetryExcErr
)

// WC is a work completion: what [CQ.Poll] and [CQ.Wait] return. After an error
// only ID, Status, Opcode, QPN and VendorErr have a meaning.
type WC struct {
	ID     uint64   // SendWR.ID or RecvWR.ID of the request
	Status Status   // StatusSuccess, or why it failed
	Opcode WCOpcode // what completed

	WithImm   bool // of a receive: Imm is set
	WithInv   bool // of a receive: InvalidatedKey is set
	Solicited bool // of a receive: the sender solicited an event
	WithGRH   bool // of a receive of UD: 40 bytes of routing header come first, which ByteLen counts

	ByteLen        uint32 // bytes of the message, up to 2^31
	Imm            uint32 // immediate data
	InvalidatedKey Key    // the key of this side that the peer has ended
	QPN            QPN    // the local queue pair, see Device.QP
	SrcQPN         QPN    // of a receive: the peer's queue pair

	// VendorErr says after an error what went wrong in detail: VendorFault
	// plus a Fault, VendorNAK plus the syndrome of a NAK, or 0. Fault and
	// Vendor read it.
	VendorErr uint32

	// Timestamp is when the work completed, in nanoseconds of the device's
	// clock. It is 0 unless the queue was made for it.
	Timestamp uint64
}

// What [WC.VendorErr] holds after an error.
const (
	// VendorFault plus a Fault: an access to local memory failed.
	VendorFault uint32 = ib.VendorFault
	// VendorNAK plus a syndrome (8 bits, IBTA 9.7.5.2.1): the peer sent
	// that NAK.
	VendorNAK uint32 = ib.VendorNAK
)

// Err returns nil for a success, else a *WCError: errors.Is(err,
// StatusRetryExcErr) tells the status, errors.As gives the whole completion.
func (c WC) Err() error {
	if c.Status == StatusSuccess {
		return nil
	}
	return &WCError{WC: c}
}

// String says what completed and how, in words.
func (c WC) String() string { return ib.WC(c).String() }

// Explain says in words what the status of the completion means, or where to
// look. It is empty for a success and for a status that does not occur.
func (c WC) Explain() string { return ib.WC(c).Explain() }

// Vendor says in words what VendorErr tells: the NAK that the peer sent, or the
// check of a memory access that failed. It is empty if VendorErr is 0.
func (c WC) Vendor() string { return ib.WC(c).Vendor() }

// Fault returns the check of an access to local memory that failed, such as
// FaultUnknownKey. It is FaultNone if the request did not fail by one.
func (c WC) Fault() Fault {
	if c.VendorErr&^0xff != VendorFault {
		return FaultNone
	}
	return Fault(c.VendorErr & 0xff)
}

// WCError is the error of a completion without success, see [WC.Err].
type WCError struct {
	WC WC // the completion
}

// Error says what failed, with which status, and what that means.
func (e *WCError) Error() string { return e.WC.String() }

// Unwrap returns the Status, and the Fault if there is one: errors.Is and
// errors.As find both.
func (e *WCError) Unwrap() []error {
	if f := e.WC.Fault(); f != FaultNone {
		return []error{e.WC.Status, f}
	}
	return []error{e.WC.Status}
}

// Fault says which check of a memory access failed. The constants below are the
// faults. [WC.Fault] returns it for a request that failed. A Fault is an error,
// too: the errors of [MR.Load64], [MR.WriteAt] and the like wrap it, and so
// does a WCError.
type Fault = ib.Fault

// Faults, in the order in which the checks are made.
const (
	// FaultNone: there is no fault.
	FaultNone Fault = ib.FaultNone
	// FaultUnknownKey: no open region has the key.
	FaultUnknownKey Fault = ib.FaultUnknownKey
	// FaultWrongPD: the region belongs to another protection domain.
	FaultWrongPD Fault = ib.FaultWrongPD
	// FaultNoAccess: the region does not grant the access.
	FaultNoAccess Fault = ib.FaultNoAccess
	// FaultOutOfBounds: address and length are not inside the region.
	FaultOutOfBounds Fault = ib.FaultOutOfBounds
	// FaultMisaligned: the address of an atomic is not a multiple of 8.
	FaultMisaligned Fault = ib.FaultMisaligned
	// FaultGone: the region was closed while it was in use.
	FaultGone Fault = ib.FaultGone
	// FaultMemory: the memory of the region cannot be reached, for example
	// because its file was truncated. See PD.MapFile.
	FaultMemory Fault = ib.FaultMemory
	// FaultNotInvalidatable: the key is of a region, or of a window of type
	// 1, which only its owner ends.
	FaultNotInvalidatable Fault = ib.FaultNotInvalidatable
	// FaultState: a window of type 2 is bound already, a fast registration
	// region is valid already or has no memory, or windows are bound to it.
	FaultState Fault = ib.FaultState
)
