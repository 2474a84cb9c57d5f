package abi

import (
	"encoding/binary"

	uabi "github.com/gosoftroce/rocev2/uverbs/abi"
)

// Event is rdma_ucm_event_resp.
type Event struct {
	UID       uint64
	ID        uint32
	Type      uint32
	Status    int32
	Datagrams bool // of the two, UD counts
	Conn      ConnParam
	UD        UDParam
	ECE       ECE
}

// UDParam is rdma_ucm_ud_param.
type UDParam struct {
	QPN, QKey uint32
	AH        uabi.AHAttr
	Private   []byte
}

// Encode returns the response of GET_EVENT, cut to the room that the program
// has; it is nil if there is too little.
func (e *Event) Encode(room int) []byte {
	if room < EventOldLen {
		return nil
	}
	b := make([]byte, EventLen)
	le.PutUint64(b, e.UID)
	le.PutUint32(b[8:], e.ID)
	le.PutUint32(b[12:], e.Type)
	le.PutUint32(b[16:], uint32(e.Status))
	if e.Datagrams {
		e.UD.put(b[eventUnion:])
	} else {
		e.Conn.put(b[eventUnion:])
	}
	le.PutUint32(b[328:], e.ECE.Vendor)
	le.PutUint32(b[332:], e.ECE.Options)
	return b[:min(room, len(b))]
}

func (p *ConnParam) put(b []byte) {
	le.PutUint32(b, p.QPN)
	le.PutUint32(b[4:], p.QKey)
	b[264] = uint8(min(copy(b[8:264], p.Private), 255))
	b[265] = bit(p.SRQ)
	b[266], b[267], b[268] = p.ResponderResources, p.InitiatorDepth, bit(p.FlowControl)
	b[269], b[270] = p.RetryCount, p.RNRRetryCount
}

func (p *UDParam) put(b []byte) {
	le.PutUint32(b, p.QPN)
	le.PutUint32(b[4:], p.QKey)
	_, _ = binary.Encode(b[8:], le, p.AH) // it has room
	b[296] = uint8(min(copy(b[40:296], p.Private), 255))
}

func bit(v bool) uint8 {
	if v {
		return 1
	}
	return 0
}
