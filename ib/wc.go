package ib

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Status is the result of a work request, with the numbers of ibv_wc_status. It
// is an error too, for errors.Is.
type Status uint8

// The statuses.
const (
	StatusSuccess Status = iota
	StatusLocLenErr
	StatusLocQPOpErr
	StatusLocEECOpErr
	StatusLocProtErr
	StatusWRFlushErr
	StatusMWBindErr
	StatusBadRespErr
	StatusLocAccessErr
	StatusRemInvReqErr
	StatusRemAccessErr
	StatusRemOpErr
	StatusRetryExcErr
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

// WCOpcode is what a completion completes, with the numbers of ibv_wc_opcode.
type WCOpcode uint8

// The kinds of completions.
const (
	WCSend         WCOpcode = 0
	WCWrite        WCOpcode = 1
	WCRead         WCOpcode = 2
	WCCompareSwap  WCOpcode = 3
	WCFetchAdd     WCOpcode = 4
	WCBindMW       WCOpcode = 5
	WCLocalInv     WCOpcode = 6
	WCFlush        WCOpcode = 8
	WCAtomicWrite  WCOpcode = 9
	WCRegMR        WCOpcode = 10 // ibv_wc_opcode has none
	WCRecv         WCOpcode = 128
	WCRecvWriteImm WCOpcode = 129
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

// WC is a completion. After an error only ID, Status, Opcode, QPN and VendorErr
// have a meaning; String puts them into words.
type WC struct {
	ID             uint64     // of the request
	Status         Status     // StatusSuccess, or see Explain
	Opcode         WCOpcode   // what completed
	WithImm        bool       // a receive: Imm is set
	WithInv        bool       // a receive: InvalidatedKey is set
	Solicited      bool       // a receive: the message asked for an event
	WithGRH        bool       // a receive: the buffer begins with 40 bytes of routing header (UD), which ByteLen counts
	ByteLen        uint32     // bytes of the message; up to 2^31
	Imm            uint32     // immediate data
	InvalidatedKey Key        // the key of this side that the peer has ended
	QPN            rocev2.QPN // the local queue pair
	SrcQPN         rocev2.QPN // a receive: the peer's
	VendorErr      uint32     // what went wrong in detail: VendorFault plus a Fault, VendorNAK plus a syndrome, or 0; see Vendor
	Timestamp      uint64     // nanoseconds of the device's clock when it completed; 0 unless the queue was made for it
}

// What WC.VendorErr holds after an error.
const (
	VendorFault uint32 = 0x100 // the low byte is the Fault of a memory access
	VendorNAK   uint32 = 0x200 // the low byte is the syndrome of a NAK that was received
)

// Error makes a status an error, for errors.Is. It is the name, as String.
func (s Status) Error() string { return s.String() }

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
// look; nothing for a success or a status that does not occur.
func (c WC) Explain() string {
	if c.Opcode >= WCRecv && (c.Status == StatusRemInvReqErr || c.Status == StatusRemAccessErr || c.Status == StatusRemOpErr) {
		return "the peer's request was refused"
	}
	if c.Status >= NumStatuses {
		return ""
	}
	return statusWords[c.Status]
}

// Vendor says in words what VendorErr tells: the NAK that came, or the check of
// a memory access that failed; nothing if it is 0.
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
