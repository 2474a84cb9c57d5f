package ib

import "strconv"

// Opcode is the operation of a send request. The zero value is none, so that a
// forgotten Opcode is refused: the numbers are those of ibv_wr_opcode plus one,
// see IBV. String returns the name of ibv_wr_opcode without its prefix, such as
// "RDMA_WRITE".
type Opcode uint8

// Operations of SendWR.Opcode (IBTA 9.4). ibv_wr_opcode has neither OpReadInv
// nor OpRegMR.
const (
	// OpWrite writes into memory of the peer. The peer gets no completion.
	OpWrite Opcode = iota + 1
	// OpWriteImm is OpWrite with 32 bits of immediate data. It takes a
	// receive of the peer, whose completion has WC.Imm.
	OpWriteImm
	// OpSend sends a message, which goes into the next receive of the peer.
	OpSend
	// OpSendImm is OpSend with 32 bits of immediate data: WC.Imm at the
	// peer.
	OpSendImm
	// OpRead reads from memory of the peer into SGList.
	OpRead
	// OpCompareSwap sets 8 aligned bytes of the peer to Swap if they equal
	// CompareAdd. What they were before goes to SGList.
	OpCompareSwap
	// OpFetchAdd adds CompareAdd to 8 aligned bytes of the peer. What they
	// were before goes to SGList.
	OpFetchAdd
	// OpLocalInv ends a key of this side: that of a memory window of type
	// 2, of a FastMR, or of a region that is Invalidatable. It is carried
	// out when all requests before it have completed, and requests after it
	// wait.
	OpLocalInv
	// OpBindMW binds a memory window: see MW.BindTo. It is carried out when
	// all requests before it are under way, or with Fence when the READs
	// and atomics among them have completed. Requests after it wait.
	OpBindMW
	// OpSendInv is OpSend, and the peer's key InvalidateKey ends: see
	// Invalidatable.
	OpSendInv
	_ // TSO
	_ // DRIVER1
	_
	_
	// OpFlush completes when what this queue pair has written to memory of
	// the peer before is visible to all there, or on stable storage:
	// FlushType says which, FlushLevel and Length say of which bytes. The
	// peer's region needs the right FlushGlobal or FlushPersistent.
	//
	// It takes the place of a READ among those that may be outstanding.
	// Requests that this queue pair posts after it, except READs, are
	// executed when it is done: so a later OpAtomicWrite may point to what
	// it has made persistent.
	OpFlush
	// OpAtomicWrite writes 8 aligned bytes of the peer at once: no reader
	// sees a part of them. The bytes are Inline, or what SGList names, and
	// are written as they lie in memory. It needs RemoteWrite, and takes
	// the place of a READ among those that may be outstanding.
	OpAtomicWrite
	// OpReadInv is OpRead, and when the data is there the key of this side
	// that is InvalidateKey ends. An OpRegMR or OpBindMW after it that
	// gives the key a new meaning needs Fence.
	OpReadInv
	// OpRegMR makes a FastMR valid: see FastMR.Register. Its order is that
	// of OpBindMW.
	OpRegMR
	NumOpcodes // what arrays by Opcode have room for
)

// OpcodeFlags say what an operation is. Code asks for them. It compares an
// operation itself only for what is of that one alone.
type OpcodeFlags uint16

// The flags of operations.
const (
	OpAnswered     OpcodeFlags = 1 << iota // it has a response of its own: an acknowledgement does not complete it
	OpConsumesRecv                         // it consumes a receive of the peer
	OpCarries                              // its packets carry data of this side, which may be inline
	OpRemote                               // it names memory of the peer
	OpAtomic                               // its result has 8 bytes
	OpArgument                             // its last packet carries 32 bits: immediate data, or the key to invalidate
	OpEmptyAnswer                          // its response is that of an empty READ (IBTA A19)
	OpReads                                // its response brings data, in as many packets as that takes
	OpLocal                                // it sends no packet
	OpInvalidates                          // it ends a key of this side
)

// opcodeInfo is a row of the table of operations.
type opcodeInfo struct {
	name       string
	flags      OpcodeFlags
	completion WCOpcode
}

var opcodes = [NumOpcodes]opcodeInfo{
	OpWrite:       {"RDMA_WRITE", OpCarries | OpRemote, WCWrite},
	OpWriteImm:    {"RDMA_WRITE_WITH_IMM", OpCarries | OpRemote | OpConsumesRecv | OpArgument, WCWrite},
	OpSend:        {"SEND", OpCarries | OpConsumesRecv, WCSend},
	OpSendImm:     {"SEND_WITH_IMM", OpCarries | OpConsumesRecv | OpArgument, WCSend},
	OpRead:        {"RDMA_READ", OpAnswered | OpRemote | OpReads, WCRead},
	OpCompareSwap: {"ATOMIC_CMP_AND_SWP", OpAnswered | OpRemote | OpAtomic, WCCompareSwap},
	OpFetchAdd:    {"ATOMIC_FETCH_AND_ADD", OpAnswered | OpRemote | OpAtomic, WCFetchAdd},
	OpSendInv:     {"SEND_WITH_INV", OpCarries | OpConsumesRecv | OpArgument, WCSend},
	OpFlush:       {"FLUSH", OpAnswered | OpRemote | OpEmptyAnswer, WCFlush},
	OpAtomicWrite: {"ATOMIC_WRITE", OpAnswered | OpCarries | OpRemote | OpEmptyAnswer, WCAtomicWrite},
	OpLocalInv:    {"LOCAL_INV", OpLocal | OpInvalidates, WCLocalInv},
	OpBindMW:      {"BIND_MW", OpLocal, WCBindMW},
	OpReadInv:     {"RDMA_READ_WITH_INV", OpAnswered | OpRemote | OpReads | OpInvalidates, WCRead},
	OpRegMR:       {"REG_MR", OpLocal, WCRegMR},
}

// Known reports whether there is such an operation.
func (o Opcode) Known() bool { return o < NumOpcodes && opcodes[o].name != "" }

// Is reports whether an operation, which is known, has one of the flags.
func (o Opcode) Is(f OpcodeFlags) bool { return opcodes[o].flags&f != 0 }

// Flags returns all flags of an operation, which is known.
func (o Opcode) Flags() OpcodeFlags { return opcodes[o].flags }

// Completion returns the opcode of the operation's completion.
func (o Opcode) Completion() WCOpcode { return opcodes[o].completion }

// IBV returns the number of ibv_wr_opcode.
func (o Opcode) IBV() uint32 { return uint32(o) - 1 }

// OpcodeOfIBV returns the operation with a number of ibv_wr_opcode; it may be
// one that is not known.
func OpcodeOfIBV(n uint32) Opcode {
	if n >= uint32(NumOpcodes) {
		return 0
	}
	return Opcode(n + 1)
}

// String returns the name of ibv_wr_opcode without its prefix.
func (o Opcode) String() string {
	switch {
	case o == 0:
		return "no operation"
	case o.Known():
		return opcodes[o].name
	}
	return "opcode " + strconv.Itoa(int(o))
}

// Opcodes returns every operation.
func Opcodes() []Opcode {
	return []Opcode{OpSend, OpSendImm, OpSendInv, OpWrite, OpWriteImm, OpRead, OpCompareSwap, OpFetchAdd, OpFlush, OpAtomicWrite,
		OpLocalInv, OpBindMW, OpReadInv, OpRegMR}
}
