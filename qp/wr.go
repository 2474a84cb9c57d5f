package qp

import (
	"math"
	"strconv"

	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// WROpcode is what a send request does. The numbers are of this package. 0 is no operation: one that was forgotten must not
// become a SEND, nor, as in ibv_wr_opcode, a WRITE.
type WROpcode uint8

// The operations of send requests.
const (
	OpSend        WROpcode = iota + 1 // message into the peer's next receive
	OpSendImm                         // the same with 32 bits of immediate data
	OpSendInv                         // the same, and the peer invalidates one of its keys
	OpWrite                           // RDMA WRITE
	OpWriteImm                        // RDMA WRITE that also consumes a receive, with immediate data
	OpRead                            // RDMA READ into the scatter list
	OpCompareSwap                     // 64-bit compare and swap; the old value goes to the scatter list
	OpFetchAdd                        // 64-bit fetch and add; the old value goes to the scatter list
	numWROpcodes
)

var wrOpcodeNames = [numWROpcodes]string{
	"no operation", "SEND", "SEND_WITH_IMM", "SEND_WITH_INV", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "RDMA_READ",
	"ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD",
}

// String returns the name of ibv_wr_opcode without its prefix.
func (o WROpcode) String() string {
	if o < numWROpcodes {
		return wrOpcodeNames[o]
	}
	return "opcode " + strconv.Itoa(int(o))
}

// RemoteAddr is memory of the peer.
type RemoteAddr struct {
	Addr uint64 // wire address, as the peer gave it
	RKey memreg.Key
}

// OutsideRemote stands for a place outside of the memory that an address was asked for. PostSend refuses it with
// ErrRemote. No region reaches so far up.
var OutsideRemote = RemoteAddr{Addr: math.MaxUint64}

// SendWR is a send request. PostSend copies what it needs: the struct and its slices may be reused after the call, the
// memory that SGList names only after the completion.
type SendWR struct {
	ID        uint64       // comes back in WC.ID
	Opcode    WROpcode     // must be set: 0 is no operation, ErrNoOpcode
	Signaled  bool         // complete to the send queue's sink also on success
	Solicited bool         // set the solicited event bit: SEND and immediate data only, ignored otherwise
	Fence     bool         // start only when all earlier READs and atomics have completed
	SGList    []memreg.SGE // where data comes from; for READ and atomics, where it goes
	// Inline is the data itself, copied by PostSend, instead of SGList if it is not nil. SEND and WRITE only, at most
	// Config.MaxInline bytes.
	Inline        []byte
	Imm           uint32     // OpSendImm, OpWriteImm: most significant byte first on the wire
	InvalidateKey memreg.Key // OpSendInv: the peer's key
	Remote        RemoteAddr // WRITE, READ, atomics
	CompareAdd    uint64     // OpCompareSwap: the value compared with; OpFetchAdd: the value added
	Swap          uint64     // OpCompareSwap
}

// RecvWR is a receive request. PostRecv copies it.
type RecvWR struct {
	ID     uint64       // comes back in WC.ID
	SGList []memreg.SGE // where the message goes, at most 2^32-1 bytes; the memory belongs to the queue pair until it completes
}

// RecvWQE is a receive that a RecvSource hands over.
type RecvWQE struct {
	ID uint64
	// SGList has room for Config.MaxRecvSGE entries. A source appends to SGList[:0].
	SGList []memreg.SGE
}

// RecvSource is where the responder gets receives from when it is not the queue pair's own queue: a shared receive queue
// or a ring of somebody else's. What it hands over belongs to the queue pair and will be completed.
type RecvSource interface {
	// NextRecv fills w with the next receive. It returns false if there is none, which makes the peer wait and retry.
	NextRecv(w *RecvWQE) bool
}

// CompletionSink takes the completions of a send or a receive queue. It must not call back into the queue pair.
type CompletionSink interface {
	// Complete copies c, which is only valid during the call. False means overflow: the completion is lost and the
	// queue pair goes to ERR.
	Complete(c *WC) bool
}

// Status is the result of a work request, with the numbers of ibv_wc_status. It is an error too, the one that a WCError
// unwraps to: errors.Is(err, StatusRetryExcErr). WC.Err is nil for a success.
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
	numStatuses
)

var statusNames = [numStatuses]string{
	"SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR",
	"BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR",
	"RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR", "INV_EECN_ERR",
	"INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR",
}

// String returns the name of ibv_wc_status without its prefix.
func (s Status) String() string {
	if s < numStatuses {
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
	case WCRecv:
		return "RECV"
	case WCRecvWriteImm:
		return "RECV_RDMA_WITH_IMM"
	}
	return "opcode " + strconv.Itoa(int(o))
}

// WC is a completion. After an error only ID, Status, Opcode, QPN and VendorErr have a meaning; Err and String put them
// into words.
type WC struct {
	ID             uint64     // of the request
	Status         Status     // StatusSuccess, or see Err
	Opcode         WCOpcode   // what completed
	WithImm        bool       // a receive: Imm is set
	WithInv        bool       // a receive: InvalidatedKey is set
	Solicited      bool       // a receive: the message asked for an event
	ByteLen        uint32     // bytes of the message; up to 2^31
	Imm            uint32     // immediate data
	InvalidatedKey memreg.Key // the key of this side that the peer has ended
	QPN            rocev2.QPN // the local queue pair
	SrcQPN         rocev2.QPN // a receive: the peer's
	VendorErr      uint32     // what went wrong in detail: VendorFault plus a memreg.Fault, VendorNAK plus a syndrome, or 0; see Vendor
}

// What WC.VendorErr holds after an error.
const (
	VendorFault uint32 = 0x100 // the low byte is the memreg.Fault of a memory access
	VendorNAK   uint32 = 0x200 // the low byte is the syndrome of a NAK that was received
)

// wcOpcodes has the completion of each send request.
var wcOpcodes = [numWROpcodes]WCOpcode{
	OpSend: WCSend, OpSendImm: WCSend, OpSendInv: WCSend, OpWrite: WCWrite, OpWriteImm: WCWrite, OpRead: WCRead,
	OpCompareSwap: WCCompareSwap, OpFetchAdd: WCFetchAdd,
}
