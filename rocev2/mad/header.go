package mad

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// Len is the size of every MAD in bytes (IBTA 13.4.2).
	Len = 256
	// HeaderLen is the size of the header in bytes. The message follows it.
	HeaderLen = 24
	// QKey is the queue key of queue pair 1 (IBTA 10.2.5).
	QKey = 0x80010000
	// ClassCM is the management class of connection management (IBTA
	// 16.7.1).
	ClassCM = 0x07

	bodyLen = Len - HeaderLen
)

// What the header of a connection management MAD says (IBTA 16.7.1).
const (
	baseVersion  = 1
	classVersion = 2
	methodSend   = 0x03 // for every message, both ways
)

var be = binary.BigEndian

// Why a datagram is not a message of connection management. Such are dropped
// in silence.
var (
	ErrLength       = errors.New("mad: a MAD has 256 bytes")
	ErrBaseVersion  = errors.New("mad: the base version is not 1")
	ErrClass        = errors.New("mad: not of the communication management class, 0x07")
	ErrClassVersion = errors.New("mad: the class version is not 2")
	ErrMethod       = errors.New("mad: the method is not Send, 0x03")
	ErrAttribute    = errors.New("mad: not the attribute ID of this message")
)

// Attribute says which message a MAD is (IBTA 16.7.3).
type Attribute uint16

// The messages of connection management.
const (
	AttrREQ     Attribute = 0x10 // request for communication
	AttrMRA     Attribute = 0x11 // message receipt acknowledgement
	AttrREJ     Attribute = 0x12 // reject
	AttrREP     Attribute = 0x13 // reply to a request
	AttrRTU     Attribute = 0x14 // ready to use
	AttrDREQ    Attribute = 0x15 // request for disconnection
	AttrDREP    Attribute = 0x16 // reply to a request for disconnection
	AttrSIDRREQ Attribute = 0x17 // service ID resolution request
	AttrSIDRREP Attribute = 0x18 // service ID resolution response
	AttrLAP     Attribute = 0x19 // load alternate path
	AttrAPR     Attribute = 0x1a // alternate path response
)

var attributes = [...]string{"REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR"}

// String returns the name of the message, for example "REQ".
func (a Attribute) String() string {
	if a.Valid() {
		return attributes[a-AttrREQ]
	}
	return fmt.Sprintf("attribute 0x%04x", uint16(a))
}

// Valid reports whether connection management has the message.
func (a Attribute) Valid() bool { return a >= AttrREQ && a <= AttrAPR }

// Header is the common header of a MAD (IBTA 13.4.3): 24 bytes.
//
//	0: base version   1: management class   2: class version   3: method
//	4-5: status   6-7: class specific   8-15: transaction ID
//	16-17: attribute ID   18-19: reserved   20-23: attribute modifier
type Header struct {
	BaseVersion   uint8
	Class         uint8
	ClassVersion  uint8
	Method        uint8
	Status        uint16
	ClassSpecific uint16
	TransactionID uint64
	Attribute     Attribute
	Modifier      uint32 // of the attribute; in REQ, REP and SIDR_REP the options of ECE
}

// AppendTo appends the encoded header to b.
func (h *Header) AppendTo(b []byte) []byte {
	b = append(b, h.BaseVersion, h.Class, h.ClassVersion, h.Method)
	b = be.AppendUint16(b, h.Status)
	b = be.AppendUint16(b, h.ClassSpecific)
	b = be.AppendUint64(b, h.TransactionID)
	b = be.AppendUint32(b, uint32(h.Attribute)<<16)
	return be.AppendUint32(b, h.Modifier)
}

// Parse decodes the header of a MAD of any class. The error is ErrLength.
func (h *Header) Parse(b []byte) error {
	if len(b) != Len {
		return ErrLength
	}
	*h = Header{
		BaseVersion: b[0], Class: b[1], ClassVersion: b[2], Method: b[3],
		Status: be.Uint16(b[4:]), ClassSpecific: be.Uint16(b[6:]), TransactionID: be.Uint64(b[8:]),
		Attribute: Attribute(be.Uint16(b[16:])), Modifier: be.Uint32(b[20:]),
	}
	return nil
}

// Check returns nil if the header is that of a message of connection
// management, and otherwise one of the errors of this package. As Linux does,
// it ignores the status, the transaction ID and the modifier.
func (h *Header) Check() error {
	switch {
	case h.BaseVersion != baseVersion:
		return ErrBaseVersion
	case h.Class != ClassCM:
		return ErrClass
	case h.ClassVersion != classVersion:
		return ErrClassVersion
	case h.Method != methodSend:
		return ErrMethod
	case !h.Attribute.Valid():
		return ErrAttribute
	}
	return nil
}

// begin appends a MAD whose message is all zeros. It returns the longer slice,
// and the message in it.
func begin(b []byte, a Attribute, transaction uint64, modifier uint32) (whole, body []byte) {
	h := Header{
		BaseVersion: baseVersion, Class: ClassCM, ClassVersion: classVersion, Method: methodSend,
		TransactionID: transaction, Attribute: a, Modifier: modifier,
	}
	b = h.AppendTo(b)
	b = append(b, zeros[:]...)
	return b, b[len(b)-bodyLen:]
}

var zeros [bodyLen]byte

// open checks that b is a MAD with message a, and returns the message.
func open(b []byte, a Attribute) (h Header, body []byte, err error) {
	if err := h.Parse(b); err != nil {
		return h, nil, err
	}
	if err := h.Check(); err != nil {
		return h, nil, err
	}
	if h.Attribute != a {
		return h, nil, ErrAttribute
	}
	return h, b[HeaderLen:], nil
}

// putData copies private data, or additional information, into its field. It
// panics if the data is longer: that is a mistake of the program.
func putData(field, data []byte) {
	if len(data) > len(field) {
		panic(fmt.Sprintf("mad: %d bytes of data for a field of %d", len(data), len(field)))
	}
	copy(field, data)
}

func put24(b []byte, v uint32) { b[0], b[1], b[2] = byte(v>>16), byte(v>>8), byte(v) }

func get24(b []byte) uint32 { return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]) }

func bit(set bool, bit uint8) uint8 {
	if set {
		return bit
	}
	return 0
}
