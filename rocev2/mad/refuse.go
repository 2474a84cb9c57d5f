package mad

// The sizes of private data, and of the additional reject information, in
// bytes.
const (
	MRAPrivateLen = 222
	REJPrivateLen = 148
	ARILen        = 72
)

// MRA says that a message has arrived, and that its answer takes longer (IBTA
// 12.6.6).
//
//	0-3: local communication ID   4-7: remote communication ID
//	8: message (7-6)   9: service timeout (7-3)   10-231: private data
type MRA struct {
	TransactionID     uint64
	LocalID, RemoteID CommID
	Message           Stage
	ServiceTimeout    uint8  // 5 bits, see Timeout
	Private           []byte // at most MRAPrivateLen; after Parse it aliases the MAD, and is the whole field
}

// Attribute returns AttrMRA.
func (m *MRA) Attribute() Attribute { return AttrMRA }

// AppendTo appends the encoded MAD to b. It panics if the private data is too
// long.
func (m *MRA) AppendTo(b []byte) []byte {
	b, c := begin(b, AttrMRA, m.TransactionID, 0)
	putIDs(c, m.LocalID, m.RemoteID)
	c[8] = uint8(m.Message) << 6
	c[9] = m.ServiceTimeout << 3
	putData(c[10:], m.Private)
	return b
}

// Parse decodes a MAD. The error is one of this package.
func (m *MRA) Parse(b []byte) error {
	h, c, err := open(b, AttrMRA)
	if err != nil {
		return err
	}
	*m = MRA{TransactionID: h.TransactionID, Message: Stage(c[8] >> 6), ServiceTimeout: c[9] >> 3, Private: c[10:]}
	m.LocalID, m.RemoteID = getIDs(c)
	return nil
}

// REJ refuses a connection, or ends its establishment (IBTA 12.6.7).
//
//	0-3: local communication ID   4-7: remote communication ID
//	8: message rejected (7-6)   9: length of the information (7-1)
//	10-11: reason   12-83: additional information   84-231: private data
type REJ struct {
	TransactionID     uint64
	LocalID, RemoteID CommID
	Message           Stage
	Reason            Reason
	ARI               []byte // additional reject information, at most ARILen; after Parse it aliases the MAD
	Private           []byte // at most REJPrivateLen; after Parse it aliases the MAD, and is the whole field
}

// Attribute returns AttrREJ.
func (m *REJ) Attribute() Attribute { return AttrREJ }

// AppendTo appends the encoded MAD to b. It panics if information or private
// data are too long.
func (m *REJ) AppendTo(b []byte) []byte {
	b, c := begin(b, AttrREJ, m.TransactionID, 0)
	putIDs(c, m.LocalID, m.RemoteID)
	c[8] = uint8(m.Message) << 6
	c[9] = uint8(len(m.ARI)) << 1
	be.PutUint16(c[10:], uint16(m.Reason))
	putData(c[12:84], m.ARI)
	putData(c[84:], m.Private)
	return b
}

// Parse decodes a MAD. Of information that claims to be longer than its field,
// it returns the field. The error is one of this package.
func (m *REJ) Parse(b []byte) error {
	h, c, err := open(b, AttrREJ)
	if err != nil {
		return err
	}
	*m = REJ{
		TransactionID: h.TransactionID,
		Message:       Stage(c[8] >> 6),
		Reason:        Reason(be.Uint16(c[10:])),
		ARI:           information(c[12:84], c[9]>>1),
		Private:       c[84:],
	}
	m.LocalID, m.RemoteID = getIDs(c)
	return nil
}

func information(field []byte, length uint8) []byte {
	n := min(len(field), int(length))
	return field[:n:n]
}
