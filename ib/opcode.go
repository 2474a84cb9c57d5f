package ib

import "strconv"

// Opcode is what a send request does. Its number is that of ibv_wr_opcode plus
// one, see IBV: 0 is no operation, so that one that was forgotten does not
// become a WRITE.
type Opcode uint8

// The operations of send requests.
const (
	OpWrite       Opcode = iota + 1 // RDMA WRITE
	OpWriteImm                      // RDMA WRITE that also consumes a receive, with immediate data
	OpSend                          // message into the peer's next receive
	OpSendImm                       // the same with 32 bits of immediate data
	OpRead                          // RDMA READ into the scatter list
	OpCompareSwap                   // 64-bit compare and swap; the old value goes to the scatter list
	OpFetchAdd                      // 64-bit fetch and add; the old value goes to the scatter list
	OpLocalInv                      // ends a key of this side
	OpBindMW                        // binds a memory window of this side
	OpSendInv                       // SEND, and the peer invalidates one of its keys
	_                               // TSO
	_                               // DRIVER1
	_
	_
	OpFlush       // FLUSH: what was written before is visible, or on stable storage
	OpAtomicWrite // ATOMIC WRITE: 8 aligned bytes, written at once
	OpReadInv     // READ, and then a key of this side ends; ibv_wr_opcode has none
	OpRegMR       // makes a fast registration region valid; ibv_wr_opcode has none
	NumOpcodes    // what arrays by Opcode have room for
)

// OpcodeFlags say what an operation is. Code asks for them; it never compares
// the numbers of operations.
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
