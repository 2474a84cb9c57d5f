package mad

import "github.com/gosoftroce/rocev2/rocev2"

// The sizes of the private data in bytes.
const (
	DREQPrivateLen = 220
	DREPPrivateLen = 224
)

// DREQ asks for the end of a connection (IBTA 12.6.10).
//
//	0-3: local communication ID   4-7: remote communication ID
//	8-10: QPN of the receiver   12-231: private data
type DREQ struct {
	TransactionID     uint64
	LocalID, RemoteID CommID
	RemoteQPN         rocev2.QPN // the receiver's
	Private           []byte     // at most DREQPrivateLen; after Parse it aliases the MAD, and is the whole field
}

// Attribute returns AttrDREQ.
func (m *DREQ) Attribute() Attribute { return AttrDREQ }

// AppendTo appends the encoded MAD to b. It panics if the private data is too
// long.
func (m *DREQ) AppendTo(b []byte) []byte {
	b, c := begin(b, AttrDREQ, m.TransactionID, 0)
	putIDs(c, m.LocalID, m.RemoteID)
	put24(c[8:], uint32(m.RemoteQPN))
	putData(c[12:], m.Private)
	return b
}

// Parse decodes a MAD. The error is one of this package.
func (m *DREQ) Parse(b []byte) error {
	h, c, err := open(b, AttrDREQ)
	if err != nil {
		return err
	}
	*m = DREQ{TransactionID: h.TransactionID, RemoteQPN: rocev2.QPN(get24(c[8:])), Private: c[12:]}
	m.LocalID, m.RemoteID = getIDs(c)
	return nil
}

// DREP agrees to the end of a connection (IBTA 12.6.11).
//
//	0-3: local communication ID   4-7: remote communication ID
//	8-231: private data
type DREP struct {
	TransactionID     uint64
	LocalID, RemoteID CommID
	Private           []byte // at most DREPPrivateLen; after Parse it aliases the MAD, and is the whole field
}

// Attribute returns AttrDREP.
func (m *DREP) Attribute() Attribute { return AttrDREP }

// AppendTo appends the encoded MAD to b. It panics if the private data is too
// long.
func (m *DREP) AppendTo(b []byte) []byte {
	b, c := begin(b, AttrDREP, m.TransactionID, 0)
	putIDs(c, m.LocalID, m.RemoteID)
	putData(c[8:], m.Private)
	return b
}

// Parse decodes a MAD. The error is one of this package.
func (m *DREP) Parse(b []byte) error {
	h, c, err := open(b, AttrDREP)
	if err != nil {
		return err
	}
	*m = DREP{TransactionID: h.TransactionID, Private: c[8:]}
	m.LocalID, m.RemoteID = getIDs(c)
	return nil
}
