package mad

import "github.com/gosoftroce/rocev2/rocev2"

// The sizes of the private data in bytes.
const (
	REPPrivateLen = 196
	RTUPrivateLen = 224
)

// REP accepts a REQ (IBTA 12.6.8).
//
//	0-3: local communication ID   4-7: remote communication ID   8-11: Q_Key
//	12-14: QPN   15, 19, 23: vendor ID   16-18: EECN   20-22: PSN
//	24: responder resources   25: initiator depth
//	26: target ACK delay (7-3), failover accepted (2-1), flow control (0)
//	27: RNR retry count (7-5), SRQ (4)   28-35: CA GUID
//	36-231: private data
type REP struct {
	TransactionID      uint64
	LocalID, RemoteID  CommID
	ECE                ECE
	LocalQKey          uint32
	LocalQPN           rocev2.QPN
	LocalEECN          uint32     // 24 bits, of RD
	StartingPSN        rocev2.PSN // the first that the receiver sends
	ResponderResources uint8
	InitiatorDepth     uint8
	TargetAckDelay     uint8 // 5 bits, see Timeout
	FailoverAccepted   uint8 // 2 bits
	FlowControl        bool
	RNRRetryCount      uint8 // 0 to 7
	SRQ                bool
	LocalGUID          GUID
	Private            []byte // at most REPPrivateLen; after Parse it aliases the MAD, and is the whole field
}

// Attribute returns AttrREP.
func (m *REP) Attribute() Attribute { return AttrREP }

// AppendTo appends the encoded MAD to b. It panics if the private data is too
// long.
func (m *REP) AppendTo(b []byte) []byte {
	b, c := begin(b, AttrREP, m.TransactionID, m.ECE.Options)
	putIDs(c, m.LocalID, m.RemoteID)
	be.PutUint32(c[8:], m.LocalQKey)
	put24(c[12:], uint32(m.LocalQPN))
	put24(c[16:], m.LocalEECN)
	put24(c[20:], uint32(m.StartingPSN))
	c[15], c[19], c[23] = uint8(m.ECE.VendorID>>16), uint8(m.ECE.VendorID>>8), uint8(m.ECE.VendorID)
	c[24] = m.ResponderResources
	c[25] = m.InitiatorDepth
	c[26] = m.TargetAckDelay<<3 | m.FailoverAccepted&3<<1 | bit(m.FlowControl, 1)
	c[27] = m.RNRRetryCount<<5 | bit(m.SRQ, 0x10)
	be.PutUint64(c[28:], uint64(m.LocalGUID))
	putData(c[36:], m.Private)
	return b
}

// Parse decodes a MAD. The error is one of this package.
func (m *REP) Parse(b []byte) error {
	h, c, err := open(b, AttrREP)
	if err != nil {
		return err
	}
	*m = REP{
		TransactionID:      h.TransactionID,
		ECE:                ECE{VendorID: uint32(c[15])<<16 | uint32(c[19])<<8 | uint32(c[23]), Options: h.Modifier},
		LocalQKey:          be.Uint32(c[8:]),
		LocalQPN:           rocev2.QPN(get24(c[12:])),
		LocalEECN:          get24(c[16:]),
		StartingPSN:        rocev2.PSN(get24(c[20:])),
		ResponderResources: c[24],
		InitiatorDepth:     c[25],
		TargetAckDelay:     c[26] >> 3,
		FailoverAccepted:   c[26] >> 1 & 3,
		FlowControl:        c[26]&1 != 0,
		RNRRetryCount:      c[27] >> 5,
		SRQ:                c[27]&0x10 != 0,
		LocalGUID:          GUID(be.Uint64(c[28:])),
		Private:            c[36:],
	}
	m.LocalID, m.RemoteID = getIDs(c)
	return nil
}

func putIDs(c []byte, local, remote CommID) {
	be.PutUint32(c[0:], uint32(local))
	be.PutUint32(c[4:], uint32(remote))
}

func getIDs(c []byte) (local, remote CommID) {
	return CommID(be.Uint32(c)), CommID(be.Uint32(c[4:]))
}

// RTU says that the REP has arrived, and that the sender is ready (IBTA
// 12.6.9).
//
//	0-3: local communication ID   4-7: remote communication ID
//	8-231: private data
type RTU struct {
	TransactionID     uint64
	LocalID, RemoteID CommID
	Private           []byte // at most RTUPrivateLen; after Parse it aliases the MAD, and is the whole field
}

// Attribute returns AttrRTU.
func (m *RTU) Attribute() Attribute { return AttrRTU }

// AppendTo appends the encoded MAD to b. It panics if the private data is too
// long.
func (m *RTU) AppendTo(b []byte) []byte {
	b, c := begin(b, AttrRTU, m.TransactionID, 0)
	putIDs(c, m.LocalID, m.RemoteID)
	putData(c[8:], m.Private)
	return b
}

// Parse decodes a MAD. The error is one of this package.
func (m *RTU) Parse(b []byte) error {
	h, c, err := open(b, AttrRTU)
	if err != nil {
		return err
	}
	*m = RTU{TransactionID: h.TransactionID, Private: c[8:]}
	m.LocalID, m.RemoteID = getIDs(c)
	return nil
}
