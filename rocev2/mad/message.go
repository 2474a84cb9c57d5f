package mad

// Message is one of the messages of connection management: *REQ, *MRA, *REJ,
// *REP, *RTU, *DREQ, *DREP, *SIDRREQ, *SIDRREP, *LAP or *APR.
type Message interface {
	// Attribute says which message it is.
	Attribute() Attribute
	// AppendTo appends the encoded MAD, 256 bytes, to b. It panics if
	// private data is longer than its field.
	AppendTo(b []byte) []byte
	// Parse decodes a MAD. Slices of the message alias it. The error is one
	// of this package.
	Parse(b []byte) error
}

// New returns an empty message, and nil if connection management has no such.
func New(a Attribute) Message {
	switch a {
	case AttrREQ:
		return new(REQ)
	case AttrMRA:
		return new(MRA)
	case AttrREJ:
		return new(REJ)
	case AttrREP:
		return new(REP)
	case AttrRTU:
		return new(RTU)
	case AttrDREQ:
		return new(DREQ)
	case AttrDREP:
		return new(DREP)
	case AttrSIDRREQ:
		return new(SIDRREQ)
	case AttrSIDRREP:
		return new(SIDRREP)
	case AttrLAP:
		return new(LAP)
	case AttrAPR:
		return new(APR)
	}
	return nil
}

// Parse decodes a MAD of connection management, whichever message it is. It
// allocates; a caller that expects one message uses its Parse method. The error
// is one of this package.
func Parse(b []byte) (Header, Message, error) {
	var h Header
	if err := h.Parse(b); err != nil {
		return h, nil, err
	}
	if err := h.Check(); err != nil {
		return h, nil, err
	}
	m := New(h.Attribute)
	return h, m, m.Parse(b)
}
