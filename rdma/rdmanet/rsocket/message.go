package rsocket

import "fmt"

// Op is the kind of a message, in the upper 3 bits of the immediate data.
type Op uint8

// The kinds. The others are reserved.
const (
	OpData    Op = 0 // the bytes of the stream; the value is how many
	OpSGL     Op = 4 // credits, and perhaps a target; the value is the credit
	OpIOMap   Op = 6 // an entry of the I/O map; the value is its index
	OpControl Op = 7 // the value is one of the control codes
)

func (o Op) String() string {
	switch o {
	case OpData:
		return "DATA"
	case OpSGL:
		return "SGL"
	case OpIOMap:
		return "IOMAP"
	case OpControl:
		return "CTRL"
	}
	return fmt.Sprintf("op %d", uint8(o))
}

// Control codes: the value of an OpControl.
const (
	ControlDisconnect uint32 = 0 // the sender is gone
	ControlKeepalive  uint32 = 1 // nothing; rsockets sends an empty WRITE instead
	ControlShutdown   uint32 = 2 // the sender sends no more bytes
)

const valueBits = 29

// MaxValue is the largest value that a message can have.
const MaxValue = 1<<valueBits - 1

// Imm returns the immediate data of a message.
func Imm(op Op, value uint32) uint32 { return uint32(op)<<valueBits | value&MaxValue }

// SplitImm returns what immediate data says.
func SplitImm(imm uint32) (Op, uint32) { return Op(imm >> valueBits), imm & MaxValue }

// Write is an RDMA WRITE with immediate data that is to be posted.
type Write struct {
	Imm  uint32
	Addr uint64 // in the memory of the peer; of a message without bytes it means nothing
	Key  uint32
	// Payload is how many bytes are written: of the stream, or of what
	// Control has put into its buffer.
	Payload int
}
