package rocev2

import "strconv"

// Service is a transport service: the upper three bits of an opcode.
type Service uint8

// The transport services (IBTA 9.2.1). The table has no opcode of ServiceRD,
// which has never been implemented.
const (
	ServiceRC  Service = 0 // reliable connection
	ServiceUC  Service = 1 // unreliable connection
	ServiceRD  Service = 2 // reliable datagram
	ServiceUD  Service = 3 // unreliable datagram
	ServiceCNP Service = 4 // congestion notification
	ServiceXRC Service = 5 // extended reliable connection
	// ServiceVendor has opcodes that are specific to a manufacturer. Only
	// peers that have agreed on their meaning may use them.
	ServiceVendor Service = 6
)

var serviceNames = [...]string{"RC", "UC", "RD", "UD", "CNP", "XRC", "VENDOR"}

// String returns the usual abbreviation.
func (s Service) String() string {
	if int(s) < len(serviceNames) {
		return serviceNames[s]
	}
	return "service " + strconv.Itoa(int(s))
}

// Operation is what a packet does, whatever its service and its position in a
// message.
type Operation uint8

// The operations.
const (
	OpSend Operation = iota + 1
	OpWrite
	OpReadRequest
	OpReadResponse
	OpAcknowledge
	OpAtomicAcknowledge
	OpCompareSwap
	OpFetchAdd
	OpFlush
	OpAtomicWrite
	OpCNP
	OpSelectiveAck
)

var operationNames = [...]string{
	OpSend: "SEND", OpWrite: "RDMA_WRITE", OpReadRequest: "RDMA_READ_REQUEST", OpReadResponse: "RDMA_READ_RESPONSE",
	OpAcknowledge: "ACKNOWLEDGE", OpAtomicAcknowledge: "ATOMIC_ACKNOWLEDGE", OpCompareSwap: "COMPARE_SWAP",
	OpFetchAdd: "FETCH_ADD", OpFlush: "FLUSH", OpAtomicWrite: "ATOMIC_WRITE", OpCNP: "CNP",
	OpSelectiveAck: "SELECTIVE_ACKNOWLEDGE",
}

// String returns the name as the specification writes it.
func (o Operation) String() string {
	if o > 0 && int(o) < len(operationNames) {
		return operationNames[o]
	}
	return "operation " + strconv.Itoa(int(o))
}

// Role tells which side of a message a packet belongs to.
type Role uint8

// The roles.
const (
	RoleRequest  Role = iota + 1 // sent by the requester, handled by the responder
	RoleResponse                 // sent by the responder, handled by the requester
	RoleNotify                   // belongs to no message (CNP)
)

// HeaderSet is a set of extended transport headers. On the wire they follow the
// BTH in the order of the constants.
type HeaderSet uint16

// The extended transport headers (IBTA 9.3, A14 for XRCETH, A17 for CNP, A19
// for FETH), in wire order.
const (
	HasXRCETH       HeaderSet = 1 << iota // 4 bytes
	HasDETH                               // 8 bytes
	HasFETH                               // 4 bytes
	HasRETH                               // 16 bytes
	HasAtomicETH                          // 28 bytes
	HasAETH                               // 4 bytes
	HasAtomicAckETH                       // 8 bytes
	HasImmDt                              // 4 bytes
	HasIETH                               // 4 bytes
	HasCNP                                // 16 reserved bytes
)

// Has reports whether all headers of t are in s.
func (s HeaderSet) Has(t HeaderSet) bool { return s&t == t }

// Len returns the length of the headers in bytes.
func (s HeaderSet) Len() int {
	n := 0
	for i, size := range headerSizes {
		if s>>i&1 != 0 {
			n += size
		}
	}
	return n
}

// headerSizes is indexed by the bit number of a HeaderSet constant.
var headerSizes = [...]int{4, 8, 4, 16, 28, 4, 8, 4, 4, 16}

// PayloadRule is how much payload an opcode carries. The codec does not enforce
// it, because it does not know the path MTU. It ignores the payload of a packet
// whose rule is PayloadNone, as Linux does.
type PayloadRule uint8

// The payload rules (IBTA 9.7.4.1.6 and the opcode table of 9.2.1).
const (
	PayloadNone     PayloadRule = iota // no payload
	PayloadMTU                         // exactly the path MTU: first and middle packets
	PayloadNonEmpty                    // 1 byte to the path MTU: last packets
	PayloadAny                         // 0 bytes to the path MTU: only packets
	PayloadEight                       // 8 bytes: ATOMIC_WRITE
)

// Allows reports whether a payload of n bytes obeys the rule on a path whose
// MTU has mtu bytes.
func (r PayloadRule) Allows(n, mtu int) bool {
	switch r {
	case PayloadNone:
		return n == 0
	case PayloadMTU:
		return n == mtu
	case PayloadNonEmpty:
		return n > 0 && n <= mtu
	case PayloadAny:
		return n >= 0 && n <= mtu
	case PayloadEight:
		return n == 8
	}
	return false
}

// Opcode is the first byte of a packet: service and operation (IBTA 9.2.1).
type Opcode uint8

