package ib

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Status is the outcome of a work request, with the numbers of ibv_wc_status.
// String returns the name of ibv_wc_status without its prefix, such as
// "RETRY_EXC_ERR".
//
// A Status is an error, too: a WCError wraps it, so that errors.Is(err,
// StatusRetryExcErr) tells the outcome.
type Status uint8

// Outcomes of work requests (IBTA 11.6.2). After each but StatusSuccess the
// queue pair is in ERR.
const (
	// StatusSuccess: the work is done.
	StatusSuccess Status = iota
	// StatusLocLenErr: a message is longer than the receive buffer.
	StatusLocLenErr
	// StatusLocQPOpErr: the queue pair cannot carry out the request.
	StatusLocQPOpErr
	StatusLocEECOpErr // as the others without a comment it does not occur
	// StatusLocProtErr: SGList names no memory of the protection domain, or
	// memory without the right.
	StatusLocProtErr
	// StatusWRFlushErr: the queue pair was in ERR, or came there before the
	// request was carried out.
	StatusWRFlushErr
	// StatusMWBindErr: a memory window cannot be bound so.
	StatusMWBindErr
	// StatusBadRespErr: the peer sent a response that does not fit the
	// request.
	StatusBadRespErr
	StatusLocAccessErr
	// StatusRemInvReqErr: the peer refuses the request; path MTU, message
	// size or rights of the two sides differ. A receive has it for a
	// request of the peer that was refused.
	StatusRemInvReqErr
	// StatusRemAccessErr: the peer refuses the address, the key or the
	// access.
	StatusRemAccessErr
	// StatusRemOpErr: the peer could not carry out the request.
	StatusRemOpErr
	// StatusRetryExcErr: the peer does not acknowledge, after RetryCount
	// retries.
	StatusRetryExcErr
	// StatusRNRRetryExcErr: the peer has no receive posted, after RNRRetry
	// retries.
	StatusRNRRetryExcErr
	StatusLocRDDViolErr
	StatusRemInvRDReqErr
	StatusRemAbortErr
	StatusInvEECNErr
	StatusInvEECStateErr
	StatusFatalErr
	StatusRespTimeoutErr
	StatusGeneralErr
	NumStatuses
)

var statusNames = [NumStatuses]string{
	"SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR",
	"BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR",
	"RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR", "INV_EECN_ERR",
	"INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR",
}

// String returns the name of ibv_wc_status without its prefix.
func (s Status) String() string {
	if s < NumStatuses {
		return statusNames[s]
	}
	return "status " + strconv.Itoa(int(s))
}

// WCOpcode says what kind of work completed, with the numbers of ibv_wc_opcode.
type WCOpcode uint8

// Kinds of completed work.
const (
	WCSend         WCOpcode = 0   // SEND of any kind
	WCWrite        WCOpcode = 1   // WRITE of any kind
	WCRead         WCOpcode = 2   // READ: the data is there
	WCCompareSwap  WCOpcode = 3   // the old value is there
	WCFetchAdd     WCOpcode = 4   // the old value is there
	WCBindMW       WCOpcode = 5   // a memory window is bound
	WCLocalInv     WCOpcode = 6   // a key of this side has ended
	WCFlush        WCOpcode = 8   // OpFlush: it is done
	WCAtomicWrite  WCOpcode = 9   // OpAtomicWrite
	WCRegMR        WCOpcode = 10  // a fast registration region is valid; ibv_wc_opcode has none
	WCRecv         WCOpcode = 128 // a receive, by a SEND
	WCRecvWriteImm WCOpcode = 129 // a receive, by OpWriteImm
)

// String returns the name of ibv_wc_opcode without its prefix.
func (o WCOpcode) String() string {
	switch o {
	case WCSend:
		return "SEND"
	case WCWrite:
		return "RDMA_WRITE"
	case WCRead:
		return "RDMA_READ"
	case WCCompareSwap:
		return "COMP_SWAP"
	case WCFetchAdd:
		return "FETCH_ADD"
	case WCBindMW:
		return "BIND_MW"
	case WCLocalInv:
		return "LOCAL_INV"
	case WCFlush:
		return "FLUSH"
	case WCAtomicWrite:
		return "ATOMIC_WRITE"
	case WCRegMR:
		return "REG_MR"
	case WCRecv:
		return "RECV"
	case WCRecvWriteImm:
		return "RECV_RDMA_WITH_IMM"
	}
	return "opcode " + strconv.Itoa(int(o))
}

