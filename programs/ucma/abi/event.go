package abi

import (
	"encoding/binary"

	uabi "github.com/gosoftroce/rocev2/programs/uverbs/abi"
)

// Event is rdma_ucm_event_resp, but for what both kinds of connections have
// there.
type Event struct {
	UID    uint64
	ID     uint32
	Type   uint32
	Status int32
	Param  any // a *ConnParam or a *UDParam; nil: there is nothing to say
	ECE    ECE
}

// UDParam is rdma_ucm_ud_param.
type UDParam struct {
	QPN, QKey uint32
	AH        uabi.AHAttr
	Private   Private
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
	if e.Param != nil {
		_, _ = binary.Encode(b[eventUnion:], le, e.Param) // it has room
	}
	_, _ = binary.Encode(b[EventLen-8:], le, e.ECE) // likewise
	return b[:min(room, len(b))]
}