// The opcodes of reliable connections (IBTA 9.2.1; A19 for FLUSH and
// ATOMIC_WRITE).
const (
	RCSendFirst          Opcode = 0x00
	RCSendMiddle         Opcode = 0x01
	RCSendLast           Opcode = 0x02
	RCSendLastImm        Opcode = 0x03
	RCSendOnly           Opcode = 0x04
	RCSendOnlyImm        Opcode = 0x05
	RCWriteFirst         Opcode = 0x06
	RCWriteMiddle        Opcode = 0x07
	RCWriteLast          Opcode = 0x08
	RCWriteLastImm       Opcode = 0x09
	RCWriteOnly          Opcode = 0x0a
	RCWriteOnlyImm       Opcode = 0x0b
	RCReadRequest        Opcode = 0x0c
	RCReadResponseFirst  Opcode = 0x0d
	RCReadResponseMiddle Opcode = 0x0e
	RCReadResponseLast   Opcode = 0x0f
	RCReadResponseOnly   Opcode = 0x10
	RCAcknowledge        Opcode = 0x11
	RCAtomicAcknowledge  Opcode = 0x12
	RCCompareSwap        Opcode = 0x13
	RCFetchAdd           Opcode = 0x14
	RCSendLastInv        Opcode = 0x16
	RCSendOnlyInv        Opcode = 0x17
	RCFlush              Opcode = 0x1c
	RCAtomicWrite        Opcode = 0x1d
)

// The opcodes of unreliable connections (IBTA 9.2.1).
const (
	UCSendFirst    Opcode = 0x20
	UCSendMiddle   Opcode = 0x21
	UCSendLast     Opcode = 0x22
	UCSendLastImm  Opcode = 0x23
	UCSendOnly     Opcode = 0x24
	UCSendOnlyImm  Opcode = 0x25
	UCWriteFirst   Opcode = 0x26
	UCWriteMiddle  Opcode = 0x27
	UCWriteLast    Opcode = 0x28
	UCWriteLastImm Opcode = 0x29
	UCWriteOnly    Opcode = 0x2a
	UCWriteOnlyImm Opcode = 0x2b
)

// The opcodes of unreliable datagrams (IBTA 9.2.1), and the congestion
// notification packet (IBTA A17.9).
const (
	UDSendOnly    Opcode = 0x64
	UDSendOnlyImm Opcode = 0x65
	CNP           Opcode = 0x81
)

// The opcodes of extended reliable connections (IBTA A14). Requests carry an
// XRCETH, responses do not.
const (
	XRCSendFirst          Opcode = 0xa0
	XRCSendMiddle         Opcode = 0xa1
	XRCSendLast           Opcode = 0xa2
	XRCSendLastImm        Opcode = 0xa3
	XRCSendOnly           Opcode = 0xa4
	XRCSendOnlyImm        Opcode = 0xa5
	XRCWriteFirst         Opcode = 0xa6
	XRCWriteMiddle        Opcode = 0xa7
	XRCWriteLast          Opcode = 0xa8
	XRCWriteLastImm       Opcode = 0xa9
	XRCWriteOnly          Opcode = 0xaa
	XRCWriteOnlyImm       Opcode = 0xab
	XRCReadRequest        Opcode = 0xac
	XRCReadResponseFirst  Opcode = 0xad
	XRCReadResponseMiddle Opcode = 0xae
	XRCReadResponseLast   Opcode = 0xaf
	XRCReadResponseOnly   Opcode = 0xb0
	XRCAcknowledge        Opcode = 0xb1
	XRCAtomicAcknowledge  Opcode = 0xb2
	XRCCompareSwap        Opcode = 0xb3
	XRCFetchAdd           Opcode = 0xb4
	XRCSendLastInv        Opcode = 0xb6
	XRCSendOnlyInv        Opcode = 0xb7
	XRCFlush              Opcode = 0xbc
	XRCAtomicWrite        Opcode = 0xbd
)

// SelectiveAck is an opcode of this software's own, of those that are specific
// to a manufacturer (IBTA 9.2.1): a selective acknowledgement, for RC and XRC,
// sent only to peers that are known to be this software. Its PSN is the
// expected one, which is missing. Bit i of its payload, the low bits of a byte
// first, says that the packet i+1 PSNs after that has arrived. The AETH is
// that of an acknowledgement of what comes before the PSN. Its credits, if the
// solicited event bit is set, are no receives: they say how many PSNs after
// the expected one there is room to keep.
const SelectiveAck Opcode = 0xd1

// OpcodeInfo describes an opcode.
type OpcodeInfo struct {
	Name      string // as the specification writes it, with underscores
	Service   Service
	Operation Operation
	First     bool // starts a message; an only packet is First and Last
	Last      bool // ends a message
	Headers   HeaderSet
	HeaderLen int // of the BTH and the extended headers, in bytes
	Payload   PayloadRule
	Role      Role
	WithImm   bool // carries immediate data
	WithInv   bool // carries a key to invalidate
}

// Info returns the description of o, which must not be changed, and whether
// there is one. Without one it describes nothing, but is not nil.
func (o Opcode) Info() (*OpcodeInfo, bool) {
	info := &opcodes[o]
	return info, info.HeaderLen != 0
}

// Service returns the service that the opcode belongs to.
func (o Opcode) Service() Service { return Service(o >> 5) }

// String returns the name of the opcode, such as RC_SEND_ONLY.
func (o Opcode) String() string {
	if info, ok := o.Info(); ok {
		return info.Name
	}
	return "opcode 0x" + string(hexDigits[o>>4]) + string(hexDigits[o&15])
}

const hexDigits = "0123456789abcdef"