// WC is a work completion: what CQ.Poll and CQ.Wait of package verbs return.
// After an error only ID, Status, Opcode, QPN and VendorErr have a meaning.
type WC struct {
	ID     uint64   // SendWR.ID or RecvWR.ID of the request
	Status Status   // StatusSuccess, or why it failed
	Opcode WCOpcode // what completed

	WithImm   bool // of a receive: Imm is set
	WithInv   bool // of a receive: InvalidatedKey is set
	Solicited bool // of a receive: the sender solicited an event
	WithGRH   bool // of a receive of UD: 40 bytes of routing header come first, which ByteLen counts

	ByteLen        uint32     // bytes of the message, up to 2^31
	Imm            uint32     // immediate data
	InvalidatedKey Key        // the key of this side that the peer has ended
	QPN            rocev2.QPN // the local queue pair, see Device.QP
	SrcQPN         rocev2.QPN // of a receive: the peer's queue pair

	// VendorErr says after an error what went wrong in detail: VendorFault
	// plus a Fault, VendorNAK plus the syndrome of a NAK, or 0. Fault and
	// Vendor read it.
	VendorErr uint32

	// Timestamp is when the work completed, in nanoseconds of the device's
	// clock. It is 0 unless the queue was made for it.
	Timestamp uint64
}

// What WC.VendorErr holds after an error.
const (
	// VendorFault plus a Fault: an access to local memory failed.
	VendorFault uint32 = 0x100
	// VendorNAK plus a syndrome (8 bits, IBTA 9.7.5.2.1): the peer sent
	// that NAK.
	VendorNAK uint32 = 0x200
)

// Error makes a status an error, for errors.Is. It is the name, as String.
func (s Status) Error() string { return s.String() }

// Err returns nil for a success, else a *WCError: errors.Is(err,
// StatusRetryExcErr) tells the status, errors.As gives the whole completion.
func (c WC) Err() error {
	if c.Status == StatusSuccess {
		return nil
	}
	return &WCError{WC: c}
}

// String says what completed and how, in words.
func (c WC) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v (id %d) on QP %v: %v", c.Opcode, c.ID, c.QPN, c.Status)
	if c.Status != StatusSuccess {
		fmt.Fprintf(&b, " (code %d)", uint8(c.Status))
		for _, words := range []string{c.Explain(), c.Vendor()} {
			if words != "" {
				b.WriteString(": " + words)
			}
		}
		return b.String()
	}
	fmt.Fprintf(&b, ", %d bytes", c.ByteLen)
	if c.WithImm {
		fmt.Fprintf(&b, ", immediate data 0x%08x", c.Imm)
	}
	if c.WithInv {
		fmt.Fprintf(&b, ", key %v invalidated", c.InvalidatedKey)
	}
	return b.String()
}

// statusWords say what a status means to the program that gets it, or where to
// look.
var statusWords = [NumStatuses]string{
	StatusLocLenErr:      "a message is longer than the receive buffer",
	StatusLocQPOpErr:     "the queue pair cannot carry out the request",
	StatusLocProtErr:     "a scatter/gather entry names no memory of this protection domain, or memory without the right",
	StatusMWBindErr:      "the memory window could not be bound: its key, the region's key, its rights or the range do not fit, or it is bound already",
	StatusWRFlushErr:     "the queue pair was in the error state, into which an earlier failure or Modify took it; reset it and connect anew",
	StatusBadRespErr:     "the peer sent a response that does not fit the request",
	StatusRemInvReqErr:   "the peer refuses the request: path MTU, message size or access rights of the two sides differ, its receive is too short, or an atomic is not on a multiple of 8 bytes",
	StatusRemAccessErr:   "the peer refuses the address, the key or the access",
	StatusRemOpErr:       "the peer could not carry out the request",
	StatusRetryExcErr:    "the peer does not acknowledge: it or its queue pair is gone, not connected or in the error state, or UDP port 4791 between the two is filtered",
	StatusRNRRetryExcErr: "the peer posts no receive buffers",
}

// Explain says in words what the status of the completion means, or where to
// look. It is empty for a success and for a status that does not occur.
func (c WC) Explain() string {
	if c.Opcode >= WCRecv && (c.Status == StatusRemInvReqErr || c.Status == StatusRemAccessErr || c.Status == StatusRemOpErr) {
		return "the peer's request was refused"
	}
	if c.Status >= NumStatuses {
		return ""
	}
	return statusWords[c.Status]
}

// Vendor says in words what VendorErr tells: the NAK that the peer sent, or the
// check of a memory access that failed. It is empty if VendorErr is 0.
func (c WC) Vendor() string {
	switch low := c.VendorErr & 0xff; {
	case c.VendorErr == 0:
		return ""
	case c.VendorErr == VendorNAK|low:
		return fmt.Sprintf("the peer sent %v (vendor error %#x)", rocev2.Syndrome(low), c.VendorErr)
	case c.VendorErr == VendorFault|low:
		return fmt.Sprintf("memory access: %v (vendor error %#x)", Fault(low).String(), c.VendorErr)
	}
	return fmt.Sprintf("vendor error %#x", c.VendorErr)
}

// Fault returns the check of an access to local memory that failed, such as
// FaultUnknownKey. It is FaultNone if the request did not fail by one.
func (c WC) Fault() Fault {
	if c.VendorErr&^0xff != VendorFault {
		return FaultNone
	}
	return Fault(c.VendorErr & 0xff)
}

// WCError is the error of a completion without success, see WC.Err.
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
