package abi

import "net/netip"

// AH is where datagrams go: ib_uverbs_ah_attr.
type AH struct {
	DGID         netip.Addr // none: the whole is 0
	FlowLabel    uint32
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	SL           uint8
	StaticRate   uint8
}

func (a *AH) put(b []byte) {
	if !a.DGID.IsValid() {
		return
	}
	putGID(b, a.DGID)
	le.PutUint32(b[16:], a.FlowLabel)
	b[20], b[21], b[22] = a.SGIDIndex, a.HopLimit, a.TrafficClass
	b[26], b[28] = a.SL, a.StaticRate
	b[29], b[30] = 1, 1 // global; the port
}

// QPAttr is ib_uverbs_qp_attr, as far as a connection manager sets it.
type QPAttr struct {
	Mask, State, PathMTU, QKey uint32
	RQPSN, SQPSN, DestQPN      uint32
	Access                     uint32
	AH                         AH
	PKeyIndex                  uint16
	MaxRdAtomic                uint8
	MaxDestRdAtomic            uint8
	MinRNRTimer                uint8
	Port                       uint8
	Timeout                    uint8
	RetryCount                 uint8
	RNRRetry                   uint8
}

// Encode returns the response of INIT_QP_ATTR.
func (a *QPAttr) Encode() []byte {
	b := make([]byte, QPAttrLen)
	for i, v := range [...]uint32{a.Mask, a.State, 0, a.PathMTU, 0, a.QKey, a.RQPSN, a.SQPSN, a.DestQPN, a.Access} {
		le.PutUint32(b[4*i:], v)
	}
	a.AH.put(b[40:])
	le.PutUint16(b[124:], a.PKeyIndex)
	b[130], b[131], b[132], b[133] = a.MaxRdAtomic, a.MaxDestRdAtomic, a.MinRNRTimer, a.Port
	b[134], b[135], b[136] = a.Timeout, a.RetryCount, a.RNRRetry
	return b
}

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
	AH        AH
	Private   []byte
}

// Encode returns the response of GET_EVENT, cut to the room that the program
// has; it is nil if there is too little.
func (e *Event) Encode(room int) []byte {
	if room < eventOldLen {
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
	p.AH.put(b[8:])
	b[296] = uint8(min(copy(b[40:296], p.Private), 255))
}

func bit(v bool) uint8 {
	if v {
		return 1
	}
	return 0
}
