package agent

import (
	"bytes"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// An agent can ask a peer what it is, without a connection. The question is a
// SIDR_REQ for a service that no program can have, and the mark of this
// software is in its private data after the IP header. Any communication
// manager answers that no program listens there. This one says in that answer
// what it is, by the fields of enhanced connection establishment. It does so
// only for a question with the mark: others get the usual answer.

// The service of the question: port 0, which means "choose one" to a listener.
const noService = mad.ServiceID(mad.PortSpaceUDP) << 16

// identityLife is for how long an answer is waited for, with one repetition
// after identityAgain.
const (
	identityAgain = 100 * time.Millisecond
	identityLife  = time.Second
)

// mark is what a question for the identity has after the IP header.
func mark(e mad.ECE) []byte {
	return []byte{byte(e.VendorID >> 16), byte(e.VendorID >> 8), byte(e.VendorID)}
}

// IdentityRequest asks a peer what it is, for Resolve. own is the identity of
// this side. What comes of it is an event: SIDRReply, whose ECE is the peer's
// identity, or zero if it says nothing, or Unreachable.
func IdentityRequest(p Path, own mad.ECE) *SIDRRequest {
	ip := mad.IPHeader{Source: p.Local, Destination: p.Remote}
	return &SIDRRequest{Path: p, ServiceID: noService, Private: append(ip.AppendTo(nil), mark(own)...),
		FirstTimeout: identityAgain, MaxTimeout: identityLife - identityAgain, Retries: 1}
}

// identify answers a request for the identity, and reports whether m is one.
func (o *outbox) identify(path *Path, m *mad.SIDRREQ) bool {
	if o.identity == (mad.ECE{}) || m.ServiceID != noService || !bytes.HasPrefix(m.Private[mad.IPHeaderLen:], mark(o.identity)) {
		return false
	}
	o.answer(path, &mad.SIDRREP{TransactionID: m.TransactionID, RequestID: m.RequestID, ServiceID: m.ServiceID,
		Status: mad.SIDRUnsupported, ECE: o.identity})
	return true
}
