package mad

import "github.com/gosoftroce/rocev2/rocev2"

// The sizes of private data, and of the additional information, in bytes.
// RDMA-CM takes the first 36 of a request for its IP header.
const (
	SIDRREQPrivateLen = 216
	SIDRREPPrivateLen = 136
	SIDRInfoLen       = 72
)

// SIDRREQ asks which UD queue pair serves a service ID (IBTA 12.11.1.1).
//
//	0-3: request ID   4-5: P_Key   8-15: service ID   16-231: private data
type SIDRREQ struct {
	TransactionID uint64
	RequestID     CommID
	PKey          uint16
	ServiceID     ServiceID
	Private       []byte // at most SIDRREQPrivateLen; after Parse it aliases the MAD, and is the whole field
}

// Attribute returns AttrSIDRREQ.
func (m *SIDRREQ) Attribute() Attribute { return AttrSIDRREQ }

// AppendTo appends the encoded MAD to b. It panics if the private data is too
// long.
func (m *SIDRREQ) AppendTo(b []byte) []byte {
	b, c := begin(b, AttrSIDRREQ, m.TransactionID, 0)
	be.PutUint32(c[0:], uint32(m.RequestID))
	be.PutUint16(c[4:], m.PKey)
	be.PutUint64(c[8:], uint64(m.ServiceID))
	putData(c[16:], m.Private)
	return b
}

// Parse decodes a MAD. The error is one of this package.
func (m *SIDRREQ) Parse(b []byte) error {
	h, c, err := open(b, AttrSIDRREQ)
	if err != nil {
		return err
	}
	*m = SIDRREQ{
		TransactionID: h.TransactionID,
		RequestID:     CommID(be.Uint32(c)),
		PKey:          be.Uint16(c[4:]),
		ServiceID:     ServiceID(be.Uint64(c[8:])),
		Private:       c[16:],
	}
	return nil
}

// SIDRREP answers a SIDRREQ (IBTA 12.11.1.2).
//
//	0-3: request ID   4: status   5: length of the information
//	6-7, 11: vendor ID   8-10: QPN   12-19: service ID   20-23: Q_Key
//	24-95: additional information   96-231: private data
type SIDRREP struct {
	TransactionID uint64
	RequestID     CommID
	Status        SIDRStatus
	ECE           ECE
	QPN           rocev2.QPN
	ServiceID     ServiceID
	QKey          uint32
	Info          []byte // additional information, at most SIDRInfoLen; after Parse it aliases the MAD
	Private       []byte // at most SIDRREPPrivateLen; after Parse it aliases the MAD, and is the whole field
}

// Attribute returns AttrSIDRREP.
func (m *SIDRREP) Attribute() Attribute { return AttrSIDRREP }

// AppendTo appends the encoded MAD to b. It panics if information or private
// data are too long.
func (m *SIDRREP) AppendTo(b []byte) []byte {
	b, c := begin(b, AttrSIDRREP, m.TransactionID, m.ECE.Options)
	be.PutUint32(c[0:], uint32(m.RequestID))
	c[4] = uint8(m.Status)
	c[5] = uint8(len(m.Info))
	be.PutUint16(c[6:], uint16(m.ECE.VendorID>>8))
	put24(c[8:], uint32(m.QPN))
	c[11] = uint8(m.ECE.VendorID)
	be.PutUint64(c[12:], uint64(m.ServiceID))
	be.PutUint32(c[20:], m.QKey)
	putData(c[24:96], m.Info)
	putData(c[96:], m.Private)
	return b
}

// Parse decodes a MAD. Of information that claims to be longer than its field,
// it returns the field. The error is one of this package.
func (m *SIDRREP) Parse(b []byte) error {
	h, c, err := open(b, AttrSIDRREP)
	if err != nil {
		return err
	}
	*m = SIDRREP{
		TransactionID: h.TransactionID,
		RequestID:     CommID(be.Uint32(c)),
		Status:        SIDRStatus(c[4]),
		ECE:           ECE{VendorID: uint32(be.Uint16(c[6:]))<<8 | uint32(c[11]), Options: h.Modifier},
		QPN:           rocev2.QPN(get24(c[8:])),
		ServiceID:     ServiceID(be.Uint64(c[12:])),
		QKey:          be.Uint32(c[20:]),
		Info:          information(c[24:96], c[5]),
		Private:       c[96:],
	}
	return nil
}
